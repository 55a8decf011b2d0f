"""Words that hide who does something, or how much of it: docs, docstrings, comments, help and messages do without."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.style.source import Finding, Source

#: What to look for, and what a reader wants in its place.
HIDING: Final = tuple(
    (re.compile(rf"\b(?:{words})\b", re.IGNORECASE), instead)
    for words, instead in (
        ("told|tells?|telling", "say which component shows, logs, reports or returns it"),
        ("somebody|someone|nobody|anybody|everybody|whoever", "name the process, thread or caller"),
        ("so (?:many|long|often|much)(?! (?:that|as))", "say the number, the duration or N"),
        ("unless said", "say 'by default'"),
        ("(?<!there )(?:is|are) no (?!longer|more)", "say 'is not a …' or 'invalid'"),
        ("graves?", "say 'tombstone'"),
        ("glanc(?:e|es|ed|ing)", "say 'poll of the headers'"),
        ("takers?", "say 'consumer' or 'waiter'"),
        ("befall\\w*", "name the fault"),
        ("mend(?:s|ed|ing)?", "say 'fix'"),
        ("one's own", "say whose"),
        ("in hand", "say 'leased'"),
    )
)
#: Where people read: code in fences and backticks, and the targets of links, are no prose.
_NOT_PROSE: Final = re.compile(r"`[^`]*`|\]\([^)]*\)|https?://\S+")
_READ: Final = ("README.md", "CONTRIBUTING.md", "SECURITY.md")


def words(source: Source) -> Iterator[Finding]:
    """Every hiding word in the docstrings, comments and texts of the package."""
    if source.top_level != "astyqueue":
        return
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            for offset, line in enumerate(token.string.splitlines()):
                yield from _hiding(source.path, token.start[0] + offset, line)


def words_of_pages(root: Path) -> Iterator[Finding]:
    """Every hiding word in the pages that users read."""
    for path in (*(root / name for name in _READ), *sorted((root / "docs").rglob("*.md"))):
        if path.exists():
            yield from _in_page(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


def _in_page(name: str, text: str) -> Iterator[Finding]:
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced:
            yield from _hiding(name, number, line)


def _hiding(path: str, number: int, line: str) -> Iterator[Finding]:
    prose = _NOT_PROSE.sub("", line)
    for pattern, instead in HIDING:
        for hit in pattern.finditer(prose):
            yield Finding(path, number, f"{hit[0].strip()!r} hides who or how much", instead)
