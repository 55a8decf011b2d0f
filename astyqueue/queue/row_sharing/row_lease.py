"""Row leases: several processes share the rows of a queue instead of racing for each message.

A commit that claims names its process in the row's header: that is the row lease, taken and extended at no extra cost.
It reduces contention and is not needed for safety. Other processes leave the row alone while its header changes; when
the owner leaves work undone, or the header does not change by *their own* monotonic clock, they take the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from astyqueue.protocol.layout.columns import Header
from astyqueue.units import BEGINNING, SECOND, MonotonicUs

#: A row whose header did not change for this time no longer has an owner.
ABANDONED: Final = 5 * SECOND
#: Work that is due for this time, in a row whose header did not change as long, may be claimed by any process; the
#: shorter time is for rows that no longer have an owner. Each process multiplies it by its own `patience`, so that not
#: all come at once.
_PATIENCE: Final = 3 * SECOND // 10
_PATIENCE_ABANDONED: Final = SECOND // 50
#: A requested row is tried as soon as its header did not change for this time.
_PAUSE_SEEN: Final = SECOND // 100


@dataclass(slots=True)
class RowLease:
    """One process's knowledge of a row's owner, by the header as last read.

    `patience` (1 to 2) differs between processes. `unchanged_since`, and `requested_until` (this process requested the
    row from its owner), are monotonic moments.
    """

    me: str
    patience: float
    value: bytes | None = None
    owner: str = ""
    unchanged_since: MonotonicUs = BEGINNING
    requested_until: MonotonicUs = BEGINNING

    def update(self, value: bytes | None, header: Header | None, at: MonotonicUs) -> bool:
        """Record the header at this monotonic moment; returns whether it changed since the last call."""
        changed = value != self.value
        if changed:
            self.value, self.unchanged_since = value, at
            self.owner = header.owner if header else ""
        return changed

    @property
    def owned_by_another(self) -> bool:
        """Whether another process owns the row."""
        return self.owner not in ("", self.me)

    def active(self, at: MonotonicUs) -> bool:
        """Whether its owner changed the header within the last five seconds."""
        return bool(self.owner) and at - self.unchanged_since < ABANDONED

    def left_unchanged(self, at: MonotonicUs) -> bool:
        """Whether the header did not change for as long as this process leaves due work to the owner."""
        return at - self.unchanged_since >= self._left_to_owner(at)

    def _left_to_owner(self, at: MonotonicUs) -> int:
        """How long this process leaves due work to the owner, in microseconds."""
        if not self.owned_by_another:
            return 0
        return int(self.patience * (_PATIENCE if self.active(at) else _PATIENCE_ABANDONED))

    def may_claim(self, due: int, now: int, at: MonotonicUs) -> bool:
        """Whether this process may claim work that is due since the moment `due`."""
        left, unchanged = self._left_to_owner(at), at - self.unchanged_since
        return (due <= now - left and unchanged >= left) or (at < self.requested_until and unchanged >= _PAUSE_SEEN)

    def time_until_claim(self, due: int, now: int, at: MonotonicUs) -> int:
        """The time until this process may claim that work, if the owner does nothing."""
        if at < self.requested_until:
            return _PAUSE_SEEN
        left = self._left_to_owner(at)
        return max(due + left - now, self.unchanged_since + left - at, _PAUSE_SEEN)
