"""The tombstones that each poll with nothing to do passes over: promise 4, poll by poll, in every simulation.

A poll reads names of messages, and the tombstones among them. The first scan passes a tombstone up to the head of its
priority once, and so does each late scan. A tombstone beyond the head is in the way of every poll, so there may be few
of those. Both hold from the moment at which a process learned the header of the row, while that is the current one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import SCANS
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.stores import column_name_codec
from tests.simulation.engine.client import SimulatedProcess
from tests.simulation.engine.history import ExpensivePoll, History

#: Each of the scans passes a tombstone once. So does the probe of a process that watches the headers of all rows, and,
#: where there are several priorities, the one ahead of the first scan.
PASSES: Final = SCANS + 2
#: Tombstones of its own messages that one poll of a process may pass over beyond the head.
AHEAD: Final = 12


@dataclass(slots=True)
class _Known:
    """What a process knew of a row after a poll, and how often it has passed each tombstone up to the head since."""

    header: object
    timers: object
    error: int
    heads: list[Id]
    passes: Counter[bytes] = field(default_factory=Counter)

    def still(self, snapshot: RowSnapshot, error: int) -> bool:
        """Whether it knows the same: header, timers and clock are unchanged, and no head was set back."""
        return (
            self.timers is snapshot.timers
            and (self.header, self.error) == (snapshot.header, error)
            and all(head >= was for head, was in zip(snapshot.scans.heads, self.heads, strict=False))
        )


class Polls:
    """The polls of one process. `current_header` returns the value of a row's current header."""

    def __init__(
        self, client: SimulatedProcess, history: History, current_header: Callable[[str], bytes | None]
    ) -> None:
        """No row is known."""
        self._client = client
        self._history = history
        self._current_header = current_header
        self._known: dict[str, _Known] = {}

    def begin(self, snapshots: Iterable[RowSnapshot]) -> None:
        """A poll of these rows begins."""
        for snapshot in snapshots:
            self._client.scanned.pop(snapshot.row, None)
            self._remember(snapshot)

    def found_nothing(self, snapshots: Iterable[RowSnapshot]) -> None:
        """The poll of these rows found nothing to do: check what it passed in rows where it learned nothing."""
        for snapshot in snapshots:
            scanned = self._client.scanned.pop(snapshot.row, None)
            known = self._remember(snapshot)
            if scanned and known and snapshot.header and self._current_header(snapshot.row) == snapshot.header.value:
                self._check(snapshot, scanned, known.passes)

    def _remember(self, snapshot: RowSnapshot) -> _Known | None:
        """What the process knows since an earlier poll; None if that changed, and the count begins anew."""
        known, error = self._known.get(snapshot.row), self._client.clock.error
        if known and known.still(snapshot, error):
            known.heads = snapshot.scans.heads
            return known
        self._known[snapshot.row] = _Known(snapshot.header, snapshot.timers, error, snapshot.scans.heads)
        return None

    def _check(self, snapshot: RowSnapshot, scanned: list[bytes], passes: Counter[bytes]) -> None:
        ahead: set[Id] = set()
        for encoded in scanned:
            name = column_name_codec.decode(encoded)
            if name.id > snapshot.scans.heads[name.priority]:
                ahead.add(name.id)
            else:
                passes[encoded] += 1
        self._history.idle_polls += 1
        most = max(passes.values(), default=0)
        if most > PASSES or len(ahead) > AHEAD:
            self._history.expensive_polls.append(ExpensivePoll(self._client.name, snapshot.row, most, frozenset(ahead)))
