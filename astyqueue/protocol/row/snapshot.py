"""One process's cached snapshot of a row, and when it becomes invalid.

A scan starts from a header; then the timers are read, then messages, then dead columns, in this order. Cached timers
and dead columns are valid while the row has the same header, because every claim bumps the header's version. Settles do
not, but they only remove ids from timers or move timers up, so at worst the cache hides too much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.ids import Id, Nonce
from astyqueue.protocol.layout.columns import HEADER, Header, Timer, Type, decode_header, decode_timer
from astyqueue.protocol.row.bounded_reads import MessageSizes, ReadWindow, read_in_pages
from astyqueue.protocol.row.cursors import SCAN_LAGS, ScanCursors
from astyqueue.protocol.row.timer_index import TimerChange, TimerIndex
from astyqueue.protocol.steps import Steps, read, read_column
from astyqueue.store import Name, Slice
from astyqueue.units import NEVER

#: After this many ids without a claim the cursors are stored, so that no other process scans those ids again.
WORTH_STORING: Final = 1_000
_TIMERS_A_PAGE: Final = 1_000
#: Stands for the header of a row that no process has committed to.
_NONE_YET: Final = Header(0, 0, Nonce(b""), "", ())


class KnownHeader(NamedTuple):
    """A row's header as a commit expects it: its bytes, None if the row has none yet, and what they say."""

    value: bytes | None
    decoded: Header


@dataclass(slots=True)
class RowSnapshot:
    """A row as one process sees it. Losing or corrupting it costs extra reads, never a message.

    `header` and `timers` are None until they are read, and again when they may be outdated: timers are known only under
    a header that was known before them, and with them their due times and the dead letters are forgotten.
    `fires`: this process fires schedules, so an occurrence that is due is a reason to scan; `postponed`: occurrences
    that it cannot fire now, with the moment at which it tries again. `valid_at`: when the header was last known to be
    current. `ids_scanned`: ids that this process scanned since the last header commit; at 1 000 the cursors are stored.
    `claimed_since_late_scan`: messages that this process claimed, whose tombstones the last late scan has not passed
    yet. `window`, `timer_window`: how much time one read of messages, or of timers, may cover.
    """

    row: str
    levels: int
    fires: bool = False
    header: KnownHeader | None = None
    timers: TimerIndex | None = None
    scans: ScanCursors = field(default_factory=ScanCursors)
    ids_scanned: int = 0
    claimed_since_late_scan: int = 0
    valid_at: int = 0
    postponed: dict[Name, int] = field(default_factory=dict)
    sizes: MessageSizes = field(default_factory=MessageSizes)
    window: ReadWindow = field(default_factory=ReadWindow)
    timer_window: ReadWindow = field(default_factory=ReadWindow)

    def __repr__(self) -> str:
        """The row, and how much of it is known."""
        header = f"header {self.header.decoded.version}" if self.header else "header unknown"
        return f"<RowSnapshot {self.row}: {header}, {self.timers or 'timers unread'}>"

    @property
    def loaded_header(self) -> KnownHeader:
        """The header, for plans that are made after it was loaded."""
        if self.header is None:
            raise _not_loaded(self.row, "header")
        return self.header

    @property
    def loaded_timers(self) -> TimerIndex:
        """The timers, for plans that are made after they were loaded."""
        if self.timers is None:
            raise _not_loaded(self.row, "timers")
        return self.timers

    def forget(self) -> None:
        """Forget header, timers and dead letters; the next load reads them again."""
        self.header = self.timers = None

    def forget_blocked(self) -> bool:
        """Forget the timers if messages are blocked in the row as far as is known; whether it was so."""
        blocked = self.timers is not None and bool(self.timers.groups.blocked)
        if blocked:
            self.timers = None
        return blocked

    def forget_dead(self) -> None:
        """Forget the dead letters."""
        if self.timers is not None:
            self.timers.dead = None

    def learn(self, value: bytes | None, now: int, written: int | None = None) -> None:
        """Use a header as read, or as a refusal showed it; under another header, timers and dead letters are forgotten.

        A cursor counts as at most the header's write time less the scan's lag: a clock that ran ahead hides nothing.
        """
        if self.header is not None and value == self.header.value:
            self._forget_timers_if_refused(written)
            return
        header = decode_header(self.row, value) if value is not None else _NONE_YET
        self.header, self.timers, self.valid_at = KnownHeader(value, header), None, now
        self.scans.take_over(header.cursors, self.levels)
        self.hold_back(min(now, written) if written is not None else now)

    def _forget_timers_if_refused(self, written: int | None) -> None:
        # without a write time the header comes from a refused commit; if it is unchanged, a timer has changed
        if written is None:
            self.timers = None

    def check_header(self, value: bytes | None, now: int) -> None:
        """Compare a header from a plain read: if it differs, forget the snapshot. It may be old, so it is not used."""
        if self.header is None or value != self.header.value:
            self.forget()
        else:
            self.valid_at = now
            self.hold_back(now)

    def hold_back(self, now: int) -> None:
        """Move cursors back to at most `now` less their lags; if a head moved, the dead letters are read again."""
        if self.scans.hold_back(now):
            self.forget_dead()

    def clock_was_set_back(self, now: int) -> None:
        """Move cursors back, as `hold_back` does, and fire postponed occurrences when they are due by the new time."""
        self.hold_back(now)
        self.postponed.clear()

    def refused(self, value: bytes | None, now: int, cursors: list[list[Id]]) -> None:
        """Use the header that a refusal showed, and set the cursors back to `cursors`.

        A refusal shows no write time, so a cursor from a clock that ran ahead could hide messages sent since. If this
        snapshot was current within the first late scan's lag, late scans find them; otherwise the header is read again.
        """
        self.scans.cursors = cursors
        if value != self.loaded_header.value and self.valid_at < now - SCAN_LAGS[1]:
            self.forget()
        else:
            self.learn(value, now)

    def header_committed(
        self,
        header: Header,
        replaced: Iterable[tuple[Timer, Timer | None]],
        added: Iterable[Timer],
        *,
        dead: Iterable[Id] = (),
        at: int | None = None,
    ) -> None:
        """Record a header commit of this process, planned `at` this moment: its header, timers and dead letters."""
        self.valid_at = self.valid_at if at is None else at
        if self.header is not None:
            self.header = KnownHeader(header.encode(), header)
        listed = list(added)
        if self.timers is not None:
            for timer, left in replaced:
                self.timers.replace(timer, [left] if left else [])
            for timer in listed:
                self.timers.add(timer)
            self._add_dead(self.timers, dead)
        self.ids_scanned = 0
        self.claimed_since_late_scan += sum(len(timer.entries) for timer in listed)

    def settled(self, change: TimerChange) -> None:
        """Record a settle of this process. It counts from the next scan on: a running scan read its messages before it.

        If it bumped the header that is known here, no other process has claimed since, and the snapshot stays valid.
        """
        if self.timers is not None:
            self.timers.settled.append(change)
        if change.header_change and self.header is not None and change.header_change[0] == self.header.value:
            self.header = KnownHeader(change.header_change[1].encode(), change.header_change[1])

    def apply_settles(self) -> None:
        """Apply the settles since the last scan, before anything is read.

        If a settle met another value of its timer than is cached, it followed a commit of this process with an unknown
        outcome. What that commit moved is in unknown timers, so all timers are read again.
        """
        if (timers := self.timers) is None:
            return
        settled, timers.settled = timers.settled, []
        for change in settled:
            known = timers.by_name.get(change.timer.name)
            if known is None or known.value != change.timer.value:
                self.timers = None
                return
            timers.replace(change.timer, change.successors)
            self._add_dead(timers, change.dead)

    def _add_dead(self, timers: TimerIndex, dead: Iterable[Id]) -> None:
        # no scan needs the dead letters that the first scan has passed
        if timers.dead is not None:
            head = min(self.scans.heads)
            timers.dead.update(id_ for id_ in dead if id_ > head)

    @property
    def has_free_group(self) -> bool:
        """Whether a message waits in a group of which none is under way any more, as far as the timers are known."""
        return self.timers is not None and self.timers.groups.has_free

    @property
    def next_occurrence(self) -> int | None:
        """When this process can fire the next occurrence; None if it fires no schedules or knows of no occurrence."""
        if not self.fires or (timers := self.timers) is None:
            return None
        self.postponed = {name: moment for name, moment in self.postponed.items() if name in timers.by_name}
        return timers.next_occurrence(self.postponed)

    def next_scan(self, now: int) -> int | None:
        """When to scan this row again even if no message is sent; None for no such moment.

        At once if its timers are to be read again: a settle followed a commit of unknown outcome.
        """
        if self.header is not None and self.timers is None:
            return now
        due = self.timers.next_claim() if self.timers is not None else None, self.next_occurrence
        soonest = min([self.scans.next_late(now), *[moment for moment in due if moment is not None]])
        if self.has_free_group:
            return min(now, soonest)
        return soonest if soonest < NEVER else None


def _not_loaded(row: str, part: str) -> RuntimeError:
    return RuntimeError(f"row {row}: its {part} must be loaded first")


def load_header(snapshot: RowSnapshot, now: int) -> Steps[KnownHeader]:
    """The row's header, if it is not known by an exact read: enough for commits that claim nothing."""
    if snapshot.header is None:
        column = yield from read_column(snapshot.row, HEADER, exact=True)
        snapshot.learn(column.value if column else None, now, column.written if column else None)
    return snapshot.loaded_header


def load_snapshot(snapshot: RowSnapshot, now: int) -> Steps[TimerIndex]:
    """All timers of the row, read if they are not known; the header is read before them."""
    header = snapshot.header or (yield from load_header(snapshot, now))
    if snapshot.timers is None:
        timers = yield from read_all_timers(snapshot.row, header.decoded.floor, snapshot.timer_window)
        snapshot.timers = TimerIndex(timers)
    return snapshot.timers


def read_all_timers(row: str, floor: int, window: ReadWindow | None = None) -> Steps[list[Timer]]:
    """Every timer of the row from `floor` (microseconds) on, page by page upwards: one that moves meanwhile moves up.

    Where many short leases ended beside a long one, a page is read in parts, upwards too.
    """
    wanted = Slice(row, Type.TIMER, 0, after=ids.first_at(floor))
    columns = yield from read_in_pages(wanted, _TIMERS_A_PAGE, window or ReadWindow())
    return [decode_timer(row, column.name, column.value) for column in columns]


def load_dead(snapshot: RowSnapshot, timers: TimerIndex) -> Steps[set[Id]]:
    """The dead letters beyond the heads: read after the messages, or cached since these timers were read."""
    if timers.dead is None:
        slices = [
            Slice(snapshot.row, Type.DEAD, level, after=head, values=False)
            for level, head in enumerate(snapshot.scans.heads)
        ]
        found = yield from read(*slices)
        timers.dead = {column.name.id for columns in found for column in columns}
    return timers.dead
