"""The identity, clock and randomness of one process, passed in so that steps are reproducible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from astyqueue import ids
from astyqueue.ids import Id


@dataclass(frozen=True, slots=True)
class Client:
    """A process that takes part in the protocol. `now`: its estimate of the store's time, in microseconds."""

    name: str
    now: Callable[[], int]
    id_at: Callable[[int], Id] = ids.at
    nonce: Callable[[], bytes] = ids.nonce
