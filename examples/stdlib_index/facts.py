"""Facts about a source file from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

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
