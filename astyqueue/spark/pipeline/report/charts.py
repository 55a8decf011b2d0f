"""Charts as SVG: lines over time, heat maps, bars, and their axes. Colours, light and dark, are in the style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple, Protocol
from xml.etree.ElementTree import Element

from astyqueue.clock import instant
from astyqueue.printable import printable
from astyqueue.spark.pipeline.report.html import count, length, tag
from astyqueue.units import SECOND

_WIDTH: Final = 760
_HEIGHT: Final = 240
#: Margins for labels: left of, right of, above and below the drawing.
_LEFT: Final = 64
_RIGHT: Final = 84
_TOP: Final = 12
_BOTTOM: Final = 34
_INNER: Final = _WIDTH - _LEFT - _RIGHT
_DEEP: Final = _HEIGHT - _TOP - _BOTTOM
#: The distance of the names of lines at least.
_APART: Final = 15
#: Lines of at most this many points have dots.
_FEW: Final = 40
_MINUTE: Final = 60 * SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: Widths of time slices, and distances of labels.
WIDTHS: Final = (
    *(SECOND * part for part in (1, 2, 5, 10, 30)),
    *(_MINUTE * part for part in (1, 2, 5, 10, 30)),
    *(_HOUR * part for part in (1, 2, 6, 12)),
    *(_DAY * part for part in (1, 2, 7, 14, 28)),
)
_LABELS: Final = 7
#: Lengths with labels on the logarithmic scale.
_LENGTHS: Final = (*(10**power for power in range(8)), _MINUTE, 10 * _MINUTE, _HOUR, 10 * _HOUR, 4 * _DAY, 40 * _DAY)


class Line(NamedTuple):
    """Values over time; None for a gap. `style` is a class of the style sheet."""

    name: str
    style: str
    points: Sequence[tuple[float, float | None]]


def lines(description: str, drawn: Sequence[Line], *, times: Times, scale: Scale) -> Element:
    """Lines over time, each with its name at its end; `description` is the text for screen readers."""
    picture = _picture(description, _HEIGHT)
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
        placed = [
            None if value is None else _at(times.place(moment), scale.place(value)) for moment, value in line.points
        ]
        picture.extend(_drawn(line, placed))
        ends += [(place[1], line) for place in placed[::-1] if place is not None][:1]
    picture.extend(_names(ends))
    return picture


def _at(across: float, up: float) -> tuple[float, float]:
    return _LEFT + _INNER * across, _TOP + _DEEP * (1 - up)


def _drawn(line: Line, placed: Sequence[tuple[float, float] | None]) -> list[Element]:
    """The line, with gaps where values are missing; dots if it has few points, and at single points."""
    path, dots, before = "", [], False
    for here, place in enumerate(placed):
        if place is not None:
            x, y = place
            path += f"{'L' if before else 'M'}{x:.1f} {y:.1f}"
            alone = not before and (here + 1 == len(placed) or placed[here + 1] is None)
            dots += (
                [tag("circle", class_=f"dot {line.style}", cx=x, cy=y, r=2.5)] if alone or len(placed) <= _FEW else []
            )
        before = place is not None
    return [tag("path", class_=f"line {line.style}", d=path), *dots] if path else []


def _names(ends: Sequence[tuple[float, Line]]) -> list[Element]:
    """The names of lines, moved down where they would overlap, and all up again if the last is below the chart."""
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
    """A square of a heat map: its row, its column, its darkness (from 0 to 1) and its text."""

    row: int
    column: int
    depth: float
    text: str


def heat(description: str, *, rows: Sequence[str], columns: Sequence[str], cells: Sequence[Cell]) -> Element:
    """A heat map; `description` is the text for screen readers."""
    high, wide = 24, _INNER / len(columns)
    picture = _picture(description, _TOP + high * len(rows) + _BOTTOM)
    for row, name in enumerate(rows):
        picture.append(tag("text", name, class_="label", x=_LEFT - 8, y=_TOP + high * row + 16, text_anchor="end"))
    for column, name in enumerate(columns):
        x = _LEFT + wide * (column + 0.5)
        picture.append(tag("text", name, class_="label", x=x, y=_TOP + high * len(rows) + 18, text_anchor="middle"))
    for row in range(len(rows)):
        for column in range(len(columns)):
            place = {
                "x": _LEFT + wide * column + 1,
                "y": _TOP + high * row + 1,
                "width": wide - 2,
                "height": high - 2,
                "rx": 3,
            }
            picture.append(tag("rect", class_="empty", **place))
    for cell in cells:
        place = {
            "x": _LEFT + wide * cell.column + 1,
            "y": _TOP + high * cell.row + 1,
            "width": wide - 2,
            "height": high - 2,
            "rx": 3,
        }
        picture.append(
            tag("rect", tag("title", cell.text), class_="warm", fill_opacity=0.12 + 0.88 * cell.depth, **place)
        )
    return picture


class Bar(NamedTuple):
    """A bar: its name, its length (from 0 to 1) and the text at its end."""

    name: str
    size: float
    text: str


def bars(description: str, drawn: Sequence[Bar], mean: float | None = None) -> Element:
    """Horizontal bars, with a line at `mean` (0 to 1) if given; `description` is the text for screen readers."""
    high, left = 24, 230
    across = _WIDTH - left - _RIGHT
    picture = _picture(description, _TOP + high * len(drawn) + 8)
    for row, bar in enumerate(drawn):
        y = _TOP + high * row
        name = printable(bar.name)
        shown = name if len(name) <= 30 else f"{name[:29]}\N{HORIZONTAL ELLIPSIS}"  # noqa: PLR2004 - letters that fit
        picture.append(tag("text", tag("title", bar.name), class_="label", x=left - 8, y=y + 15, text_anchor="end"))
        picture[-1][0].tail = shown
        picture.append(
            tag("rect", class_="bar", x=left, y=y + 3, width=max(1.0, across * bar.size), height=high - 7, rx=2)
        )
        picture.append(tag("text", bar.text, class_="label", x=left + across * bar.size + 6, y=y + 15))
    if mean is not None:
        x = left + across * mean
        picture.append(tag("line", class_="mean", x1=x, x2=x, y1=_TOP - 4, y2=_TOP + high * len(drawn) + 2))
    return picture


def _picture(description: str, height: float) -> Element:
    """An empty picture with its text for screen readers."""
    return tag(
        "svg",
        tag("title", description),
        role="img",
        aria_label=description,
        viewBox=f"0 0 {_WIDTH} {height:.0f}",
        width=_WIDTH,
    )


class Tick(NamedTuple):
    """A value that gets a label."""

    at: float
    text: str


class Scale(Protocol):
    """A scale that maps values to places between 0 and 1."""

    @property
    def ticks(self) -> Sequence[Tick]:
        """The labels, with their places."""
        ...

    def place(self, value: float) -> float:
        """The place of a value."""
        ...


def width_for(span: float, most: int) -> int:
    """The least of WIDTHS of which at most `most` cover a span of time; the greatest if all are too small."""
    return next((width for width in WIDTHS if span / width <= most), WIDTHS[-1])


@dataclass(frozen=True, slots=True)
class Times:
    """Moments from `first` to `last`, in microseconds since 1970, UTC."""

    first: float
    last: float

    def place(self, value: float) -> float:
        """The place of a moment."""
        return (value - self.first) / max(1.0, self.last - self.first)

    @property
    def ticks(self) -> list[Tick]:
        """Labels at round moments."""
        step = width_for(self.last - self.first, _LABELS)
        begin = math.ceil(self.first / step) * step
        return [Tick(self.place(at), _spelled(at, step)) for at in range(begin, int(self.last) + 1, step)]


@dataclass(frozen=True, slots=True)
class Counts:
    """A linear scale from 0 to a round number that is at least `most`."""

    most: float

    @property
    def _step(self) -> float:
        rough = max(1.0, self.most) / 4
        power = 10.0 ** math.floor(math.log10(rough))
        steps = (power * part for part in (1, 2, 2.5, 5, 10))
        return next(step for step in steps if step >= rough and step.is_integer())

    @property
    def _top(self) -> float:
        return self._step * max(1, math.ceil(self.most / self._step))

    def place(self, value: float) -> float:
        """The place of a number."""
        return value / self._top

    @property
    def ticks(self) -> list[Tick]:
        """Labels at round numbers."""
        return [
            Tick(self.place(self._step * at), count(self._step * at)) for at in range(round(self._top / self._step) + 1)
        ]


@dataclass(frozen=True, slots=True)
class Lengths:
    """A logarithmic scale of lengths of time (microseconds); values below its lowest label are at the bottom."""

    least: float
    most: float

    @property
    def _bounds(self) -> tuple[float, float]:
        below = [bound for bound in _LENGTHS[:-1] if bound <= max(1.0, self.least)]
        above = [bound for bound in _LENGTHS if bound >= self.most and bound > below[-1]]
        return math.log(below[-1]), math.log(above[0] if above else self.most)

    def place(self, value: float) -> float:
        """The place of a length."""
        low, high = self._bounds
        return min(1.0, max(0.0, (math.log(max(1.0, value)) - low) / (high - low)))

    @property
    def ticks(self) -> list[Tick]:
        """Labels at round lengths."""
        low, high = self._bounds
        return [Tick(self.place(bound), _round(bound)) for bound in _LENGTHS if low <= math.log(bound) <= high]


def _round(microseconds: int) -> str:
    if microseconds < 1_000:  # noqa: PLR2004 - a millisecond
        return f"{microseconds} \N{MICRO SIGN}s"
    exact = {_MINUTE: "1 min", _HOUR: "1 h", 10**7: "10 s", 10**6: "1 s"}
    return exact.get(microseconds) or length(microseconds).replace(".00", "").replace(".0", "")


def _spelled(at: int, step: int) -> str:
    when = instant(at)
    if step >= _DAY or when - when.replace(hour=0, minute=0, second=0) < timedelta(microseconds=1):
        return f"{when:%d %b}"
    return f"{when:%H:%M}" if step >= _MINUTE else f"{when:%H:%M:%S}"
