"""Who acts: the name, the time and the randomness of one process, handed in so that steps are repeatable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from astyqueue import ids
from astyqueue.ids import Id


@dataclass(frozen=True, slots=True)
class Process:
    """A party to the protocol. `now` is the store's time in microseconds, as well as this process knows it."""

    name: str
    now: Callable[[], int]
    id_at: Callable[[int], Id] = ids.at
    nonce: Callable[[], bytes] = ids.nonce
