"""The targets (on SQLite with synchronous=full), and whether the runs reached them.

What depends on the disk is compared within each run, because the disk's speed drifts between them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.figures import Run, rounded


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

#: What is aimed at, by store; a ring is a Cassandra of several nodes.
AIMS: Final = {
    "sqlite": _ON_SQLITE,
    "memory": _ON_SQLITE,
    "cassandra": (
        *_ON_CASSANDRA,
        Aim("a dispatcher drains 15 000 messages a second", ("drain_per_s",), _itself, 15_000),
    ),
    "ring": (*_ON_CASSANDRA, Aim("a dispatcher drains 5 000 messages a second", ("drain_per_s",), _itself, 5_000)),
}


def checked(aims: tuple[Aim, ...], runs: list[Run]) -> list[dict[str, object]]:
    """Each of these aims that could be measured here."""
    return [verdict for aim in aims if (verdict := aim.checked(runs)) is not None]


def table(verdicts: list[dict[str, object]]) -> str:
    """The verdicts as a table, a line each."""
    return "\n".join(
        f"{'reached' if verdict['reached'] else 'NOT REACHED':<12}{verdict['aim']}: {verdict['measured']} "
        f"(bound {verdict['bound']})"
        for verdict in verdicts
    )
