"""Which messages a claim takes, how they share timers, and what becomes of those that can go to nobody any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from astyqueue.ids import Id
from astyqueue.model.message import ATTEMPTS_MOST, LEASE_MOST, Envelope, decode
from astyqueue.protocol.along import Along, goes_along
from astyqueue.protocol.columns import Dead, Entry, State, Timer, dead_name, message_name
from astyqueue.store import Column, Name

_SECOND: Final = 1_000_000
#: A plain send is stamped an hour back; one that claims to come from further ahead than this could outlive its own ack.
AHEAD: Final = 50 * 60 * _SECOND
#: What expired in a claim of more than so many is claimed again so many at a time; what expired in a smaller one, alone.
SMALLER: Final = 20
#: Bytes of messages that one claim reads, about. A store answers so much well within its time limit, and a commit costs little
#: beside it; 200 messages of a mebibyte each would be more than Cassandra's nodes pass on to one another.
BUDGET: Final = 4 << 20
#: A message of which nothing is known counts as this large: the greatest that a body may be unless a queue's settings allow more.
_LARGE: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class Order:
    """What a claim is to bring: so many messages at most, under these settings (microseconds), for a process that holds `in_hand`.

    With `keeps`, the claim takes or extends the row lease, unless without `leases` there is none; `yields` to another process that
    turns out to have it. `unlocks`: columns of a lock that go with the claim's commit. The caps bound what messages ask for themselves.
    """

    want: int
    lease: int
    max_attempts: int
    in_hand: int = 0
    keeps: bool = True
    yields: bool = False
    leases: bool = True
    unlocks: tuple[Name, ...] = ()
    lease_cap: int = LEASE_MOST
    max_attempts_cap: int = ATTEMPTS_MOST


class Held(NamedTuple):
    """A message in hand."""

    entry: Entry
    envelope: Envelope


class Buried(NamedTuple):
    """A message that became a dead letter as it was looked at, and what was in it if that can be read."""

    entry: Entry
    death: Dead
    envelope: Envelope | None


class Lapsed(NamedTuple):
    """A message whose lease ran out, as its timer lists it, and who held it."""

    entry: Entry
    holder: str


#: Part of what expired together: the timer it was in, and a number within it.
Part = tuple[Name, int]
#: What shares a timer: everything fresh with one lease (microseconds), or what expired together, in small parts.
Group = tuple[int, Part | None]


@dataclass(slots=True)
class Sizes:
    """How large the messages of a queue are, as far as one process has read any."""

    average: float = _LARGE
    _known: bool = False

    def saw(self, read: int, count: int) -> None:
        """Take note of so many bytes in so many messages. It rises at once and falls by half at most, for few may be the exception."""
        mean = max(1.0, read / count)
        self.average = max(mean, self.average / 2) if self._known else mean
        self._known = True

    def within(self, budget: int) -> int:
        """How many messages have about so many bytes together."""
        return max(0, int(budget / self.average))

    def forget(self) -> None:
        """A read failed: it may have been too large."""
        self.average, self._known = _LARGE, False


@dataclass(slots=True)
class Picked:
    """The makings of a claim; `read` counts the bytes of messages that were read for it.

    `early`: messages that may not be claimed yet, by the moment (microseconds) until which they are hidden.
    """

    order: Order
    now: int
    room: int
    burials: int = 0
    groups: dict[Group, list[Held]] = field(default_factory=dict)
    dead: dict[Name, bytes] = field(default_factory=dict)
    at_most_once: list[Held] = field(default_factory=list)
    leaving: dict[Name, set[Id]] = field(default_factory=dict)
    along: dict[Id, Along] = field(default_factory=dict)
    buried: list[Buried] = field(default_factory=list)
    early: dict[int, list[Entry]] = field(default_factory=dict)
    cursors: list[list[Id]] = field(default_factory=list)
    undecodable: int = 0
    more: bool = False
    suspect: bool = False
    read: int = 0

    def fits(self, sizes: Sizes) -> int:
        """How many more messages to read for this claim: one at least, and then as long as they keep within its budget."""
        least = 0 if self.read else 1
        return max(0, min(self.room, max(least, sizes.within(BUDGET - self.read))))

    def has_read(self, columns: list[Column], sizes: Sizes) -> None:
        """Count the bytes of these messages."""
        if columns:
            read = sum(len(column.value) for column in columns)
            self.read += read
            sizes.saw(read, len(columns))

    @property
    def anything(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.groups or self.dead or self.at_most_once or self.leaving or self.early)

    @property
    def ids(self) -> set[Id]:
        """The messages that are taken already."""
        taken = {held.entry.id for group in self.groups.values() for held in group}
        early = (entry.id for entries in self.early.values() for entry in entries)
        return taken.union((held.entry.id for held in self.at_most_once), (name.id for name in self.dead), early)

    @property
    def alone(self) -> bool:
        """Whether its one message is all that this process then holds."""
        return self.order.in_hand == 0 and not self.at_most_once and sum(map(len, self.groups.values())) == 1

    def take(self, entry: Entry, value: bytes, part: Part | None = None) -> bool:
        """Decide on one message; False if there is no room for it in this commit."""
        try:
            envelope = decode(value)
        except ValueError as error:
            self.undecodable += 1
            return self._bury(entry, "undecodable", f"its message cannot be read: {error}")
        if envelope.sent > self.now + AHEAD:
            return self._put_off(entry, envelope.sent - AHEAD)
        if envelope.expires is not None and envelope.expires <= self.now:
            return self._bury(entry, "expired", "it was not handed out before the moment it expires", envelope=envelope)
        asked = envelope.attempts
        if entry.spent >= (allowed := self.order.max_attempts if asked is None else min(asked, self.order.max_attempts_cap)):
            reason = f"{entry.spent} of {allowed} attempts ended without an outcome: each lease ran out"
            return self._bury(entry, "attempts", reason, envelope=envelope)
        held = Held(entry, envelope)
        self.room -= 1
        lease = self.order.lease if envelope.lease is None else min(envelope.lease, self.order.lease_cap)
        if lease == 0:
            self.at_most_once.append(held)
            self.along[entry.id] = goes_along(entry.priority, entry.id, envelope)
        else:
            self.groups.setdefault((lease, part), []).append(held)
        return True

    def _put_off(self, entry: Entry, until: int) -> bool:
        """Hide a message until it may be claimed, so that those behind it are reached; in whole seconds, so that many share a timer."""
        self.room -= 1
        self.early.setdefault(-(-until // _SECOND) * _SECOND, []).append(entry)
        return True

    def _bury(self, entry: Entry, kind: str, reason: str, *, envelope: Envelope | None = None) -> bool:
        if len(self.dead) >= self.burials:
            return False
        self.room -= 1
        death = Dead(self.now, entry.spent, kind, reason, "")
        self.dead[dead_name(entry.priority, entry.id)] = death.encode()
        self.buried.append(Buried(entry, death, envelope))
        if envelope is not None:
            self.along[entry.id] = goes_along(entry.priority, entry.id, envelope)._replace(leaves=None)
        return True

    def lapsed(self, timers: Iterable[Timer]) -> list[Lapsed]:
        """Those of these timers' messages which are taken because a lease ran out."""
        over = [timer for timer in timers if timer.state == State.LEASED and timer.due <= self.now]
        return [Lapsed(entry, timer.holder) for timer in over for entry in timer.entries if entry.id in self.leaving[timer.name]]

    @property
    def consumed(self) -> list[Name]:
        """The messages that go as they are handed out."""
        return [message_name(held.entry.priority, held.entry.id) for held in self.at_most_once]


class Again(NamedTuple):
    """A message of a timer that is due: its entry with the attempts now spent, the timer, and its part if it expired."""

    entry: Entry
    timer: Timer
    part: Part | None


@dataclass(slots=True)
class DueAgain:
    """What is due again, by priority; what was parked, the highest priority first; and messages that may have killed their holders."""

    by_level: dict[int, list[Again]] = field(default_factory=dict)
    parked: list[Again] = field(default_factory=list)
    suspects: list[Again] = field(default_factory=list)


def due_again(timers: list[Timer], now: int) -> DueAgain:
    """Sort out the messages of timers that are due.

    A lease that ran out counts as an attempt only when the message was alone: its holder had nothing else in hand and no
    other lease of that holder ran out with it. What expired alone in its timer but in company is a suspect: it is handed
    out next by a process that holds nothing else, so that one message that kills its worker never buries its neighbours.
    """
    found = DueAgain()
    expired = Counter(timer.holder for timer in timers if timer.state == State.LEASED and timer.due <= now)
    everything = chain.from_iterable(_of_timer(timer, now, company=expired[timer.holder] > 1) for timer in timers)
    for again in everything:
        if again.part is not None and again.part[1] == _SUSPECT:
            found.suspects.append(again)
        elif again.timer.state == State.PARKED:
            found.parked.append(again)
        else:
            found.by_level.setdefault(again.entry.priority, []).append(again)
    found.parked.sort(key=lambda again: -again.entry.priority)
    return found


_SUSPECT: Final = -1


def _of_timer(timer: Timer, now: int, *, company: bool) -> list[Again]:
    marked = [Again(Entry(mark.id, mark.priority, mark.spent), timer, None) for mark in timer.marks if min(mark.due, timer.due) <= now]
    if timer.due > now:
        return marked
    if timer.state != State.LEASED:
        return marked + [Again(entry, timer, None) for entry in timer.entries]
    if timer.made_for > 1:
        width = SMALLER if timer.made_for > SMALLER else 1
        return marked + [Again(entry, timer, (timer.name, index // width)) for index, entry in enumerate(timer.entries)]
    counts = timer.alone and not company
    part = 0 if counts else _SUSPECT
    return marked + [Again(entry._replace(spent=entry.spent + counts), timer, (timer.name, part)) for entry in timer.entries]


def pick_again(picked: Picked, due: list[Again], present: list[Column]) -> None:
    """Take messages of due timers, as far as there is room; ids whose message is gone are dropped from their timer."""
    values = {column.name.id: column.value for column in present}
    for again in due:
        if picked.room <= 0:
            return
        value = values.get(again.entry.id)
        if value is None or picked.take(again.entry, value, again.part):
            picked.leaving.setdefault(again.timer.name, set()).add(again.entry.id)
