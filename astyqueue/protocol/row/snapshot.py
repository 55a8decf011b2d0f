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
from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import HEADER, Header, State, Timer, Type, decode_header, decode_timer
from astyqueue.protocol.row.bounded_reads import MessageSizes, ScanWindow, read_in_pages
from astyqueue.protocol.row.cursors import SCAN_LAGS, ScanCursors
from astyqueue.protocol.row.timer_index import TimerIndex
from astyqueue.protocol.steps import Steps, read, read_column
from astyqueue.store import Name, Slice
from astyqueue.units import NEVER

#: States of timers whose messages any process may claim once the timer is due.
CLAIMABLE: Final = frozenset({State.LEASED, State.BACKING_OFF, State.SNOOZED, State.PARKED})
#: After this many ids without a claim the cursors are stored, so that no other process scans those ids again.
WORTH_STORING: Final = 1_000
_TIMERS_A_PAGE: Final = 1_000


class TimerChange(NamedTuple):
    """What a settle did to one timer of a row: the timers in its place, and the messages it dead-lettered.

    `raised`: for a header commit, the header that was known before it and the one that it wrote.
    """

    timer: Timer
    successors: tuple[Timer, ...]
    dead: tuple[Id, ...]
    raised: tuple[bytes | None, Header] | None


@dataclass(slots=True)
class RowSnapshot:
    """A row as one process sees it. Losing or corrupting it costs extra reads, never a message.

    `fires`: this process fires schedules, so an occurrence that is due is a reason to scan. `valid_at`: when the header
    was last known to be current. `ids_scanned`: ids that this process scanned since the last header commit; at 1 000
    the cursors are stored. `claimed_since_late_scan`: messages that this process claimed, whose tombstones the last
    late scan has not passed yet. `strides`, `strides_of_timers`: how much time one read of messages, or of timers, may
    cover.
    """

    row: str
    levels: int
    fires: bool = False
    known: bool = False
    value: bytes | None = None
    header: Header | None = None
    timers: dict[Name, Timer] | None = None
    dead: set[Id] | None = None
    hidden: set[Id] = field(default_factory=set)
    scans: ScanCursors = field(default_factory=ScanCursors)
    ids_scanned: int = 0
    claimed_since_late_scan: int = 0
    valid_at: int = 0
    upcoming: TimerIndex = field(default_factory=TimerIndex)
    sizes: MessageSizes = field(default_factory=MessageSizes)
    strides: ScanWindow = field(default_factory=ScanWindow)
    strides_of_timers: ScanWindow = field(default_factory=ScanWindow)
    _settled: list[TimerChange] = field(default_factory=list)

    def __repr__(self) -> str:
        """The row, and how much of it is known."""
        header = f"header {self.header.version if self.header else 0}" if self.known else "unknown"
        timers = "unread" if self.timers is None else len(self.timers)
        return f"<RowSnapshot {self.row}: {header}, timers {timers}, hidden {len(self.hidden)}>"

    def forget(self) -> None:
        """Forget header, timers and dead letters; the next load reads them again."""
        self.known = False
        self._forget_timers()

    def learn(self, value: bytes | None, now: int, written: int | None = None) -> None:
        """Use a header as read, or as a refusal showed it; under another header, timers and dead letters are forgotten.

        A cursor counts as at most the header's write time less the scan's lag: a clock that ran ahead hides nothing.
        """
        if self.known and value == self.value:
            self._forget_timers_if_refused(written)
            return
        self.header = decode_header(self.row, value) if value is not None else None
        self.known, self.value, self.valid_at = True, value, now
        self._forget_timers()
        self.scans.take_over(self.header.cursors if self.header else (), self.levels)
        self.hold_back(min(now, written) if written is not None else now)

    def _forget_timers_if_refused(self, written: int | None) -> None:
        # without a write time the header comes from a refused commit; if it is unchanged, a timer has changed
        if written is None:
            self._forget_timers()

    def check_header(self, value: bytes | None, now: int) -> None:
        """Compare a header from a plain read: if it differs, forget the snapshot. It may be old, so it is not used."""
        if not self.known or value != self.value:
            self.forget()
        else:
            self.valid_at = now
            self.hold_back(now)

    def hold_back(self, now: int) -> None:
        """Move cursors back to at most `now` less their lags; if a head moved, the dead letters are read again."""
        if self.scans.hold_back(now):
            self.dead = None

    def clock_was_set_back(self, now: int) -> None:
        """Move cursors back, as `hold_back` does, and fire postponed occurrences when they are due by the new time."""
        self.hold_back(now)
        self.upcoming.postponed.clear()

    def refused(self, value: bytes | None, now: int, cursors: list[list[Id]]) -> bool:
        """Use the header that a refusal showed, and set the cursors back to `cursors`; always False.

        A refusal shows no write time, so a cursor from a clock that ran ahead could hide messages sent since. If this
        snapshot was current within the first late scan's lag, late scans find them; otherwise the header is read again.
        """
        self.scans.cursors = cursors
        if value != self.value and self.valid_at < now - SCAN_LAGS[1]:
            self.forget()
        else:
            self.learn(value, now)
        return False

    def raised(self, header: Header, timers: Iterable[Timer], dead: Iterable[Id], *, at: int | None = None) -> None:
        """Record a header commit of this process, planned `at` this moment: its header, timers and dead letters."""
        self.valid_at = self.valid_at if at is None else at
        if self.known:
            self.header, self.value = header, header.encode()
        known = list(timers)
        self.replace(None, known)
        self._add_dead(dead)
        self.ids_scanned = 0
        self.claimed_since_late_scan += sum(len(timer.entries) for timer in known)

    def _forget_timers(self) -> None:
        self.timers = None
        self.dead = None
        self._settled.clear()

    def settled(self, change: TimerChange) -> None:
        """Record a settle of this process. It counts from the next scan on: a running scan read its messages before it.

        If it bumped the header that is known here, no other process has claimed since, and the snapshot stays valid.
        """
        self._settled.append(change)
        if change.raised and self.known and change.raised[0] == self.value:
            self.header = change.raised[1]
            self.value = self.header.encode()

    def apply_settles(self) -> None:
        """Apply the settles since the last scan, before anything is read.

        If a settle met another value of its timer than is cached, it followed a commit of this process with an unknown
        outcome. What that commit moved is in unknown timers, so all timers are read again.
        """
        settled, self._settled = self._settled, []
        for change in settled:
            if self.timers is None:
                return
            remembered = self.timers.get(change.timer.name)
            if remembered is None or remembered.value != change.timer.value:
                self._forget_timers()
                return
            self.replace(change.timer.name, change.successors)
            self._add_dead(change.dead)

    def replace(self, gone: Name | None, timers: Iterable[Timer]) -> None:
        """Cache these timers in the place of one that is gone."""
        if self.timers is None:
            return
        if gone is not None and (timer := self.timers.pop(gone, None)):
            self.hidden.difference_update(_hidden_by(timer))
        for timer in timers:
            self._remember(self.timers, timer)

    def remember(self, timers: Iterable[Timer]) -> None:
        """Cache all timers of the row, as just read."""
        self.hidden.clear()
        self.upcoming.clear()
        known: dict[Name, Timer] = {}
        self.timers = known
        for timer in timers:
            self._remember(known, timer)

    def _add_dead(self, dead: Iterable[Id]) -> None:
        # no scan needs the dead letters that the first scan has passed
        if self.dead is not None:
            head = min(self.scans.heads)
            self.dead.update(id_ for id_ in dead if id_ > head)

    def _remember(self, known: dict[Name, Timer], timer: Timer) -> None:
        known[timer.name] = timer
        self.hidden.update(_hidden_by(timer))
        self.upcoming.add(timer, known)

    def next_due(self) -> int | None:
        """A moment no later than the first due time of the row's timers, of any state; None without timers."""
        return self.upcoming.earliest(self.timers or {})

    def due(self, now: int) -> list[Timer]:
        """The claimable timers that are due, or have a mark that is, the earliest first."""
        found = self.upcoming.claimable(self.timers or {}, now)
        return [timer for timer in found if timer.state in CLAIMABLE]

    @property
    def next_occurrence(self) -> int | None:
        """When this process can fire the next occurrence; None if it fires no schedules or knows of no occurrence."""
        return self.upcoming.next_occurrence(self.timers) if self.fires and self.timers else None

    def next_scan(self, now: int) -> int | None:
        """When to scan this row again even if no message is sent; None for no such moment."""
        due = self.upcoming.next_claim(self.timers or {}), self.next_occurrence
        soonest = min([self.scans.next_late(now), *[moment for moment in due if moment is not None]])
        return soonest if soonest < NEVER else None


def _hidden_by(timer: Timer) -> list[Id]:
    return [entry.id for entry in timer.entries] + [mark.id for mark in timer.marks]


def load_header(snapshot: RowSnapshot, now: int) -> Steps[None]:
    """Make sure that the row's header is known, by an exact read: enough for commits that claim nothing."""
    if not snapshot.known:
        column = yield from read_column(snapshot.row, HEADER, exact=True)
        snapshot.learn(column.value if column else None, now, column.written if column else None)


def load_snapshot(snapshot: RowSnapshot, now: int) -> Steps[None]:
    """Make sure that the header and all timers of the row are known; the header is read first."""
    yield from load_header(snapshot, now)
    if snapshot.timers is None:
        timers = yield from read_all_timers(
            snapshot.row, snapshot.header.floor if snapshot.header else 0, snapshot.strides_of_timers
        )
        snapshot.remember(timers)
        snapshot.dead = None


def read_all_timers(row: str, floor: int, strides: ScanWindow | None = None) -> Steps[list[Timer]]:
    """Every timer of the row from `floor` (microseconds) on, page by page upwards: one that moves meanwhile moves up.

    Where many short leases ended beside a long one, a page is read in parts, upwards too.
    """
    wanted = Slice(row, Type.TIMER, 0, after=ids.first_at(floor))
    columns = yield from read_in_pages(wanted, _TIMERS_A_PAGE, strides or ScanWindow())
    return [decode_timer(row, column.name, column.value) for column in columns]


def load_dead(snapshot: RowSnapshot) -> Steps[set[Id]]:
    """The dead letters behind the heads: read after the messages, or cached since the timers were read."""
    if snapshot.dead is None:
        slices = [
            Slice(snapshot.row, Type.DEAD, level, after=head, values=False)
            for level, head in enumerate(snapshot.scans.heads)
        ]
        found = yield from read(*slices)
        snapshot.dead = {column.name.id for columns in found for column in columns}
    return snapshot.dead
