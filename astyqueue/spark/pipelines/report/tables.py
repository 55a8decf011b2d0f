"""Tables of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from astyqueue.spark.pipelines.report.markup import tag
from astyqueue.spark.pipelines.report.wording import count

Row = Sequence[str | Element]
#: More rows than these are told together.
MOST: Final = 20


class Heading(NamedTuple):
    """A column: its title, and whether numbers stand in it, which are set to the right."""

    title: str
    numbers: bool = True


def text(title: str) -> Heading:
    """A column of words."""
    return Heading(title, numbers=False)


def others(number: int, *, complete: bool = True) -> str:
    """What the last row is called if it stands for so many, or, unless all are told apart, for more."""
    return f"and {'' if complete else 'more than '}{count(number)} {'other' if number == 1 and complete else 'others'}"


def table(headings: Sequence[Heading], rows: Sequence[Row], caption: str, last: Row | None = None) -> Element:
    """A table that scrolls on a small screen; of many rows the first, and then the `last`, which stands for all the others."""
    head = tag("tr", *[tag("th", heading.title, scope="col", class_=_style(heading)) for heading in headings])
    shown = [*rows[:MOST], *([last] if last else [])]
    body = [tag("tr", *[tag("td", cell, class_=_style(heading)) for heading, cell in zip(headings, row, strict=True)]) for row in shown]
    made = tag("table", tag("thead", head), tag("tbody", *body), class_="wide", aria_label=caption)
    left = 0 if last else len(rows) - MOST
    return tag("div", made, tag("p", f"and {left} more", class_="note") if left > 0 else None, class_="scroll")


def folded(summary: str, content: Element) -> Element:
    """What is shown when asked for, and in print."""
    return tag("details", tag("summary", summary), content)


def _style(heading: Heading) -> str:
    return "number" if heading.numbers else "words"
