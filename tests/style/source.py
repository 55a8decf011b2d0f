"""What the checks of the house look at and what they say: a parsed file, and a finding in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

NOT_OURS: Final = frozenset({"build", "dist"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    """One place that breaks a rule, and the rule."""

    path: str
    line: int
    what: str
    rule: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what} ({self.rule})"


@dataclass(frozen=True)
class Source:
    """A Python file; `path` is relative to the root of the project, with forward slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def top_level(self) -> str:
        """The top folder that the file is in."""
        return PurePosixPath(self.path).parts[0]

    def found(self, line: int, what: str, rule: str) -> Finding:
        return Finding(self.path, line, what, rule)


def sources(root: Path) -> Iterator[Source]:
    """Every Python file of the project, whatever folder it is in; what tools made (.venv, build, dist) is not ours."""
    for path in sorted(root.glob("*.py")):
        yield _source(root, path)
    for folder in sorted(root.iterdir()):
        if folder.is_dir() and not folder.name.startswith(".") and folder.name not in NOT_OURS:
            yield from (_source(root, path) for path in sorted(folder.rglob("*.py")))


def _source(root: Path, path: Path) -> Source:
    return Source(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
