"""Child processes that never outlive their parent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

_TETHER: Final = Path(__file__).with_name("die_with_parent.py")


class Keeper:
    """Starts processes that are killed when this keeper is closed, or when its own process ends in any way.

    The kernel ties a child to the thread that started it, so one thread, which lives until `close`, starts them all.
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="keeper")

    def start(self, command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
        """The process of this command, with its output appended to a file.

        Ctrl-C in this terminal does not reach it.
        """
        return self._thread.submit(_started, command, output).result()

    def close(self) -> None:
        """End the thread, which kills all of its processes."""
        self._thread.shutdown()


def _started(command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
    tethered = [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()), *command]
    with output.open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - the command is built here, word by word
            tethered, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
