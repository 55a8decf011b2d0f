"""A store that checks after every change that a row is what the protocol says it is, and came there lawfully."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from astyqueue.clock import Clock
from astyqueue.errors import Undecodable
from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import Entry, Header, Mark, State, Timer, Type, decode_header, decode_timer
from astyqueue.protocol.steps import Commit, Request, Send
from astyqueue.store import Column, Name, Slice, Store
from astyqueue.testing import Faulty

ROW = "tasks:0:0"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a timer hides a message."""

    timer: Timer
    entry: Entry | Mark

    @property
    def leased(self) -> bool:
        return self.timer.state == State.LEASED and isinstance(self.entry, Entry)

    def ended(self, now: int) -> bool:
        """Whether the message may be handed out; whether that of a BLOCKED timer may, its group decides."""
        return (
            self.timer.state == State.BLOCKED
            or self.timer.due <= now
            or (isinstance(self.entry, Mark) and self.entry.due <= now)
        )

    def counts(self, now: int) -> bool:
        """Whether handing it out again may cost an attempt: it was leased alone, and that lease ran out."""
        return self.leased and self.timer.due <= now and self.timer.made_for == 1 and self.timer.alone


def listed(timer: Timer) -> list[Entry | Mark]:
    """The messages that a timer hides."""
    return [*timer.entries, *timer.marks]


@dataclass(frozen=True, slots=True)
class Picture:
    """What a row holds."""

    header: Header | None
    messages: frozenset[Id]
    timers: tuple[Timer, ...]
    dead: frozenset[Id]

    @property
    def places(self) -> dict[Id, Place]:
        return {entry.id: Place(timer, entry) for timer in self.timers for entry in listed(timer)}

    @property
    def waiting(self) -> frozenset[Id]:
        return self.messages - self.dead - self.places.keys()

    @property
    def superseded(self) -> frozenset[Id]:
        """The leased messages whose unique keys others have since."""
        return frozenset(entry.id for timer in self.timers for entry in timer.entries if entry.superseded)

    def wrong(self) -> Iterator[str]:
        """What no row may look like."""
        places = Counter(entry.id for timer in self.timers for entry in listed(timer))
        if doubly := [id_ for id_, times in places.items() if times > 1]:
            yield f"{len(doubly)} messages are listed in two places"
        if places.keys() & self.dead:
            yield "a dead letter is listed in a timer"
        if (places.keys() | self.dead) - self.messages:
            yield "something is listed whose message is gone"
        under_way = Counter(
            entry.group
            for timer in self.timers
            if timer.state != State.BLOCKED
            for entry in listed(timer)
            if entry.group
        )
        if several := [group for group, times in under_way.items() if times > 1]:
            yield f"{len(several)} groups have two messages under way"
        early = [timer for timer in self.timers if self.header is None or timer.due < self.header.floor]
        if early:
            yield f"{len(early)} timers are due before the floor"


def picture(store: Store, row: str = ROW) -> Picture:
    """A row as it is; what cannot be decoded is left out."""
    kinds = (Type.LOCK, Type.MESSAGE, Type.TIMER, Type.DEAD)
    lock, messages, timers, dead = store.read(tuple(Slice(row, kind) for kind in kinds))
    return Picture(_header(lock), _ids(messages), tuple(_timers(timers)), _ids(dead))


def _ids(columns: list[Column]) -> frozenset[Id]:
    return frozenset(column.name.id for column in columns)


def _header(columns: list[Column]) -> Header | None:
    try:
        return decode_header(ROW, columns[0].value) if columns else None
    except Undecodable:
        return None


def _timers(columns: list[Column]) -> Iterator[Timer]:
    for column in columns:
        try:
            yield decode_timer(ROW, column.name, column.value)
        except Undecodable:
            continue


class Watched(Faulty):
    """Writes down in `wrong` what no change may bring about; `gone` are the messages that were settled for good."""

    def __init__(self, store: Store, clock: Clock, row: str = ROW) -> None:
        super().__init__(store)
        self._clock = clock
        self._row = row
        self._last = picture(store, row)
        self.wrong: list[str] = []
        self.gone: set[Id] = set()
        self.raised = 0

    def perform(self, request: Request) -> object:
        if not isinstance(request, Commit | Send):
            return super().perform(request)
        before = self._last
        answer = super().perform(request if isinstance(request, Commit) else self._without_gone(request))
        after = self._last = picture(self._store, self._row)
        if before != after:
            self.raised += before.header != after.header
            self.wrong += [*after.wrong(), *_unlawful(before, after, self._clock.now())]
            self.gone |= before.messages - after.messages
        return answer

    def _without_gone(self, request: Send) -> Send:
        """A send that is repeated writes nothing anew: on Cassandra its write time is earlier than that of a delete."""
        batches = [
            replace(each, puts=tuple(put for put in each.puts if put.name.id not in self.gone))
            for each in request.batches
        ]
        return Send(batches[0], tuple(batches[1:]))

    def require_lawful(self) -> None:
        assert not self.wrong, f"{len(self.wrong)} unlawful changes, the first: {self.wrong[0]}"


def _unlawful(before: Picture, after: Picture, now: int) -> Iterator[str]:
    version = before.header.version if before.header else 0
    if before.header != after.header and (after.header is None or after.header.version != version + 1):
        yield "the header's version did not go up by one"
    was = before.places
    for id_ in (after.waiting & before.messages) - before.waiting:
        if id_ not in was or not _scanned_later(after.header, was[id_].entry):
            yield "a message went back to waiting"
    for id_, place in after.places.items():
        if place.leased and id_ in before.messages:
            yield from _handed_out(was.get(id_), place, now)


def _scanned_later(header: Header | None, one: Entry | Mark) -> bool:
    return header is not None and all(
        cursors[0] < one.id for cursors in header.cursors[one.priority : one.priority + 1]
    )


def _handed_out(was: Place | None, place: Place, now: int) -> Iterator[str]:
    if was is None:
        if place.entry.spent:
            yield "a message was handed out for the first time with attempts spent"
        return
    if was.timer.nonce == place.timer.nonce and isinstance(was.entry, Entry):
        return
    if isinstance(was.entry, Entry) and was.entry.superseded:
        yield "a superseded message was handed out again"
    if not was.ended(now):
        yield "a message was handed out again before its time"
    extra = place.entry.spent - was.entry.spent
    if extra not in ((0, 1) if was.counts(now) else (0,)):
        yield f"{extra} attempts were counted for a lease that ran out"


class Graves(Faulty):
    """Keeps what Cassandra keeps: a plain put stamped before the delete of its column stays deleted."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store)
        self._clock = clock
        self._graves: dict[Name, int] = {}

    def perform(self, request: Request) -> object:
        if isinstance(request, Send):
            alive = tuple(
                put for put in request.batch.puts if self._graves.get(put.name, -1) < (put.stamp or self._clock.now())
            )
            return super().perform(Send(replace(request.batch, puts=alive)))
        answer = super().perform(request)
        if isinstance(request, Commit):
            there = {
                column.name
                for columns in self._store.read((Slice(ROW, Type.MESSAGE, values=False),))
                for column in columns
            }
            self._graves |= {name: self._clock.now() for name in request.batch.deletes if name not in there}
        return answer


class Meanwhile(Faulty):
    """Lets others act before its requests: before number `at`, counted from 1, or before each if there is no `at`."""

    def __init__(self, store: Store, others: Callable[[], object], *, at: int | None = None) -> None:
        super().__init__(store)
        self._others = others
        self._at = at
        self.requests: list[Request] = []

    def perform(self, request: Request) -> object:
        self.requests.append(request)
        if self._at in (None, len(self.requests)):
            self._others()
        return super().perform(request)
