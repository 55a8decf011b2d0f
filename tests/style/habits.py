"""What is done in one place only, and what is not left lying about."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final

from tests.style.source import Finding, Source

#: What reads a wall clock or a monotonic one; the time a processor was busy is no clock.
CLOCKS: Final = frozenset(
    {f"time.{name}{unit}" for name in ("time", "monotonic", "perf_counter", "clock_gettime") for unit in ("", "_ns")}
    | {"time.ctime", "time.gmtime", "time.localtime", "uuid.uuid1"}
    | {f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")}
    | {"datetime.date.today"}
)
SLEEPS: Final = frozenset({"time.sleep", "asyncio.sleep", "asyncio.tasks.sleep", "threading.Timer"})

_UNFINISHED: Final = re.compile(r"\b(TODO|FIXME)\b")
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def habits(source: Source) -> Iterator[Finding]:
    """Everything in this file that is done elsewhere than in its one place, or was left unfinished."""
    names = _imported(source)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name | ast.Attribute):
            yield from _used(source, node, _dotted(node, names))
    yield from _unfinished(source)
    if source.path == "astyqueue/__init__.py":
        yield from _public_names(source)


def _imported(source: Source) -> dict[str, str]:
    """What each imported name stands for, in full: `{"now_or": "time.monotonic", "dt": "datetime"}`."""
    names: dict[str, str] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
            names |= {root: root for alias in node.names if not alias.asname for root in [alias.name.partition(".")[0]]}
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    """The full name that an expression such as `dt.datetime.now` stands for; empty when it is not an imported one."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value, names)):
        return f"{owner}.{node.attr}"
    return ""


def _used(source: Source, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
    if name in CLOCKS and source.path != "astyqueue/clock.py":
        yield source.found(node.lineno, f"{name} reads the clock", "only astyqueue/clock.py does")
    if name in SLEEPS and source.path != "astyqueue/waiting.py":
        yield source.found(node.lineno, f"{name} sleeps", "only astyqueue/waiting.py does")
    if isinstance(node, ast.Name) and node.id == "NotImplementedError":
        yield source.found(node.lineno, "NotImplementedError", "nothing is left unfinished")


def _unfinished(source: Source) -> Iterator[Finding]:
    for line, text in (*_comments(source), *_docstrings(source)):
        if word := _UNFINISHED.search(text):
            yield source.found(line, word[0], "nothing is left unfinished")


def _comments(source: Source) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _docstrings(source: Source) -> Iterator[tuple[int, str]]:
    for node in ast.walk(source.tree):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def _public_names(source: Source) -> Iterator[Finding]:
    rule = "the package lists its public names in __all__: constants, then classes, then the rest, each by the alphabet"
    listed = [
        node for node in source.tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    if not listed:
        yield source.found(1, "there is no __all__", rule)
    for node in listed:
        names = [str(name) for name in ast.literal_eval(node.value)]
        if names != sorted(names, key=_rank):
            yield source.found(node.lineno, "__all__ is not sorted", rule)


def _rank(name: str) -> tuple[bool, bool, str]:
    """Ruff's order of `__all__`, so that both can be content at once."""
    return not name.isupper(), not name[0].isupper(), name
