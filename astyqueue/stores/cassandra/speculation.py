"""When a request that waits for its answer is asked of a second node too.

That saves reads and sends from a node that is frozen. On servers that are merely overloaded it would make everything worse, for
each request would become two or three. So there is a budget, the patience grows with what requests usually take, and when more
than one node is slow, the trouble is not one node's and nothing is asked twice.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from cassandra.policies import SpeculativeExecutionPlan, SpeculativeExecutionPolicy
from cassandra.pool import Host
from cassandra.query import Statement

from astyqueue.clock import SECOND, Clock

#: How long to wait for the first node, in microseconds: as long as 99 of 100 requests took lately, within bounds; and until enough
#: of them are known.
_USUAL: Final = 150_000
_LEAST: Final = 100_000
_MOST: Final = 500_000
#: So many of the last requests are looked at, each time so many more have been answered.
_REMEMBERED: Final = 500
_LOOKED_AT_EACH: Final = 50
#: One request in so many may be asked twice. What was saved up may be spent at once, as when a node freezes under load.
_ONE_IN: Final = 10
_MOST_SAVED: Final = 20 * _ONE_IN
#: At how many nodes a request may be under way.
_NODES: Final = 3
#: A node is slow when this share of the requests that it was asked first was not answered in time, each new one weighing so much.
_SLOW_SHARE: Final = 0.3
_WEIGHT: Final = 0.1
#: What was found out about a node counts for so long.
_FRESH: Final = 10 * SECOND


class Counters(NamedTuple):
    """What one session has asked: requests, and how often one of them was asked of a further node because an answer took long."""

    requests: int = 0
    speculations: int = 0


@dataclass(slots=True)
class _Seen:
    """How a node did as the first that was asked."""

    late: float = 0.0
    at: int = 0


class Speculation(SpeculativeExecutionPolicy):  # type: ignore[misc] # the driver has no types
    """What one session knows of its requests; all of its threads share it."""

    def __init__(self, clock: Clock) -> None:
        """Nothing was asked yet."""
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
        """How much was asked so far."""
        return Counters(self._requests, self._speculations)

    def new_plan(self, keyspace: str | None, statement: Statement) -> SpeculativeExecutionPlan:  # noqa: ARG002 - the driver's own
        """The driver asks for one for each request that may be asked twice."""
        with self._guard:
            self._saved = min(self._saved + 1, _MOST_SAVED)
        return _Plan(self, self._clock)

    def patience(self) -> int | None:
        """After how many microseconds a request may be asked of a further node; None if not at all now."""
        with self._guard:
            return self._patience if self._saved >= _ONE_IN and self._slow_nodes() <= 1 else None

    def asked(self) -> None:
        """A request was sent."""
        with self._guard:
            self._requests += 1

    def asked_again(self) -> None:
        """One was sent to a further node."""
        with self._guard:
            self._speculations += 1
            self._saved -= _ONE_IN

    def answered(self, first: Host, took: int, *, in_time: bool) -> bool:
        """How long a request took that `first` was asked before all others; whether that node alone is slow now."""
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
    """For one request: the driver asks at its beginning, and each time it has asked a further node."""

    def __init__(self, speculation: Speculation, clock: Clock) -> None:
        self._speculation = speculation
        self._clock = clock
        self._left = _NODES - 1
        self._due: int | None = None

    def next_execution(self, host: Host | None) -> float:  # noqa: ARG002 - the driver's own
        """In how many seconds to ask a further node, or -1. A plan is asked anew for each page, too: nothing was sent then."""
        if self._due is not None and self._clock.monotonic() >= self._due:
            self._speculation.asked_again()
            self._left -= 1
        patience = self._speculation.patience() if self._left else None
        self._due = None if patience is None else self._clock.monotonic() + patience
        return -1 if patience is None else patience / SECOND
