"""Figures over time: what falls into the same stretch is counted, or summed up, together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from astyqueue.spark.pipelines.outputs import PARTS
from astyqueue.spark.pipelines.report.columns import Numbers
from astyqueue.spark.pipelines.report.figures import Figures
from astyqueue.spark.pipelines.report.plots import Line
from astyqueue.spark.pipelines.report.scales import Times, width_for

#: So many stretches at most, which is about what a picture can show.
_STRETCHES = 120
#: Of fewer, none can be spared.
_FEW = 12
_STYLES = ("one", "two", "three")


@dataclass(frozen=True, slots=True)
class Stretches:
    """A period in stretches of one length: the first begins at `first`, and there are `number`; microseconds."""

    first: int
    width: int
    number: int

    @classmethod
    def of(cls, first: float, last: float) -> Stretches:
        """Those that a period falls into."""
        width = width_for(last - first, _STRETCHES)
        begin = int(first // width * width)
        return cls(begin, width, int((last - begin) // width) + 1)

    @property
    def times(self) -> Times:
        """From the first to the end of the last."""
        return Times(self.first, self.first + self.width * self.number)

    def middles(self) -> list[float]:
        """The moment that stands for each stretch."""
        return [self.first + self.width * (place + 0.5) for place in range(self.number)]

    def counted(self, moments: Numbers) -> list[int]:
        """How many moments fall into each."""
        return [len(group) for group in self.grouped(moments, moments)]

    def grouped(self, moments: Numbers, values: Numbers) -> list[Numbers]:
        """The values of each, by the moments that belong to them; what is not known is left out."""
        known = ~(np.isnan(moments) | np.isnan(values))
        places = ((moments[known] - self.first) // self.width).astype(np.int64)
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(1, self.number))
        return np.split(values[known][order], ends)


def throughput(figures: Figures, stretches: Stretches) -> list[Line]:
    """How many were sent, done and failed in each stretch."""
    messages, attempts = figures.messages, figures.attempts
    moments = {
        ("sent", "two"): messages.numbers("sent"),
        ("done", "one"): messages.numbers("settled")[messages.names("state").among("done")],
        ("failed", "fail"): attempts.numbers("ended")[attempts.names("outcome").among("failed", "dead", "expired")],
    }
    counted = {line: stretches.counted(found) for line, found in moments.items() if len(found)}
    return [Line(name, style, list(zip(stretches.middles(), _whole(found), strict=True))) for (name, style), found in counted.items()]


def _whole(counts: Sequence[int]) -> list[float | None]:
    """The counts of many stretches without a first or last that is lower than its neighbour: it may be half a stretch, and no lull."""
    shown: list[float | None] = [*counts]
    for edge, beside in ((0, 1), (-1, -2)) if len(counts) > _FEW else ():
        shown[edge] = counts[edge] if counts[edge] >= counts[beside] else None
    return shown


def lengths(figures: Figures, which: str, stretches: Stretches) -> list[Line]:
    """The percentiles of waiting, running or taking, over time."""
    table, moment, column = {
        "wait": (figures.attempts, "ended", "waited"),
        "run": (figures.attempts, "ended", "ran"),
        "end": (figures.messages, "settled", "took"),
    }[which]
    groups = stretches.grouped(table.numbers(moment), table.numbers(column))
    parts = [_quantiles(group) for group in groups]
    return [
        Line(
            name,
            _STYLES[place],
            [(at, None if found is None else found[place]) for at, found in zip(stretches.middles(), parts, strict=True)],
        )
        for place, (name, _) in enumerate(PARTS)
    ]


def _quantiles(group: Numbers) -> Sequence[float] | None:
    return [float(part) for part in np.quantile(group, [share for _, share in PARTS])] if len(group) else None
