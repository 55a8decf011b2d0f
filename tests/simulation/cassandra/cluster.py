"""A simulated Cassandra as clients see it: requests for rows go in; answers and errors come out, sooner or later."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from astyqueue.errors import OutcomeUnknown, SliceTooLong, StoreError, StoreUnavailable
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.steps import Commit, Read, Send
from astyqueue.store import Batch, Column, Committed, Expectation, Name, Named, Outcome, Put, Refused, Slice, Wanted
from astyqueue.stores import key_codec
from astyqueue.units import SECOND
from tests.simulation.cassandra.coordinator import Coordinator, TimedOut, TooFew, Witness
from tests.simulation.cassandra.network import Coordinating, Network
from tests.simulation.cassandra.replica import Asking, Ballot, Replica
from tests.simulation.cassandra.storage import DELETED, EXPIRING, LASTING, Cell, Changes, Found, Row
from tests.simulation.engine.event_loop import SkewedClock, Timeline
from tests.simulation.engine.fault_profile import Weather

#: A request of a client that has no answer after this long has an unknown outcome.
TIMEOUT = 2 * SECOND
_HINTS_LIVE = 3 * 3_600 * SECOND
_MANY = 1 << 30
#: Bounds between which every id is.
_ANY = (b"", b"\xff" * 17)

Hear = Callable[[object], None]
#: A request, to be carried out on some node.
Job = Callable[[Replica], Coordinating[object]]


class Walked(NamedTuple):
    """What one read passed over: the live columns, and the names of the tombstones among them."""

    columns: list[Column]
    tombstones: list[bytes]


#: Called for each page of messages that is read, with its row and what the read passed over.
Watch = Callable[[str, Walked], None]


@dataclass(slots=True, eq=False)
class _Parts:
    """Requests that run together; the caller gets all answers when the last of them has come."""

    hear: Hear
    left: int
    answers: dict[int, object] = field(default_factory=dict)

    def came(self, place: int, answer: object) -> None:
        """Note the answer, or the error, of one request."""
        if self.left and place not in self.answers:
            self.answers[place] = answer
            self.left -= 1
            if not self.left:
                self.hear([self.answers[each] for each in sorted(self.answers)])


class Cluster:
    """Replicas, the network between them, and the way to them."""

    def __init__(self, timeline: Timeline, weather: Weather, chance: random.Random, *, witness: Witness) -> None:
        """All replicas are up and empty; `witness` is called for every proposal that a replica accepts."""
        self.timeline = timeline
        self.weather = weather
        self.replicas = [
            Replica(number, SkewedClock(timeline, weather.node_skew(chance))) for number in range(weather.replicas)
        ]
        self.network = Network(timeline, weather, chance)
        self.coordinator = Coordinator(self.network, self.replicas, witness=witness, chance=chance)
        self.graves: Counter[str] = Counter()
        self._chance = chance

    def request(
        self, asked: Read | Send | Commit, machine: SkewedClock, hear: Hear, watch: Watch | None = None
    ) -> None:
        """Carry out a request; `hear` gets the answer, or the StoreError, once. `watch` gets each page of messages."""
        jobs: Sequence[Job]
        match asked:
            case Read(wanted, True):
                parts = _Parts(partial(self._heard_of_exact_read, hear), 1)
                jobs = [partial(self._exactly, wanted)]
            case Read(wanted):
                parts = _Parts(partial(self._heard_of_read, hear), len(wanted))
                jobs = [partial(self._plainly, each, watch) for each in wanted]
            case Send(batch, more):
                parts = _Parts(partial(self._heard_of_send, hear), 1 + len(more))
                jobs = [
                    partial(self._send, each, machine.machine() + place) for place, each in enumerate((batch, *more))
                ]
            case Commit(batch, expects):
                parts = _Parts(partial(self._heard_of_commit, hear), 1)
                jobs = [partial(self._commit, batch, expects)]
        if not jobs:
            hear([])
        for place, job in enumerate(jobs):
            self._call(job, partial(parts.came, place))

    def _call(self, job: Job, hear: Hear) -> None:
        """Send a request to some node, and make sure that there is an answer in time."""
        up = [replica for replica in self.replicas if replica.up]
        if not up:
            self.timeline.after(SECOND, hear, TooFew())
            return
        home = self._chance.choice(up)
        self.timeline.after(self.network.way(), self._begin, home, job, hear)
        self.timeline.after(TIMEOUT, hear, TimedOut())

    def _begin(self, home: Replica, job: Job, hear: Hear) -> None:
        if home.paused_until > self.timeline.now:
            self.timeline.at(home.paused_until, self._begin, home, job, hear)
        elif home.up:
            self.network.coordinate(
                home, job(home), lambda answer: self.timeline.after(self.network.way(), hear, answer)
            )

    @staticmethod
    def _heard_of_read(hear: Hear, answers: list[object]) -> None:
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        too_long = next((error for error in errors if isinstance(error, SliceTooLong)), None)
        hear(too_long or (StoreUnavailable("too few replicas answered: it was not read") if errors else answers))

    def _heard_of_exact_read(self, hear: Hear, answers: list[object]) -> None:
        [answer] = answers
        self._heard_of_read(hear, answer if isinstance(answer, list) else answers)

    @staticmethod
    def _heard_of_send(hear: Hear, answers: list[object]) -> None:
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        hear(_of_change(errors, len(answers)) if errors else None)

    @staticmethod
    def _heard_of_commit(hear: Hear, answers: list[object]) -> None:
        [answer] = answers
        hear(_of_change([answer], 1) if isinstance(answer, Exception) else answer)

    def _plainly(self, wanted: Wanted, watch: Watch | None, home: Replica) -> Coordinating[list[Column]]:
        """A quorum read, page by page; each page as of another moment."""
        if isinstance(wanted, Named):
            found = yield from self.coordinator.read(wanted.row, _asking(wanted))
            return self._walk(wanted, found, home).columns
        low, high, _ = key_codec.bounds(wanted)
        columns: list[Column] = []
        while True:
            left = _limit(wanted) - len(columns)
            size = min(left, self.weather.page)
            found = yield from self.coordinator.read(wanted.row, partial(Row.between, low=low, high=high))
            walked = self._walk(wanted, found, home, limit=size)
            if watch and wanted.type == Type.MESSAGE:
                watch(wanted.row, walked)
            page = walked.columns
            columns += page
            if len(page) < size or size == left:
                return columns
            low = key_codec.encode(page[-1].name) + b"\0"

    def _exactly(self, wanted: tuple[Wanted, ...], home: Replica) -> Coordinating[list[list[Column]]]:
        """Serial reads, one after the other, since they would contend."""
        columns = []
        for each in wanted:
            found = yield from self.coordinator.decide(home, each.row, _asking(each))
            columns.append(self._walk(each, found, home, limit=_limit(each)).columns)
        return columns

    def _walk(self, wanted: Wanted, found: Found, home: Replica, *, limit: int = _MANY) -> Walked:
        """The live columns of what was found, up to the limit; SliceTooLong for too many tombstones."""
        if not found:
            return Walked([], [])
        now, values = home.clock.now(), wanted.values
        first, last = (key_codec.bounds(wanted).ids if isinstance(wanted, Slice) else None) or _ANY
        living: list[tuple[bytes, bytes, int]] = []
        graves: list[bytes] = []
        for name, cell in found.items():
            if len(living) >= limit:
                break
            if cell.lives(now) and first <= name[2:18] < last:
                living.append((name, cell.value if values else b"", cell.stamp))
            else:
                graves.append(name)
        if isinstance(wanted, Slice):
            self.graves[wanted.row] += len(graves)
            self._bear(wanted, len(graves))
        return Walked(key_codec.columns(living), graves)

    def _bear(self, wanted: Slice, graves: int) -> None:
        """Fail on too many tombstones among messages and timers, the types that are read by ranges of ids."""
        if graves > self.weather.graves and not self.network.calm and wanted.type in (Type.MESSAGE, Type.TIMER):
            message = f"row {wanted.row}: {graves} deleted columns in the way"
            raise SliceTooLong(message)

    def _send(self, batch: Batch, stamp: int, home: Replica) -> Coordinating[None]:
        changes = key_codec.changes(batch)
        written = {
            name: _put(put, stamp if put.stamp is None else put.stamp, home.clock.now())
            for name, put in zip(changes.puts, batch.puts, strict=True)
        }
        written.update({name: Cell(stamp, DELETED, home.clock.now(), b"") for name in changes.deletes})
        yield from self.coordinator.write(home, batch.row, written)

    def _commit(self, batch: Batch, expects: tuple[Expectation, ...], home: Replica) -> Coordinating[Outcome]:
        changes, expected = key_codec.committed_changes(batch, expects)
        names = tuple(expected)
        refused: list[Refused] = []

        def deciding(found: Found, ballot: Ballot) -> Changes | None:
            now = home.clock.now()
            present: dict[Name, bytes | None] = {}
            for each, name in zip(expects, names, strict=True):
                cell = found.get(name)
                present[each.name] = cell.value if cell and cell.lives(now) else None
            if any(present[name] != value for name, value in expects):
                refused[:] = [Refused(present)]
                return None
            refused.clear()
            return _written(batch, changes, ballot, now=now)

        yield from self.coordinator.decide(home, batch.row, lambda row: row.named(names), deciding=deciding)
        return refused[0] if refused else Committed()

    def hand_over_hints(self, replica: Replica) -> None:
        """Deliver the hints of a replica to those that are up again, unless they are too old."""
        life = min(_HINTS_LIVE, self.weather.grace_us)
        kept = []
        for hint in replica.hints:
            target = self.replicas[hint.target]
            if not target.up:
                kept.append(hint)
            elif hint.written >= replica.clock.now() - life:
                target.write(hint.row, hint.changes)
        replica.hints = kept

    def repair(self) -> None:
        """Make all replicas that are up equal, as operators do at least once while tombstones are kept."""
        up = [replica for replica in self.replicas if replica.up]
        for name in {name: None for replica in up for name in replica.rows}:
            rows = [replica.row(name) for replica in up]
            everything = Row()
            for row in rows:
                everything.apply(row.cells)
            for row in rows:
                row.apply(everything.cells)


def _limit(wanted: Wanted) -> int:
    return wanted.limit if isinstance(wanted, Slice) and wanted.limit is not None else _MANY


def _of_change(errors: Sequence[object], of: int) -> StoreError:
    if of == len(errors) and all(isinstance(error, TooFew) for error in errors):
        return StoreUnavailable("too few replicas are up: nothing was changed")
    return OutcomeUnknown("no answer in time: it may have been done, or may be yet")


def _asking(wanted: Wanted) -> Asking:
    if isinstance(wanted, Named):
        names = tuple(sorted(key_codec.encode_all(wanted.names)))
        return lambda row: row.named(names)
    low, high, _ = key_codec.bounds(wanted)
    return lambda row: row.between(low, high)


def _put(put: Put, stamp: int, now: int) -> Cell:
    if put.ttl is None:
        return Cell(stamp, LASTING, 0, bytes(put.value))
    return Cell(stamp, EXPIRING, now + put.ttl * SECOND, bytes(put.value))


def _written(batch: Batch, changes: key_codec.Changes, ballot: Ballot, *, now: int) -> Changes:
    """The cells of a commit, stamped by its ballot, whatever stamps were requested.

    Deletes are stamped a microsecond before puts.
    """
    written = {name: _put(put, ballot.moment, now) for name, put in zip(changes.puts, batch.puts, strict=True)}
    written.update({name: Cell(ballot.moment - 1, DELETED, now, b"") for name in changes.deletes})
    return written
