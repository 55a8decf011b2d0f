"""Elements, tables and numbers of an HTML page. Text is escaped when it is added; control characters become visible."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element, tostring

from astyqueue.printable import printable
from astyqueue.text import counted
from astyqueue.units import SECOND

Child = Element | str | None


#: Rows shown of a table; further rows are one row together.
MOST: Final = 20
#: Units: the microseconds from which on a unit is used, its length, and its name.
_UNITS: Final = (
    (2 * 86_400 * SECOND, 86_400 * SECOND, "d"),
    (2 * 3_600 * SECOND, 3_600 * SECOND, "h"),
    (2 * 60 * SECOND, 60 * SECOND, "min"),
    (SECOND, SECOND, "s"),
    (0, 1_000, "ms"),
)
_TEN: Final = 10
_HUNDRED: Final = 100
NONE: Final = "\N{EN DASH}"


def tag(name: str, /, *children: Child, **attributes: str | float) -> Element:
    """An element; `class_` is its class, and underscores in other names are hyphens."""
    made = Element(name, {key.rstrip("_").replace("_", "-"): _spelled(value) for key, value in attributes.items()})
    for child in children:
        _put(made, child)
    return made


def page(root: Element) -> str:
    """A whole page of HTML."""
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def _put(parent: Element, child: Child) -> None:
    if isinstance(child, Element):
        parent.append(child)
    elif child is not None and len(parent):
        parent[-1].tail = (parent[-1].tail or "") + printable(child)
    elif child is not None:
        parent.text = (parent.text or "") + printable(child)


def _spelled(value: str | float) -> str:
    return printable(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


Row = Sequence[str | Element]


class Heading(NamedTuple):
    """A column: its title, and whether it has numbers, which are aligned to the right."""

    title: str
    numbers: bool = True


def text(title: str) -> Heading:
    """A column of text."""
    return Heading(title, numbers=False)


def others(number: int, *, complete: bool = True) -> str:
    """The name of the row for this number of further rows; if not `complete`, for more than this number."""
    return f"and {'' if complete else 'more than '}{count(number)} {'other' if number == 1 and complete else 'others'}"


def table(headings: Sequence[Heading], rows: Sequence[Row], caption: str, last: Row | None = None) -> Element:
    """A table that scrolls on a small screen: the first MOST rows, and then `last`, the row for all others."""
    head = tag("tr", *[tag("th", heading.title, scope="col", class_=_style(heading)) for heading in headings])
    shown = [*rows[:MOST], *([last] if last else [])]
    body = [
        tag("tr", *[tag("td", cell, class_=_style(heading)) for heading, cell in zip(headings, row, strict=True)])
        for row in shown
    ]
    made = tag("table", tag("thead", head), tag("tbody", *body), class_="wide", aria_label=caption)
    left = 0 if last else len(rows) - MOST
    return tag("div", made, tag("p", f"and {left} more", class_="note") if left > 0 else None, class_="scroll")


def folded(summary: str, content: Element) -> Element:
    """Content that is hidden until the reader opens it."""
    return tag("details", tag("summary", summary), content)


def _style(heading: Heading) -> str:
    return "number" if heading.numbers else "words"


def length(microseconds: float | None) -> str:
    """A length of time, to three digits: "1.23 s", "45.6 ms"."""
    if microseconds is None:
        return NONE
    unit, name = next((unit, name) for least, unit, name in _UNITS if microseconds >= least)
    return f"{_digits(microseconds / unit)} {name}"


def plain(microseconds: int) -> str:
    """A round length of time as text that follows "each": "second", "10 seconds", "hour"."""
    units = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
    unit, name = next(each for each in units if microseconds % (each[0] * SECOND) == 0)
    number = microseconds // (unit * SECOND)
    return name if number == 1 else counted(number, name)


def count(number: float) -> str:
    """A number with separated thousands."""
    return f"{round(number):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def share(part: float, whole: float) -> str:
    """A part of a whole in percent; 0 and 100 only if exact, else "< 0.01 %" and "> 99.99 %"."""
    if not whole:
        return NONE
    percent = _HUNDRED * part / whole
    if 0 < percent < 0.01:  # noqa: PLR2004 - as written below
        return "< 0.01 %"
    if 99.99 < percent < _HUNDRED:  # noqa: PLR2004 - as written below
        return "> 99.99 %"
    return f"{percent:.2f}".rstrip("0").rstrip(".") + " %"


def level(objective: str) -> str:
    """A service level as the page shows it."""
    return objective.replace("<=", " \N{LESS-THAN OR EQUAL TO} ")


def moment(when: datetime) -> str:
    """A moment in UTC, as text."""
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def _digits(number: float) -> str:
    if number >= _HUNDRED:
        return count(number)
    return f"{number:.1f}" if number >= _TEN else f"{number:.2f}"
