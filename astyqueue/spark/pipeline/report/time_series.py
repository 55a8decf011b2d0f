"""Figures over time: counts and percentiles of the values in each time slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from astyqueue.spark.pipeline.report.charts import Line, Times, width_for
from astyqueue.spark.pipeline.report.data import Figures
from astyqueue.spark.pipeline.report.reader import Numbers
from astyqueue.spark.pipeline.schemas import PERCENTILES

#: Time slices at most, about as many as a chart can show.
_SLICES = 120
#: With at most this many slices, the first and the last are always drawn.
_FEW = 12
_STYLES = ("one", "two", "three")


@dataclass(frozen=True, slots=True)
class TimeSlices:
    """A period in `number` time slices of the same `width`, the first from `first` on; microseconds."""

    first: int
    width: int
    number: int

    @classmethod
    def of(cls, first: float, last: float) -> TimeSlices:
        """At most about 120 slices of a round width that cover a period."""
        width = width_for(last - first, _SLICES)
        begin = int(first // width * width)
        return cls(begin, width, int((last - begin) // width) + 1)

    @property
    def times(self) -> Times:
        """The axis from the start of the first slice to the end of the last."""
        return Times(self.first, self.first + self.width * self.number)

    def middles(self) -> list[float]:
        """The middle of each slice, at which its value is drawn."""
        return [self.first + self.width * (place + 0.5) for place in range(self.number)]

    def counted(self, moments: Numbers) -> list[int]:
        """The number of moments in each slice."""
        return [len(group) for group in self.grouped(moments, moments)]

    def grouped(self, moments: Numbers, values: Numbers) -> list[Numbers]:
        """The values of each slice, by the moments that belong to them; unknown values are left out."""
        known = ~(np.isnan(moments) | np.isnan(values))
        places = ((moments[known] - self.first) // self.width).astype(np.int64)
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(1, self.number))
        return np.split(values[known][order], ends)


def throughput(figures: Figures, slices: TimeSlices) -> list[Line]:
    """The numbers of messages sent and done and of attempts failed in each slice."""
    messages, attempts = figures.messages, figures.attempts
    moments = {
        ("sent", "two"): messages.numbers("sent"),
        ("done", "one"): messages.numbers("settled")[messages.names("state").among("done")],
        ("failed", "fail"): attempts.numbers("ended")[attempts.names("outcome").among("failed", "dead", "expired")],
    }
    counted = {line: slices.counted(found) for line, found in moments.items() if len(found)}
    return [
        Line(name, style, list(zip(slices.middles(), _whole(found), strict=True)))
        for (name, style), found in counted.items()
    ]


def _whole(counts: Sequence[int]) -> list[float | None]:
    """The counts, without a first or last that is below its neighbour: its slice may be covered in part only."""
    shown: list[float | None] = [*counts]
    for edge, beside in ((0, 1), (-1, -2)) if len(counts) > _FEW else ():
        shown[edge] = counts[edge] if counts[edge] >= counts[beside] else None
    return shown


def lengths(figures: Figures, which: str, slices: TimeSlices) -> list[Line]:
    """The percentiles of a length (wait, run or end) over time."""
    table, moment, column = {
        "wait": (figures.attempts, "ended", "waited"),
        "run": (figures.attempts, "ended", "ran"),
        "end": (figures.messages, "settled", "took"),
    }[which]
    groups = slices.grouped(table.numbers(moment), table.numbers(column))
    parts = [_quantiles(group) for group in groups]
    return [
        Line(
            name,
            _STYLES[place],
            [(at, None if found is None else found[place]) for at, found in zip(slices.middles(), parts, strict=True)],
        )
        for place, (name, _) in enumerate(PERCENTILES)
    ]


def _quantiles(group: Numbers) -> Sequence[float] | None:
    return [float(part) for part in np.quantile(group, [share for _, share in PERCENTILES])] if len(group) else None
