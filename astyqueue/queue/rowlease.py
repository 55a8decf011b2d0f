"""Who works in a row, so that several processes share the rows of a queue instead of racing for each message.

A commit that claims names its process in the row's header: that is the row lease, taken and extended at no extra cost. It
is courtesy, not safety. Others leave the row alone while its header moves; when the owner lets work lie there, or its
header stands still by *their own* monotonic clock, they take it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.protocol.columns import Header

#: A header that stood so long has no owner any more.
ABANDONED: Final = 5 * SECOND
#: Work that lies so long, in a row that stood still as long, is anybody's; and so long where the owner went away before.
#: Each process is more patient than that by a part of its own, so that they do not all come at once.
_PATIENCE: Final = 3 * SECOND // 10
_PATIENCE_ABANDONED: Final = SECOND // 50
#: A row that was asked for is tried as soon as its header stood so long.
_PAUSE_SEEN: Final = SECOND // 100


@dataclass(slots=True)
class RowLease:
    """What one process knows of a row's owner. `patience` (1 to 2) tells processes apart; `since` is monotonic."""

    me: str
    patience: float
    value: bytes | None = None
    owner: str = ""
    since: int = 0
    asked_until: int = 0

    def seen(self, value: bytes | None, header: Header | None, at: int) -> bool:
        """Take note of the header as it stands at this monotonic moment; whether it changed since it was last seen."""
        changed = value != self.value
        if changed:
            self.value, self.since = value, at
            self.owner = header.owner if header else ""
        return changed

    @property
    def ours(self) -> bool:
        """Whether no other process has it."""
        return self.owner in ("", self.me)

    def active(self, at: int) -> bool:
        """Whether its owner did something of late."""
        return bool(self.owner) and at - self.since < ABANDONED

    def waits(self, at: int) -> int:
        """How long work is left to the owner, in microseconds."""
        if self.ours:
            return 0
        return int(self.patience * (_PATIENCE if self.active(at) else _PATIENCE_ABANDONED))

    def open_for(self, work: int, now: int, at: int) -> bool:
        """Whether this process may go for work that is due since the moment `work`."""
        waits, stood = self.waits(at), at - self.since
        return (work <= now - waits and stood >= waits) or (at < self.asked_until and stood >= _PAUSE_SEEN)

    def wait_for(self, work: int, now: int, at: int) -> int:
        """How long until this process may go for that work, if its owner does nothing."""
        if at < self.asked_until:
            return _PAUSE_SEEN
        waits = self.waits(at)
        return max(work + waits - now, self.since + waits - at, _PAUSE_SEEN)
