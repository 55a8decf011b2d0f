"""Makes coroutines of functions: where they call what has to be awaited, and of what calls those.

Only the places that change are replaced in the text, so comments, docstrings and the order of methods stay.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

#: The methods that make a context manager, which an `async with` awaits.
_CONTEXT: Final = {"__enter__": "__aenter__", "__exit__": "__aexit__"}
_INNER: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)

Scope = ast.Module | ast.ClassDef


class Edit(NamedTuple):
    """Text in place of the bytes from `start` to `end`."""

    start: int
    end: int
    text: str


def as_coroutines(text: str, *, awaited: Collection[str], renamed: Mapping[str, str]) -> str:
    """The same module with coroutines in place of the functions that wait.

    `awaited` are calls to await, as they are written ("self.run"); a method that has one is awaited too where its class
    calls it. `renamed` are imported modules and names.
    """
    module = _Module(text, frozenset(awaited), renamed)
    content = text.encode()
    for edit in sorted(module.edits(), reverse=True):
        content = content[: edit.start] + edit.text.encode() + content[edit.end :]
    return content.decode()


def with_differences(text: str, differences: Mapping[str, str], *, of: str) -> str:
    """The text with each of these words or passages replaced, wherever it is; LookupError for one that is nowhere.

    `of` is the file that the text is from.
    """
    for before, after in differences.items():
        left, right = (r"\b" if re.match(r"\w", end) else "" for end in (before[0], before[-1]))
        text, times = re.subn(left + re.escape(before) + right, after.replace("\\", r"\\"), text)
        if not times:
            problem = f"{before!r} is nowhere in {of}: mend the differences in tools/async_classes/twins.py"
            raise LookupError(problem)
    return text


def without_methods(text: str, names: Collection[str]) -> str:
    """The text without these methods; LookupError for a name that no class of it has."""
    lines, left = text.splitlines(keepends=True), set(names)
    methods = [one for part in ast.parse(text).body if isinstance(part, ast.ClassDef) for one in _functions(part)]
    for method in reversed([one for one in methods if one.name in left]):
        del lines[method.lineno - 1 : method.end_lineno]
        left.discard(method.name)
    if left:
        problem = f"no class has the methods {', '.join(sorted(left))}: mend `left_out` in tools/async_classes/twins.py"
        raise LookupError(problem)
    return "".join(lines)


class _Module:
    def __init__(self, text: str, awaited: frozenset[str], renamed: Mapping[str, str]) -> None:
        self._tree = ast.parse(text)
        self._awaited = awaited
        self._renamed = renamed
        self._lines = [0]
        for line in text.encode().splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._scopes: list[Scope] = [self._tree, *(node for node in self._tree.body if isinstance(node, ast.ClassDef))]
        self._coroutines: set[ast.FunctionDef] = set()

    def edits(self) -> Iterator[Edit]:
        """What to change, in any order."""
        self._find_coroutines()
        for scope in self._scopes:
            for function in _functions(scope):
                if function in self._coroutines:
                    yield from self._made_coroutine(function, scope)
        for node in ast.walk(self._tree):
            yield from self._names(node)

    def _find_coroutines(self) -> None:
        """Find the functions that wait; each round finds those that call what the rounds before found."""
        found = -1
        while found != len(self._coroutines):
            found = len(self._coroutines)
            for scope in self._scopes:
                self._coroutines |= {one for one in _functions(scope) if self._waits(one, scope)}

    def _waits(self, function: ast.FunctionDef, scope: Scope) -> bool:
        return function.name in _CONTEXT or any(
            isinstance(node, ast.Await) or self._is_awaited(node, scope) for node in _own(function)
        )

    def _is_awaited(self, node: ast.AST, scope: Scope) -> bool:
        """Whether this is a call to await; a generator among the coroutines is iterated instead."""
        if not isinstance(node, ast.Call):
            return False
        prefix = "self." if isinstance(scope, ast.ClassDef) else ""
        coroutines = {prefix + one.name for one in _functions(scope) if one in self._coroutines and not _yields(one)}
        return ast.unparse(node.func) in self._awaited | coroutines

    def _made_coroutine(self, function: ast.FunctionDef, scope: Scope) -> Iterator[Edit]:
        name = _CONTEXT.get(function.name, function.name)
        start = self._at(function.lineno, function.col_offset)
        yield Edit(start, start + len(f"def {function.name}"), f"async def {name}")
        followed = {id(inner) for node in _own(function) if (inner := _before_a_suffix(node))}
        for node in _own(function):
            if isinstance(node, ast.expr) and self._is_awaited(node, scope):
                start, end = self._at(node.lineno, node.col_offset), self._end(node)
                yield Edit(start, start, "(await " if id(node) in followed else "await ")
                if id(node) in followed:
                    yield Edit(end, end, ")")

    def _names(self, node: ast.AST) -> Iterator[Edit]:
        """The renamed modules and names of an import, and the uses of such names."""
        if isinstance(node, ast.ImportFrom) and node.module and node.module in self._renamed:
            start = self._at(node.lineno, node.col_offset) + len("from ")
            yield Edit(start, start + len(node.module), self._renamed[node.module])
        elif isinstance(node, ast.alias) and node.name in self._renamed:
            yield Edit(self._at(node.lineno, node.col_offset), self._end(node), self._renamed[node.name])
        elif isinstance(node, ast.Name) and node.id in self._renamed:
            yield Edit(self._at(node.lineno, node.col_offset), self._end(node), self._renamed[node.id])

    def _at(self, line: int, column: int) -> int:
        """The place of a line and column in the encoded text: columns of a syntax tree are bytes."""
        return self._lines[line - 1] + column

    def _end(self, node: ast.expr | ast.alias) -> int:
        return self._at(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def _functions(scope: Scope) -> list[ast.FunctionDef]:
    return [node for node in scope.body if isinstance(node, ast.FunctionDef)]


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, without what is in functions inside it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _INNER):
            yield from _own(child)


def _yields(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own(function))


def _before_a_suffix(node: ast.AST) -> ast.expr | None:
    """The expression before a dot, an index or the arguments of a call: there `await` would be read as of the whole."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        return node.value
    return node.func if isinstance(node, ast.Call) else None
