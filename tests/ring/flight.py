"""How many messages were in flight at a fault."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from tests.ring.observations import Holding
from tests.ring.orchestrator import Befallen
from tests.ring.schedule import OF_WORKERS


def peak(befallen: Befallen, holdings: Iterable[Holding]) -> int:
    """In the hands of the worker that it befell, at that moment; or, if it befell the store, the most in all hands at any moment of it."""
    if befallen.fault.kind in OF_WORKERS:
        return sum(
            each.journal == befallen.victim and each.claimed <= befallen.began < each.settled for each in holdings
        )
    during = [each for each in holdings if each.claimed < befallen.until and each.settled > befallen.began]
    changes = [change for each in during for change in ((each.claimed, 1), (each.settled, -1))]
    return max(accumulate(step for _, step in sorted(changes)), default=0)
