"""What is aimed at on SQLite with synchronous=full, and whether the runs reached it.

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

    def judged(self, runs: list[Run]) -> dict[str, object] | None:
        """What the median of the runs comes to, and whether it is within the bound; None where there is nothing to measure."""
        told = [[run[name] for name in self.needs] for run in runs]
        if any(None in numbers for numbers in told):
            return None
        measured = statistics.median(self.measure(*numbers) for numbers in told)
        reached = measured <= self.bound if self.most else measured >= self.bound
        return {"aim": self.text, "measured": rounded(measured), "bound": self.bound, "reached": reached}


def _itself(number: float) -> float:
    return number


AIMS: Final = (
    Aim("send_many reaches 0.6 of bare inserts", ("send_per_s", "raw_send_per_s"), lambda sent, raw: sent / raw, 0.6),
    Aim("a dispatcher drains 40 000 messages a second", ("drain_per_s",), _itself, 40_000),
    Aim("at most 15 microseconds of processor time a message", ("worker_cpu_us_per_message",), _itself, 15, most=True),
    Aim(
        "p50 from send to handler: two writes of the store and at most 1 ms",
        ("latency_p50_ms", "store_write_ms"),
        lambda latency, write: latency - 2 * write,
        1,
        most=True,
    ),
    Aim("p50 across processes: at most 10 ms", ("cross_process_latency_p50_ms",), _itself, 10, most=True),
)


def judged(runs: list[Run]) -> list[dict[str, object]]:
    """Each aim that could be measured here."""
    return [verdict for aim in AIMS if (verdict := aim.judged(runs)) is not None]


def told(verdicts: list[dict[str, object]]) -> str:
    """The verdicts for people, a line each."""
    return "\n".join(
        f"{'reached' if verdict['reached'] else 'NOT REACHED':<12}{verdict['aim']}: {verdict['measured']} (bound {verdict['bound']})"
        for verdict in verdicts
    )
