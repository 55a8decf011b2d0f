"""The identity, clock and randomness of one process, passed in so that steps are reproducible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.observe.events import OutcomeReadBack
from astyqueue.observe.observers import UNOBSERVED, Observers


@dataclass(frozen=True, slots=True)
class Client:
    """A process that takes part in the protocol. `now`: its estimate of the store's time, in microseconds.

    `observers` get what it finds.
    """

    name: str
    now: Callable[[], int]
    id_at: Callable[[int], Id] = ids.at
    nonce: Callable[[], bytes] = ids.nonce
    observers: Observers = UNOBSERVED

    def read_back(self, row: str, operation: str, *, applied: bool) -> bool:
        """Notify the observers of what reading a row has shown of a commit of unknown outcome; returns `applied`."""
        if self.observers.on:
            self.observers.notify(OutcomeReadBack(row, operation, applied))
        return applied
