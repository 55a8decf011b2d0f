"""How many messages were in flight at a fault."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from tests.ring.observations import Holding
from tests.ring.orchestrator import Befallen
from tests.ring.schedule import OF_WORKERS


def peak(befallen: Befallen, holdings: Iterable[Holding]) -> int:
    """The largest number of messages in flight at a fault.

    Of a fault of a worker: what that worker had when the fault began. Of any other: the most that all workers together
    had at any moment of it.
    """
    if befallen.fault.kind in OF_WORKERS:
        return sum(
            each.journal == befallen.victim and each.claimed <= befallen.began < each.settled for each in holdings
        )
    during = [each for each in holdings if each.claimed < befallen.until and each.settled > befallen.began]
    changes = [change for each in during for change in ((each.claimed, 1), (each.settled, -1))]
    return max(accumulate(step for _, step in sorted(changes)), default=0)
