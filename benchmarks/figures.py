"""Figures of several runs, as JSON and as a table: their median, least and greatest, and whether they reach an aim.

What depends on the disk is compared within each run, because the disk's speed drifts between them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Aim:
    """A bound on something worked out of each run; `most` is an upper bound, otherwise it is a lower one."""

    text: str
    needs: tuple[str, ...]
    measure: Callable[..., float]
    bound: float
    most: bool = False

    def checked(self, runs: list[Run]) -> dict[str, object] | None:
        """The median of the runs, and whether it is within the bound; None where there is nothing to measure."""
        table = [[run[name] for name in self.needs] for run in runs]
        if any(None in numbers for numbers in table):
            return None
        measured = statistics.median(self.measure(*numbers) for numbers in table)
        reached = measured <= self.bound if self.most else measured >= self.bound
        return {"aim": self.text, "measured": rounded(measured), "bound": self.bound, "reached": reached}


def _itself(number: float) -> float:
    return number


_ACROSS: Final = ("cross_process_latency_p50_ms",)
_SENT: Final = ("send_per_s", "raw_send_per_s")


def _part(sent: float, raw: float) -> float:
    return sent / raw


_ON_SQLITE: Final = (
    Aim("send_many reaches 0.6 of bare inserts", _SENT, _part, 0.6),
    Aim("a dispatcher drains 40 000 messages a second", ("drain_per_s",), _itself, 40_000),
    Aim("at most 15 microseconds of processor time a message", ("worker_cpu_us_per_message",), _itself, 15, most=True),
    Aim(
        "p50 from send to handler: two writes of the store and at most 1 ms",
        ("latency_p50_ms", "store_write_ms"),
        lambda latency, write: latency - 2 * write,
        1,
        most=True,
    ),
    Aim("p50 across processes: at most 10 ms", _ACROSS, _itself, 10, most=True),
)
_ON_CASSANDRA: Final = (
    Aim("send_many reaches 0.7 of bare batches", _SENT, _part, 0.7),
    Aim("p50 across processes within a minute of traffic: at most 20 ms", _ACROSS, _itself, 20, most=True),
)

#: What is aimed at, on SQLite with synchronous=full, by store; a ring is a Cassandra of several nodes.
AIMS: Final = {
    "sqlite": _ON_SQLITE,
    "memory": _ON_SQLITE,
    "cassandra": (
        *_ON_CASSANDRA,
        Aim("a dispatcher drains 15 000 messages a second", ("drain_per_s",), _itself, 15_000),
    ),
    "ring": (*_ON_CASSANDRA, Aim("a dispatcher drains 5 000 messages a second", ("drain_per_s",), _itself, 5_000)),
}


def aims_checked(aims: tuple[Aim, ...], runs: list[Run]) -> list[dict[str, object]]:
    """Each of these aims that could be measured here."""
    return [verdict for aim in aims if (verdict := aim.checked(runs)) is not None]


def verdict_table(verdicts: list[dict[str, object]]) -> str:
    """The verdicts as a table, a line each."""
    return "\n".join(
        f"{'reached' if verdict['reached'] else 'NOT REACHED':<12}{verdict['aim']}: {verdict['measured']} "
        f"(bound {verdict['bound']})"
        for verdict in verdicts
    )
