"""Facts about a source file from its syntax tree."""

from __future__ import annotations

import ast
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of one file. Of its module, classes and functions, `documented` of `documentable` have a docstring."""

    lines: int
    functions: int
    classes: int
    documentable: int
    documented: int
    longest: str
    longest_lines: int


def facts_of(source: bytes) -> Facts:
    """The facts of a file; SyntaxError if it is not Python (ValueError for a zero byte in older versions)."""
    module = ast.parse(source)
    found = list(_definitions(module, ""))
    functions = [(_length(node), name) for name, node in found if not isinstance(node, ast.ClassDef)]
    longest_lines, longest = max(functions, default=(0, ""))
    return Facts(
        lines=len(source.splitlines()),
        functions=len(functions),
        classes=len(found) - len(functions),
        documentable=1 + len(found),
        documented=sum(
            ast.get_docstring(node, clean=False) is not None for node in (module, *(node for _, node in found))
        ),
        longest=longest,
        longest_lines=longest_lines,
    )


def _definitions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    """Every class and function below a node, with its qualified name."""
    for node in ast.iter_child_nodes(parent):
        inside = prefix
        if isinstance(node, Definition):
            yield prefix + node.name, node
            inside = f"{prefix}{node.name}."
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _definitions(node, inside)


def _length(node: Definition) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


#: The folder of Python files that the demo indexes. Default: the library of this Python.
LIBRARY: Final = Path(os.environ.get("STDLIB_INDEX_LIBRARY") or sysconfig.get_path("stdlib"))
#: Folders of installed packages, which are not part of the library.
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


def sources() -> list[str]:
    """Every source file of the library, as a path relative to it, in order."""
    found = (path.relative_to(LIBRARY) for path in LIBRARY.rglob("*.py") if path.is_file())
    return sorted(path.as_posix() for path in found if _INSTALLED.isdisjoint(path.parts))


def package_of(path: str) -> str:
    """The top-level package or module that a file belongs to."""
    return path.partition("/")[0].removesuffix(".py")
