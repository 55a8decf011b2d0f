"""Speculative execution: when to send a request that waits for its answer to a second node too.

It saves reads and sends from a frozen node. On servers that are only overloaded it would double or triple the load. So
there is a budget, the delay follows the usual duration of requests, and while more than one node is slow nothing is
sent twice.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from cassandra.policies import SpeculativeExecutionPlan, SpeculativeExecutionPolicy
from cassandra.pool import Host
from cassandra.query import Statement

from astyqueue.clock import Clock
from astyqueue.units import BEGINNING, SECOND, MonotonicUs

#: The delay before a second node, in microseconds: the 99th percentile of recent requests, between the least and the
#: most; `_USUAL` until enough of them are known.
_USUAL: Final = 150_000
_LEAST: Final = 100_000
_MOST: Final = 500_000
#: The number of recent requests in that percentile, and of answers after which it is computed again.
_REMEMBERED: Final = 500
_LOOKED_AT_EACH: Final = 50
#: The budget: one request in this number may be sent twice. Savings may be spent at once, as when a node freezes.
_ONE_IN: Final = 10
_MOST_SAVED: Final = 20 * _ONE_IN
#: The most nodes that a request is sent to.
_NODES: Final = 3
#: A node is slow when it answered more than this share of its requests late, as a moving average with this weight.
_SLOW_SHARE: Final = 0.3
_WEIGHT: Final = 0.1
#: How long the average of a node is valid after its last answer.
_FRESH: Final = 10 * SECOND


class Counters(NamedTuple):
    """The requests of one session, and how often one was sent to a further node because an answer took long."""

    requests: int = 0
    speculations: int = 0


@dataclass(slots=True)
class _Seen:
    """The late answers of a node, as a moving share of the requests sent to it first, and the time of the last one."""

    late: float = 0.0
    at: MonotonicUs = BEGINNING


class Speculation(SpeculativeExecutionPolicy):  # type: ignore[misc] # the driver has no types
    """The statistics and the budget of one session, shared by its threads."""

    def __init__(self, clock: Clock) -> None:
        """Start with a full budget and no statistics."""
        self._clock = clock
        self._guard = threading.Lock()
        self._saved = _MOST_SAVED
        self._took: deque[int] = deque(maxlen=_REMEMBERED)
        self._answered = 0
        self._patience = _USUAL
        self._nodes: dict[Host, _Seen] = {}
        self._requests = 0
        self._speculations = 0

    @property
    def counters(self) -> Counters:
        """The number of requests and of speculative ones so far."""
        return Counters(self._requests, self._speculations)

    def new_plan(self, keyspace: str | None, statement: Statement) -> SpeculativeExecutionPlan:  # noqa: ARG002 - the driver's own
        """The driver calls this for each idempotent request."""
        with self._guard:
            self._saved = min(self._saved + 1, _MOST_SAVED)
        return _Plan(self, self._clock)

    def patience(self) -> int | None:
        """The delay in microseconds before a request may be sent to a further node; None if it must not be now."""
        with self._guard:
            return self._patience if self._saved >= _ONE_IN and self._slow_nodes() <= 1 else None

    def asked(self) -> None:
        """Count a request."""
        with self._guard:
            self._requests += 1

    def asked_again(self) -> None:
        """Count a request to a further node, and charge it to the budget."""
        with self._guard:
            self._speculations += 1
            self._saved -= _ONE_IN

    def answered(self, first: Host, took: int, *, in_time: bool) -> bool:
        """Record the duration of a request that was sent to `first` first; whether that node alone is slow now."""
        with self._guard:
            self._took.append(took)
            self._answered += 1
            if self._answered % _LOOKED_AT_EACH == 0:
                usual = sorted(self._took)[len(self._took) * 99 // 100]
                self._patience = min(max(usual, _LEAST), _MOST)
            seen = self._nodes.setdefault(first, _Seen())
            seen.late += _WEIGHT * ((not in_time) - seen.late)
            seen.at = self._clock.monotonic()
            return not in_time and seen.late > _SLOW_SHARE and self._slow_nodes() == 1

    def _slow_nodes(self) -> int:
        since = self._clock.monotonic() - _FRESH
        return sum(seen.late > _SLOW_SHARE and seen.at > since for seen in self._nodes.values())


class _Plan(SpeculativeExecutionPlan):  # type: ignore[misc] # the driver has no types
    """The plan of one request; the driver calls it at the beginning, and after each further node."""

    def __init__(self, speculation: Speculation, clock: Clock) -> None:
        self._speculation = speculation
        self._clock = clock
        self._left = _NODES - 1
        self._due: MonotonicUs | None = None

    def next_execution(self, host: Host | None) -> float:  # noqa: ARG002 - the driver's own
        """The seconds until a further node, or -1. The driver also calls it for each page, when nothing was sent."""
        if self._due is not None and self._clock.monotonic() >= self._due:
            self._speculation.asked_again()
            self._left -= 1
        patience = self._speculation.patience() if self._left else None
        self._due = None if patience is None else self._clock.monotonic() + patience
        return -1 if patience is None else patience / SECOND
