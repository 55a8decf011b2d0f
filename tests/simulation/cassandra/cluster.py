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
from astyqueue.stores import column_name_codec
from astyqueue.units import SECOND
from tests.simulation.cassandra.coordinator import AcceptRecorder, Coordinator, TimedOut, TooFew
from tests.simulation.cassandra.network import Coordinating, Delay, Network
from tests.simulation.cassandra.replica import Ballot, Replica, Selection
from tests.simulation.cassandra.storage import DELETED, EXPIRING, LASTING, Cell, Changes, Found, Row
from tests.simulation.cassandra.unreliable_log import UnreliableLog
from tests.simulation.engine.event_loop import EventLoop, SkewedClock
from tests.simulation.engine.fault_profile import FaultProfile

#: A request of a client that has no answer after this long has an unknown outcome.
TIMEOUT = 2 * SECOND
_HINTS_LIVE = 3 * 3_600 * SECOND
_MANY = 1 << 30
#: Bounds between which every id is.
_ANY = (b"", b"\xff" * 17)

OnAnswer = Callable[[object], None]
#: A request, to be carried out on some node.
Job = Callable[[Replica], Coordinating[object]]


class Scanned(NamedTuple):
    """What one read passed over: the live columns, and the names of the tombstones among them."""

    columns: list[Column]
    tombstones: list[bytes]


#: Called for each page of messages that is read, with its row and what the read passed over.
Watch = Callable[[str, Scanned], None]


@dataclass(slots=True, eq=False)
class _ParallelRequests:
    """Requests that run together; the caller gets all answers when the last of them has come."""

    on_answer: OnAnswer
    left: int
    answers: dict[int, object] = field(default_factory=dict)

    def came(self, place: int, answer: object) -> None:
        """Note the answer, or the error, of one request."""
        if self.left and place not in self.answers:
            self.answers[place] = answer
            self.left -= 1
            if not self.left:
                self.on_answer([self.answers[each] for each in sorted(self.answers)])


class Cluster:
    """Replicas, the network between them, and the way to them."""

    def __init__(
        self, event_loop: EventLoop, profile: FaultProfile, rng: random.Random, *, record_accept: AcceptRecorder
    ) -> None:
        """All replicas are up and empty; `record_accept` is called for every proposal that a replica accepts.

        The activity log is as reliable as all else, unless `activity_log` is set.
        """
        self.event_loop = event_loop
        self.activity_log: UnreliableLog | None = None
        self.profile = profile
        self.replicas = [
            Replica(number, SkewedClock(event_loop, profile.node_skew(rng))) for number in range(profile.replicas)
        ]
        self.network = Network(event_loop, profile, rng)
        self.coordinator = Coordinator(self.network, self.replicas, record_accept=record_accept, rng=rng)
        self.tombstones: Counter[str] = Counter()
        self._rng = rng

    def request(
        self, request: Read | Send | Commit, machine: SkewedClock, on_answer: OnAnswer, watch: Watch | None = None
    ) -> None:
        """Carry out a request; `on_answer` gets the answer or the StoreError, `watch` each page of messages."""
        jobs: Sequence[Job]
        match request:
            case Read(wanted, True):
                pending = _ParallelRequests(partial(self._answer_exact_read, on_answer), 1)
                jobs = [partial(self._exactly, wanted)]
            case Read(wanted):
                pending = _ParallelRequests(partial(self._answer_read, on_answer), len(wanted))
                jobs = [partial(self._plainly, each, watch) for each in wanted]
            case Send(batch, more):
                pending = _ParallelRequests(partial(self._answer_send, on_answer), 1 + len(more))
                jobs = [
                    partial(self._send, each, machine.machine() + place) for place, each in enumerate((batch, *more))
                ]
            case Commit(batch, expects):
                pending = _ParallelRequests(partial(self._answer_commit, on_answer), 1)
                jobs = [partial(self._commit, batch, expects)]
        if not jobs:
            on_answer([])
        for place, job in enumerate(jobs):
            self._call(job, partial(pending.came, place))

    def _call(self, job: Job, on_answer: OnAnswer) -> None:
        """Send a request to some node, and make sure that there is an answer in time."""
        up = [replica for replica in self.replicas if replica.up]
        if not up:
            self.event_loop.call_later(SECOND, on_answer, TooFew())
            return
        local = self._rng.choice(up)
        self.event_loop.call_later(self.network.latency(), self._begin, local, job, on_answer)
        self.event_loop.call_later(TIMEOUT, on_answer, TimedOut())

    def _begin(self, local: Replica, job: Job, on_answer: OnAnswer) -> None:
        if local.paused_until > self.event_loop.now:
            self.event_loop.call_at(local.paused_until, self._begin, local, job, on_answer)
        elif local.up:
            self.network.coordinate(
                local, job(local), lambda answer: self.event_loop.call_later(self.network.latency(), on_answer, answer)
            )

    @staticmethod
    def _answer_read(on_answer: OnAnswer, answers: list[object]) -> None:
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        too_long = next((error for error in errors if isinstance(error, SliceTooLong)), None)
        on_answer(too_long or (StoreUnavailable("too few replicas answered: it was not read") if errors else answers))

    def _answer_exact_read(self, on_answer: OnAnswer, answers: list[object]) -> None:
        [answer] = answers
        self._answer_read(on_answer, answer if isinstance(answer, list) else answers)

    @staticmethod
    def _answer_send(on_answer: OnAnswer, answers: list[object]) -> None:
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        on_answer(_of_change(errors, len(answers)) if errors else None)

    @staticmethod
    def _answer_commit(on_answer: OnAnswer, answers: list[object]) -> None:
        [answer] = answers
        on_answer(_of_change([answer], 1) if isinstance(answer, Exception) else answer)

    def _plainly(self, wanted: Wanted, watch: Watch | None, local: Replica) -> Coordinating[list[Column]]:
        """A quorum read, page by page; each page as of another moment."""
        if self.activity_log and self.activity_log.unreadable(wanted.row):
            raise TooFew
        if isinstance(wanted, Named):
            found = yield from self.coordinator.read(wanted.row, _asking(wanted))
            return self._scan_page(wanted, found, local).columns
        low, high, _ = column_name_codec.bounds(wanted)
        columns: list[Column] = []
        while True:
            left = _limit(wanted) - len(columns)
            size = min(left, self.profile.page)
            found = yield from self.coordinator.read(wanted.row, partial(Row.between, low=low, high=high))
            scanned = self._scan_page(wanted, found, local, limit=size)
            if watch and wanted.type == Type.MESSAGE:
                watch(wanted.row, scanned)
            page = scanned.columns
            columns += page
            if len(page) < size or size == left:
                return columns
            low = column_name_codec.encode(page[-1].name) + b"\0"

    def _exactly(self, wanted: tuple[Wanted, ...], local: Replica) -> Coordinating[list[list[Column]]]:
        """Serial reads, one after the other, since they would contend."""
        columns = []
        for each in wanted:
            found = yield from self.coordinator.decide(local, each.row, _asking(each))
            columns.append(self._scan_page(each, found, local, limit=_limit(each)).columns)
        return columns

    def _scan_page(self, wanted: Wanted, found: Found, local: Replica, *, limit: int = _MANY) -> Scanned:
        """The live columns of what was found, up to the limit; SliceTooLong for too many tombstones."""
        if not found:
            return Scanned([], [])
        now, values = local.clock.now(), wanted.values
        first, last = (column_name_codec.bounds(wanted).ids if isinstance(wanted, Slice) else None) or _ANY
        living: list[tuple[bytes, bytes, int]] = []
        tombstones: list[bytes] = []
        for name, cell in found.items():
            if len(living) >= limit:
                break
            if cell.is_live(now) and first <= name[2:18] < last:
                living.append((name, cell.value if values else b"", cell.stamp))
            else:
                tombstones.append(name)
        if isinstance(wanted, Slice):
            self.tombstones[wanted.row] += len(tombstones)
            self._insert(wanted, len(tombstones))
        return Scanned(column_name_codec.columns(living), tombstones)

    def _insert(self, wanted: Slice, tombstones: int) -> None:
        """Fail on too many tombstones among messages and timers, the types that are read by ranges of ids."""
        if tombstones > self.profile.tombstones and not self.network.calm and wanted.type in (Type.MESSAGE, Type.TIMER):
            message = f"row {wanted.row}: {tombstones} deleted columns in the way"
            raise SliceTooLong(message)

    def _send(self, batch: Batch, stamp: int, local: Replica) -> Coordinating[None]:
        changes = column_name_codec.changes(batch)
        written = {
            name: _put(put, stamp if put.stamp is None else put.stamp, local.clock.now())
            for name, put in zip(changes.puts, batch.puts, strict=True)
        }
        written.update({name: Cell(stamp, DELETED, local.clock.now(), b"") for name in changes.deletes})
        if self.activity_log and self.activity_log.has(batch.row):
            yield from self._write_notice(self.activity_log, batch, written, local)
        else:
            yield from self.coordinator.write(local, batch.row, written)

    def _write_notice(self, log: UnreliableLog, batch: Batch, written: Changes, local: Replica) -> Coordinating[None]:
        """Write a notice now or late, or lose it and acknowledge it all the same."""
        late, writing = log.lateness(batch), self.coordinator.write(local, batch.row, written)
        if late and log.acknowledges_first():
            self.event_loop.call_later(late, self.network.coordinate, local, writing, lambda _: None)
        elif late is not None:
            yield Delay(late)
            yield from writing

    def _commit(self, batch: Batch, expects: tuple[Expectation, ...], local: Replica) -> Coordinating[Outcome]:
        changes, expected = column_name_codec.committed_changes(batch, expects)
        names = tuple(expected)
        refused: list[Refused] = []

        def condition(found: Found, ballot: Ballot) -> Changes | None:
            now = local.clock.now()
            present: dict[Name, bytes | None] = {}
            for each, name in zip(expects, names, strict=True):
                cell = found.get(name)
                present[each.name] = cell.value if cell and cell.is_live(now) else None
            if any(present[name] != value for name, value in expects):
                refused[:] = [Refused(present)]
                return None
            refused.clear()
            return _written(batch, changes, ballot, now=now)

        yield from self.coordinator.decide(local, batch.row, lambda row: row.named(names), condition=condition)
        return refused[0] if refused else Committed()

    def hand_over_hints(self, replica: Replica) -> None:
        """Deliver the hints of a replica to those that are up again, unless they are too old."""
        life = min(_HINTS_LIVE, self.profile.grace_us)
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


def _asking(wanted: Wanted) -> Selection:
    if isinstance(wanted, Named):
        names = tuple(sorted(column_name_codec.encode_all(wanted.names)))
        return lambda row: row.named(names)
    low, high, _ = column_name_codec.bounds(wanted)
    return lambda row: row.between(low, high)


def _put(put: Put, stamp: int, now: int) -> Cell:
    if put.ttl is None:
        return Cell(stamp, LASTING, 0, bytes(put.value))
    return Cell(stamp, EXPIRING, now + put.ttl * SECOND, bytes(put.value))


def _written(batch: Batch, changes: column_name_codec.Changes, ballot: Ballot, *, now: int) -> Changes:
    """The cells of a commit, stamped by its ballot, whatever stamps were requested.

    Deletes are stamped a microsecond before puts.
    """
    written = {name: _put(put, ballot.moment, now) for name, put in zip(changes.puts, batch.puts, strict=True)}
    written.update({name: Cell(ballot.moment - 1, DELETED, now, b"") for name in changes.deletes})
    return written
