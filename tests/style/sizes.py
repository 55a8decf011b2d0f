"""How big things may be. What outgrows its budget lacks an idea; there are no exemptions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from tests.style.source import Finding, Function, Source

FILE_LINES: Final = 450
CLASS_LINES: Final = 250
FUNCTION_LINES: Final = 40
NESTING: Final = 3
POSITIONAL: Final = 5

_BLOCKS: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar)
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def sizes(source: Source) -> Iterator[Finding]:
    """Everything in this file that is over a budget."""
    lines = len(source.text.splitlines())
    if lines > FILE_LINES:
        yield source.found(FILE_LINES + 1, f"the file has {lines} lines", f"budget {FILE_LINES}")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            yield from _class_size(source, node)
        elif isinstance(node, Function):
            yield from _function_size(source, node)
            yield from _nesting(source, node)
    if source.top_level != "tests":
        yield from _parameters(source)
        yield from _constructions(source)


def _class_size(source: Source, node: ast.ClassDef) -> Iterator[Finding]:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if lines > CLASS_LINES:
        yield source.found(node.lineno, f"class {node.name} has {lines} lines", f"budget {CLASS_LINES}")


def _function_size(source: Source, node: Function) -> Iterator[Finding]:
    lines = (node.end_lineno or node.lineno) - _body_start(node) + 1
    if lines > FUNCTION_LINES:
        yield source.found(
            node.lineno, f"the body of {node.name} has {lines} lines", f"budget {FUNCTION_LINES}, docstring excluded"
        )


def _body_start(node: Function) -> int:
    first = node.body[0]
    if ast.get_docstring(node) is not None:
        return (first.end_lineno or first.lineno) + 1
    if isinstance(first, Function | ast.ClassDef):
        return min(part.lineno for part in (first, *first.decorator_list))
    return first.lineno


def _nesting(source: Source, node: Function) -> Iterator[Finding]:
    for line in _too_deep(node, 0):
        yield source.found(line, f"{node.name} nests deeper than {NESTING} blocks", f"budget {NESTING}")


def _too_deep(node: ast.AST, depth: int) -> Iterator[int]:
    """The lines of the outermost blocks that are over the budget; a function inside has a budget of its own."""
    for child in ast.iter_child_nodes(node):
        inner = depth + (isinstance(child, _BLOCKS) and not _is_elif(child, node))
        if inner > NESTING:
            yield getattr(child, "lineno", 0)
        elif not isinstance(child, _SCOPES):
            yield from _too_deep(child, inner)


def _is_elif(child: ast.AST, parent: ast.AST) -> bool:
    """Whether this `if` is the `elif` of the other: in the syntax tree only its column tells it from `else: if`."""
    return (
        isinstance(child, ast.If)
        and isinstance(parent, ast.If)
        and child in parent.orelse
        and child.col_offset == parent.col_offset
    )


def _parameters(source: Source) -> Iterator[Finding]:
    methods = {method for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef) for method in node.body}
    for node in ast.walk(source.tree):
        if not isinstance(node, Function):
            continue
        bound = node in methods and "staticmethod" not in map(ast.unparse, node.decorator_list)
        positional = len(node.args.posonlyargs) + len(node.args.args) - bound
        if positional > POSITIONAL:
            yield source.found(
                node.lineno,
                f"{node.name} takes {positional} positional parameters",
                f"budget {POSITIONAL}, self excluded",
            )


def _constructions(source: Source) -> Iterator[Finding]:
    """The calls of classes by more values than a reader can count: classes have names like `Lease`, or are `cls`."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and len(node.args) > POSITIONAL:
            name = ast.unparse(node.func).rpartition(".")[2]
            if name == "cls" or name.lstrip("_")[:1].isupper():
                yield source.found(
                    node.lineno,
                    f"{name} is made of {len(node.args)} positional values",
                    f"budget {POSITIONAL}, then keywords",
                )
