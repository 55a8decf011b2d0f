"""Whether a process claims nothing until all its leases have ended, because a suspect must be claimed alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from astyqueue.clock import Clock
from astyqueue.queue.row_sharing.row_state import RowState
from astyqueue.units import BEGINNING, SECOND, MonotonicUs

#: The pause between two looks whether the suspect still waits.
_PAUSE: Final = SECOND


@dataclass(slots=True)
class SuspectWait:
    """What one process knows of a suspect; only the leader uses it.

    A process that has it claims nothing beside it. One that cannot claim it, because it has other leases, looks once a
    second whether another process has: its own leases may last for hours.
    """

    clock: Clock
    _waits: bool = False
    _row: RowState | None = None
    _next_look: MonotonicUs = BEGINNING

    def scanned(self, row: RowState, *, suspect: bool, claimed: bool) -> None:
        """Record a scan of a row: whether there was a suspect, and whether this process has it now."""
        self._waits, self._row = suspect, None if claimed else row
        self._next_look = self.clock.monotonic() + _PAUSE

    def forbids(self, leased_count: int) -> bool:
        """Whether nothing is to be claimed now, by a process with this number of leased messages."""
        if leased_count == 0:
            self._waits = False
        return self._waits and (self._row is None or self.clock.monotonic() < self._next_look)

    def row_to_look_into(self) -> RowState | None:
        """The suspect's row, the only one to claim from now, to see whether it still waits there; None: any row."""
        if not self._waits:
            return None
        self._next_look = self.clock.monotonic() + _PAUSE
        return self._row
