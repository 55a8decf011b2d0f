"""Where a value is in a picture, and which values get a label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

from astyqueue.clock import SECOND, instant
from astyqueue.spark.pipelines.report.wording import count, length

_MINUTE: Final = 60 * SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: Widths of what is counted together, and distances of labels.
WIDTHS: Final = (
    *(SECOND * part for part in (1, 2, 5, 10, 30)),
    *(_MINUTE * part for part in (1, 2, 5, 10, 30)),
    *(_HOUR * part for part in (1, 2, 6, 12)),
    *(_DAY * part for part in (1, 2, 7, 14, 28)),
)
_LABELS: Final = 7


class Tick(NamedTuple):
    """A value that gets a label."""

    at: float
    text: str


class Scale(Protocol):
    """From values to places between 0 and 1."""

    @property
    def ticks(self) -> Sequence[Tick]:
        """Values that get labels, and the places they are at."""
        ...

    def place(self, value: float) -> float:
        """Where a value is."""
        ...


def width_for(span: float, most: int) -> int:
    """The least of the usual widths of which at most so many make up a span of time."""
    return next((width for width in WIDTHS if span / width <= most), WIDTHS[-1])


@dataclass(frozen=True, slots=True)
class Times:
    """Moments from `first` to `last`, in microseconds since 1970, UTC."""

    first: float
    last: float

    def place(self, value: float) -> float:
        """Where a moment is."""
        return (value - self.first) / max(1.0, self.last - self.first)

    @property
    def ticks(self) -> list[Tick]:
        """Round moments."""
        step = width_for(self.last - self.first, _LABELS)
        begin = math.ceil(self.first / step) * step
        return [Tick(self.place(at), _spelled(at, step)) for at in range(begin, int(self.last) + 1, step)]


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers from nothing to a round one that is not less than `most`."""

    most: float

    @property
    def _step(self) -> float:
        rough = max(1.0, self.most) / 4
        power = 10.0 ** math.floor(math.log10(rough))
        return max(1.0, next(power * part for part in (1, 2, 2.5, 5, 10) if power * part >= rough))

    @property
    def _top(self) -> float:
        return self._step * max(1, math.ceil(self.most / self._step))

    def place(self, value: float) -> float:
        """Where a number is."""
        return value / self._top

    @property
    def ticks(self) -> list[Tick]:
        """Round numbers."""
        return [Tick(self.place(self._step * at), count(self._step * at)) for at in range(round(self._top / self._step) + 1)]


#: Lengths that get labels where lengths grow by factors.
_LENGTHS: Final = (*(10**power for power in range(8)), _MINUTE, 10 * _MINUTE, _HOUR, 10 * _HOUR, 4 * _DAY, 40 * _DAY)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of time from a tenth to ten times as long and so on, in microseconds; what is less than `least` is at the bottom."""

    least: float
    most: float

    @property
    def _bounds(self) -> tuple[float, float]:
        below = [bound for bound in _LENGTHS if bound <= max(1.0, self.least)]
        above = [bound for bound in _LENGTHS if bound >= self.most and bound > below[-1]]
        return math.log(below[-1]), math.log(above[0] if above else self.most)

    def place(self, value: float) -> float:
        """Where a length is."""
        low, high = self._bounds
        return min(1.0, max(0.0, (math.log(max(1.0, value)) - low) / (high - low)))

    @property
    def ticks(self) -> list[Tick]:
        """Round lengths."""
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
