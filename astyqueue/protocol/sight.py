"""What one process knows of a row, and how long that knowledge holds.

A look starts from a header; then the timers are read, then messages, then dead columns, in this order. What is remembered
of timers and dead columns holds while the header's version is the row's, for nobody claims without raising it. Settles do
not raise it, but they only take ids off timers or move timers up, so what is remembered hides too much at worst.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.protocol.columns import HEADER, Header, State, Timer, Type, decode_header, decode_timer
from astyqueue.protocol.looks import LAGS, NEVER, Looks
from astyqueue.protocol.outcomes import Worked
from astyqueue.protocol.picking import Sizes
from astyqueue.protocol.steps import Steps, read, read_column
from astyqueue.protocol.stretches import Strides, read_in_pages
from astyqueue.protocol.upcoming import Upcoming
from astyqueue.store import Name, Slice

#: States whose messages anybody may claim once the timer is due.
CLAIMABLE: Final = frozenset({State.LEASED, State.BACKING_OFF, State.SNOOZED, State.PARKED})
#: A look that passed so many ids without a claim is stored, so that no other process need walk them again.
WORTH_STORING: Final = 1_000
_TIMERS_A_PAGE: Final = 1_000


@dataclass(slots=True)
class Sight:
    """A row as one process sees it. Corrupting or forgetting it costs reads, never a promise.

    `fires`: this process fires schedules, so a slot that falls due is a reason to look. `passed`: ids that a look of ours passed, and
    no header tells; `handed`: messages that went out from here, over whose graves the last of the late looks has not come yet.
    `sizes`: how large its messages are; `strides`: over how much time they are read at once, and `strides_of_timers` its timers.
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
    looks: Looks = field(default_factory=Looks)
    passed: int = 0
    handed: int = 0
    stood: int = 0
    upcoming: Upcoming = field(default_factory=Upcoming)
    sizes: Sizes = field(default_factory=Sizes)
    strides: Strides = field(default_factory=Strides)
    strides_of_timers: Strides = field(default_factory=Strides)
    _settled: list[Worked] = field(default_factory=list)

    def forget(self) -> None:
        """Know nothing any more, as after an answer that cannot be explained."""
        self.known = False
        self._forget_timers()

    def learn(self, value: bytes | None, now: int, written: int | None = None) -> None:
        """Take over a header as read, or as a refusal showed it; what was known under another one is forgotten.

        A cursor counts as no later than the header's write time less the look's lag: a clock that ran ahead hides nothing.
        """
        if self.known and value == self.value:
            self._forget_timers_if_refused(written)
            return
        self.header = decode_header(self.row, value) if value is not None else None
        self.known, self.value, self.stood = True, value, now
        self._forget_timers()
        self.looks.take_over(self.header.cursors if self.header else (), self.levels)
        self.hold_back(min(now, written) if written is not None else now)

    def _forget_timers_if_refused(self, written: int | None) -> None:
        """The header stands but a commit was refused: it was a timer that changed. A header that was read has a write time."""
        if written is None:
            self._forget_timers()

    def surveyed(self, value: bytes | None, now: int) -> None:
        """Take note of the header as a plain read shows it: if it is another, what is known is forgotten; it teaches nothing."""
        if not self.known or value != self.value:
            self.forget()
        else:
            self.stood = now
            self.hold_back(now)

    def hold_back(self, now: int) -> None:
        """Let no look be further than this moment; dead letters beyond a head that had to go back are not known."""
        if self.looks.hold_back(now):
            self.dead = None

    def refused(self, value: bytes | None, now: int, cursors: list[list[Id]]) -> bool:
        """Take over the header that a refusal showed. The looks stand again where they stood before; always False.

        A refusal tells no write time, without which a cursor from a clock that ran ahead could hide what was sent since. Within
        the first lag the late looks see to that; a header that may be older is read again.
        """
        self.looks.cursors = cursors
        if value != self.value and self.stood < now - LAGS[1]:
            self.forget()
        else:
            self.learn(value, now)
        return False

    def raised(self, header: Header, timers: Iterable[Timer], dead: Iterable[Id], *, at: int | None = None) -> None:
        """Take note of a raised commit of our own: its header, its timers and the messages it buried, `at` which moment."""
        self.stood = self.stood if at is None else at
        if self.known:
            self.header, self.value = header, header.encode()
        known = list(timers)
        self.replace(None, known)
        self._bury(dead)
        self.passed = 0
        self.handed += sum(len(timer.entries) for timer in known)

    def _forget_timers(self) -> None:
        self.timers = None
        self.dead = None
        self._settled.clear()

    def settled(self, worked: Worked) -> None:
        """Take note of a settle of our own. It counts from the next look on: a look that has begun read messages before it.

        If it raised the header that is known here, nobody else has claimed since, and what is known stays good.
        """
        self._settled.append(worked)
        if worked.raised and self.known and worked.raised[0] == self.value:
            self.header = worked.raised[1]
            self.value = self.header.encode()

    def take_note(self) -> None:
        """Apply what was settled since the last look, before anything is read.

        A settle that met its timer otherwise than it is remembered followed one of ours whose end we did not learn: what that
        one moved is in timers that are not known here, so all of them are read again.
        """
        settled, self._settled = self._settled, []
        for worked in settled:
            if self.timers is None:
                return
            remembered = self.timers.get(worked.timer.name)
            if remembered is None or remembered.value != worked.timer.value:
                self._forget_timers()
                return
            self.replace(worked.timer.name, [*filter(None, [worked.left]), *worked.moved, *worked.sooner])
            self._bury(name.id for name in worked.dead)

    def replace(self, gone: Name | None, timers: Iterable[Timer]) -> None:
        """Remember these timers in the place of one that is gone."""
        if self.timers is None:
            return
        if gone is not None and (timer := self.timers.pop(gone, None)):
            self.hidden.difference_update(_hidden_by(timer))
        for timer in timers:
            self._remember(self.timers, timer)

    def remember(self, timers: Iterable[Timer]) -> None:
        """Remember all timers of the row, as just read."""
        self.hidden.clear()
        self.upcoming.clear()
        known: dict[Name, Timer] = {}
        self.timers = known
        for timer in timers:
            self._remember(known, timer)

    def _bury(self, dead: Iterable[Id]) -> None:
        """Remember dead letters that the first look has not passed; no look asks for others."""
        if self.dead is not None:
            head = min(self.looks.heads)
            self.dead.update(id_ for id_ in dead if id_ > head)

    def _remember(self, known: dict[Name, Timer], timer: Timer) -> None:
        known[timer.name] = timer
        self.hidden.update(_hidden_by(timer))
        self.upcoming.add(timer, known)

    def next_due(self) -> int | None:
        """When the first timer of the row is due, whatever it is for; never later than that."""
        return self.upcoming.earliest(self.timers or {})

    def due(self, now: int) -> list[Timer]:
        """The timers that are due, or have marks that are, the earliest first."""
        found = self.upcoming.claimable(self.timers or {}, now)
        return [timer for timer in found if timer.state in CLAIMABLE]

    @property
    def next_slot(self) -> int | None:
        """When there is a slot to fire here, as far as is known."""
        return self.upcoming.next_slot(self.timers) if self.fires and self.timers else None

    def next_look(self, now: int) -> int | None:
        """When this row is to be looked at again even if nobody sends anything."""
        due = self.upcoming.next_claim(self.timers or {}), self.next_slot
        soonest = min([self.looks.next_late(now), *[moment for moment in due if moment is not None]])
        return soonest if soonest < NEVER else None


def _hidden_by(timer: Timer) -> list[Id]:
    return [entry.id for entry in timer.entries] + [mark.id for mark in timer.marks]


def know_header(sight: Sight, now: int) -> Steps[None]:
    """See to it that the header of the row is known, by an exact read: enough for who adds messages and takes none."""
    if not sight.known:
        column = yield from read_column(sight.row, HEADER, exact=True)
        sight.learn(column.value if column else None, now, column.written if column else None)


def know(sight: Sight, now: int) -> Steps[None]:
    """See to it that the header and all timers of the row are known; the header first."""
    yield from know_header(sight, now)
    if sight.timers is None:
        timers = yield from all_timers(sight.row, sight.header.floor if sight.header else 0, sight.strides_of_timers)
        sight.remember(timers)
        sight.dead = None


def all_timers(row: str, floor: int, strides: Strides | None = None) -> Steps[list[Timer]]:
    """Every timer of the row, read upwards in one sequence of pages: a timer that moves meanwhile moves up, into sight.

    Where many short leases ended beside a long one, a page is read in stretches, upwards too.
    """
    wanted = Slice(row, Type.TIMER, 0, after=ids.first_at(floor))
    columns = yield from read_in_pages(wanted, _TIMERS_A_PAGE, strides or Strides())
    return [decode_timer(row, column.name, column.value) for column in columns]


def know_dead(sight: Sight) -> Steps[set[Id]]:
    """The dead letters among the ids that the first look has not passed; read after messages, or known since the timers."""
    if sight.dead is None:
        slices = [Slice(sight.row, Type.DEAD, level, after=head, values=False) for level, head in enumerate(sight.looks.heads)]
        found = yield from read(*slices)
        sight.dead = {column.name.id for columns in found for column in columns}
    return sight.dead
