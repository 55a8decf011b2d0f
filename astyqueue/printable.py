"""Makes text safe for logs and terminals, where control characters would move the cursor or fill the clipboard.

Producers and handlers choose bodies, keys, headers, names of tasks and reasons; each command, log line or error that
shows one passes it through here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final
from unicodedata import category

#: Spaces of any width: text in many languages has them, and they only separate.
_SPACE: Final = "Zs"
#: Before each line of a traceback, so that no line of an error's text can be mistaken for a line of the output.
_INDENT: Final = "    "
#: What a fact of a log line is quoted for.
_NEEDS_QUOTES: Final = re.compile('[ "=]')
#: Escapes of `repr` that JSON does not have, where the backslash is not itself escaped.
_OF_REPR: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:x([0-9a-f]{2})|U([0-9a-f]{8}))")


def printable(text: object) -> str:
    r"""The text in one line, with each character that is not printable escaped as in JSON: `\u001b`, `\n`, `\u202e`.

    Not printable are controls, line and paragraph separators, zero-width characters and those that change the direction
    of writing, private and unassigned ones, and lone surrogates. JSON stays JSON of the same values.
    """
    line = str(text)
    return line if line.isprintable() else "".join(map(_written, line))


def printable_message(text: object) -> str:
    r"""The text of an error, `printable`; escapes of `repr` in quoted values become those of JSON: `\x1b` too."""
    return printable(_OF_REPR.sub(_as_json, str(text)))


def quoted(text: str) -> str:
    """The text in quotes as in JSON, and `printable`."""
    return printable(json.dumps(text, ensure_ascii=False))


def facts_line(event: str, facts: Mapping[str, object]) -> str:
    """A log line `event name=value ...`, with values in quotes where that needs it."""
    texts = [*map(str, facts.values())]
    together = "".join(texts)  # checked once: nearly all lines need no quotes
    if "" in texts or not together.isprintable() or _NEEDS_QUOTES.search(together):
        texts = [*map(_fact, texts)]
    return " ".join((event, *map("{}={}".format, facts, texts)))


def printable_lines(text: str) -> str:
    """The text with each line made `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def indented(text: str) -> str:
    """The text with each line made `printable` and indented."""
    return "\n".join(_INDENT + printable(line) for line in text.split("\n"))


def _fact(text: str) -> str:
    return text if text and text.isprintable() and not _NEEDS_QUOTES.search(text) else quoted(text)


def _as_json(escape: re.Match[str]) -> str:
    return escape[1] + json.dumps(chr(int(escape[2] or escape[3], 16)))[1:-1]


def _written(character: str) -> str:
    return character if character.isprintable() or category(character) == _SPACE else json.dumps(character)[1:-1]
