"""Figures of several runs: their median, least and greatest, as JSON and as a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Final

#: What one run brought, by name; None where a store has no such thing.
Run = Mapping[str, float | None]
Figure = dict[str, float | list[float]]

_DIGITS: Final = 4
_WHOLE: Final = 1_000


def figure(runs: Iterable[float | None]) -> Figure | None:
    """The median of the runs, the least and the greatest of them, and each; None if there is nothing to measure."""
    values = [rounded(run) for run in runs if run is not None]
    if not values:
        return None
    return {"median": rounded(statistics.median(values)), "min": min(values), "max": max(values), "runs": values}


def figures(runs: list[Run]) -> dict[str, Figure | None]:
    """A figure for each name that the runs have."""
    return {name: figure(run[name] for run in runs) for name in runs[0]}


def rounded(number: float) -> float:
    """A number with as many digits as can mean anything."""
    return round(number) if number >= _WHOLE else round(number, _DIGITS)


def table(named: Mapping[str, Figure | None]) -> str:
    """The figures as a table, a line each."""
    lines = [f"{'':<32}{'median':>12}{'min':>12}{'max':>12}"]
    for name, one in named.items():
        cells = [f"{one[part]:>12,}" for part in ("median", "min", "max")] if one else [f"{'-':>12}"] * 3
        lines.append(f"{name:<32}{''.join(cells)}")
    return "\n".join(lines)


def percentile(samples: list[float], percent: int) -> float:
    """The sample that this part of all samples does not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
