"""The modules of `astyqueue.aio` that are written from modules for threads, and what differs in each of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.async_classes.rewriting import as_coroutines, with_differences

ROOT: Final = Path(__file__).parents[2]
#: What carries out steps in a thread, and in a task.
_RUNNERS: Final = {"run": "arun"}
_RUFF: Final = (sys.executable, "-m", "ruff")


@dataclass(frozen=True, slots=True)
class Twin:
    """A module for threads, and the module for tasks that is written from it.

    `differences` are passages of the first that are others in the second; besides these, `awaited` calls get an `await`
    and what contains them becomes a coroutine. `imports` are what the second needs on top.
    """

    threads: str
    tasks: str
    differences: Mapping[str, str] = field(default_factory=dict)
    awaited: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    def written(self, root: Path = ROOT) -> str:
        """The text of the module for tasks, as it should be."""
        text = with_differences((root / self.origin).read_text(encoding="utf-8"), self.differences)
        modules = {twin.threads: twin.tasks for twin in TWINS}
        text = as_coroutines(text, awaited={*_RUNNERS, *self.awaited}, renamed=_RUNNERS | modules)
        future = "from __future__ import annotations\n"
        text = text.replace(future, "\n".join((future, *self.imports, "")), 1)
        origin = f"# Written by `make aio` from {self.origin}: change that, or tools/async_classes/twins.py.\n"
        return self._tidied(origin + text)

    @property
    def origin(self) -> str:
        """The file of the module for threads, from the root of the project."""
        return _path(self.threads)

    @property
    def path(self) -> str:
        """The file of the module for tasks, from the root of the project."""
        return _path(self.tasks)

    def _tidied(self, text: str) -> str:
        """The text with its imports sorted, those that it does not use left out, and formatted."""
        for command in (("check", "--fix", "--quiet", "--select", "I,F401"), ("format", "--quiet")):
            text = subprocess.run(  # noqa: S603 - it runs ruff
                [*_RUFF, *command, "--stdin-filename", self.path, "-"],
                input=text,
                capture_output=True,
                text=True,
                check=True,
                cwd=ROOT,
            ).stdout
        return text


def _path(module: str) -> str:
    return module.replace(".", "/") + ".py"


TWINS: Final = (
    Twin(
        threads="astyqueue.queue.operations",
        tasks="astyqueue.aio.operations",
        differences={
            "for threads": "for tasks of an event loop",
            "in this thread": "in this task",
            "Store": "AsyncStore",
            "-> Iterator[Event]": "-> AsyncGenerator[Event, None]",
        },
        imports=("from collections.abc import AsyncGenerator",),
    ),
)
