"""Pictures as SVG: lines over time, a map of hours, bars. Colours are the style sheet's, so that they suit light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from astyqueue.printable import printable
from astyqueue.spark.pipelines.report.markup import tag
from astyqueue.spark.pipelines.report.scales import Scale, Times

_WIDTH: Final = 760
_HEIGHT: Final = 240
#: Room for labels: left of, right of, above and below what is drawn.
_LEFT: Final = 64
_RIGHT: Final = 84
_TOP: Final = 12
_BOTTOM: Final = 34
_INNER: Final = _WIDTH - _LEFT - _RIGHT
_DEEP: Final = _HEIGHT - _TOP - _BOTTOM
#: Names of lines are at least so far apart.
_APART: Final = 15
#: Lines of so few points have them marked.
_FEW: Final = 40


class Line(NamedTuple):
    """Values over time; None where there is none. `style` is a class of the style sheet."""

    name: str
    style: str
    points: Sequence[tuple[float, float | None]]


def lines(told: str, drawn: Sequence[Line], *, times: Times, scale: Scale) -> Element:
    """Lines over time, each with its name at its end; `told` says in words what is seen."""
    picture = _picture(told, _HEIGHT)
    for tick in scale.ticks:
        y = _TOP + _DEEP * (1 - tick.at)
        picture.append(tag("line", class_="grid", x1=_LEFT, x2=_LEFT + _INNER, y1=y, y2=y))
        picture.append(tag("text", tick.text, class_="label", x=_LEFT - 8, y=y + 4, text_anchor="end"))
    for tick in times.ticks:
        x = _LEFT + _INNER * tick.at
        picture.append(tag("line", class_="tick", x1=x, x2=x, y1=_TOP + _DEEP, y2=_TOP + _DEEP + 5))
        picture.append(tag("text", tick.text, class_="label", x=x, y=_HEIGHT - 12, text_anchor="middle"))
    ends: list[tuple[float, Line]] = []
    for line in drawn:
        placed = [None if value is None else _at(times.place(moment), scale.place(value)) for moment, value in line.points]
        picture.extend(_drawn(line, placed))
        ends += [(place[1], line) for place in placed[::-1] if place is not None][:1]
    picture.extend(_names(ends))
    return picture


def _at(across: float, up: float) -> tuple[float, float]:
    return _LEFT + _INNER * across, _TOP + _DEEP * (1 - up)


def _drawn(line: Line, placed: Sequence[tuple[float, float] | None]) -> list[Element]:
    """The line, broken where there is no value; dots where there are few of them, or where one stands alone."""
    path, dots, before = "", [], False
    for here, place in enumerate(placed):
        if place is not None:
            x, y = place
            path += f"{'L' if before else 'M'}{x:.1f} {y:.1f}"
            alone = not before and (here + 1 == len(placed) or placed[here + 1] is None)
            dots += [tag("circle", class_=f"dot {line.style}", cx=x, cy=y, r=2.5)] if alone or len(placed) <= _FEW else []
        before = place is not None
    return [tag("path", class_=f"line {line.style}", d=path), *dots] if path else []


def _names(ends: Sequence[tuple[float, Line]]) -> list[Element]:
    """The names of lines, moved down where they would be on top of each other, and up again if that is too far."""
    ordered = sorted(ends, key=lambda end: end[0])
    places: list[float] = []
    for y, _ in ordered:
        places.append(max(y, places[-1] + _APART) if places else y)
    over = max(0.0, places[-1] - (_TOP + _DEEP)) if places else 0.0
    return [
        tag("text", line.name, class_=f"name {line.style}", x=_LEFT + _INNER + 8, y=place - over + 4)
        for place, (_, line) in zip(places, ordered, strict=True)
    ]


class Cell(NamedTuple):
    """A square of a map: its row, its column, how dark it is (from 0 to 1) and what it says."""

    row: int
    column: int
    depth: float
    text: str


def heat(told: str, *, rows: Sequence[str], columns: Sequence[str], cells: Sequence[Cell]) -> Element:
    """A map of rows and columns."""
    high, wide = 24, _INNER / len(columns)
    picture = _picture(told, _TOP + high * len(rows) + _BOTTOM)
    for row, name in enumerate(rows):
        picture.append(tag("text", name, class_="label", x=_LEFT - 8, y=_TOP + high * row + 16, text_anchor="end"))
    for column, name in enumerate(columns):
        x = _LEFT + wide * (column + 0.5)
        picture.append(tag("text", name, class_="label", x=x, y=_TOP + high * len(rows) + 18, text_anchor="middle"))
    for row in range(len(rows)):
        for column in range(len(columns)):
            place = {"x": _LEFT + wide * column + 1, "y": _TOP + high * row + 1, "width": wide - 2, "height": high - 2, "rx": 3}
            picture.append(tag("rect", class_="empty", **place))
    for cell in cells:
        place = {"x": _LEFT + wide * cell.column + 1, "y": _TOP + high * cell.row + 1, "width": wide - 2, "height": high - 2, "rx": 3}
        picture.append(tag("rect", tag("title", cell.text), class_="warm", fill_opacity=0.12 + 0.88 * cell.depth, **place))
    return picture


class Bar(NamedTuple):
    """A bar: its name, its length (from 0 to 1) and what is written at its end."""

    name: str
    size: float
    text: str


def bars(told: str, drawn: Sequence[Bar], mean: float | None = None) -> Element:
    """Bars below each other, and a line at the mean of all if there is one (from 0 to 1)."""
    high, left = 24, 230
    across = _WIDTH - left - _RIGHT
    picture = _picture(told, _TOP + high * len(drawn) + 8)
    for row, bar in enumerate(drawn):
        y = _TOP + high * row
        name = printable(bar.name)
        shown = name if len(name) <= 30 else f"{name[:29]}\N{HORIZONTAL ELLIPSIS}"  # noqa: PLR2004 - letters that fit
        picture.append(tag("text", tag("title", bar.name), class_="label", x=left - 8, y=y + 15, text_anchor="end"))
        picture[-1][0].tail = shown
        picture.append(tag("rect", class_="bar", x=left, y=y + 3, width=max(1.0, across * bar.size), height=high - 7, rx=2))
        picture.append(tag("text", bar.text, class_="label", x=left + across * bar.size + 6, y=y + 15))
    if mean is not None:
        x = left + across * mean
        picture.append(tag("line", class_="mean", x1=x, x2=x, y1=_TOP - 4, y2=_TOP + high * len(drawn) + 2))
    return picture


def _picture(told: str, height: float) -> Element:
    """A picture that is told in words too, for those who do not see it."""
    return tag("svg", tag("title", told), role="img", aria_label=told, viewBox=f"0 0 {_WIDTH} {height:.0f}", width=_WIDTH)
