"""Text that may be shown: on a terminal, where control characters would move the cursor, set its title or fill the clipboard, and in a log.

Producers and handlers write bodies, keys, headers, names of tasks and reasons; whatever command, log line or error shows one of
them passes it through here.
"""

from __future__ import annotations

import json
from typing import Final
from unicodedata import category

#: Spaces of any width: text of many languages has them, and they do nothing but separate.
_SPACE: Final = "Zs"
#: Before each line of a traceback, so that no line of an error's own text can pass for a line of the output.
_INDENT: Final = "    "


def printable(text: object) -> str:
    r"""The text in one line, in which every character that is not printable is written as JSON writes it: `\u001b`, `\n`, `\u202e`.

    Not printable are controls, line and paragraph separators, characters of no width or that change the direction of writing,
    private and unassigned ones, and halves of characters. JSON stays JSON, of the same values.
    """
    line = str(text)
    return line if line.isprintable() else "".join(map(_written, line))


def printable_lines(text: str) -> str:
    """As `printable`, line by line."""
    return "\n".join(map(printable, text.split("\n")))


def indented(text: str) -> str:
    """As `printable_lines`, each line indented."""
    return "\n".join(_INDENT + printable(line) for line in text.split("\n"))


def _written(character: str) -> str:
    return character if character.isprintable() or category(character) == _SPACE else json.dumps(character)[1:-1]
