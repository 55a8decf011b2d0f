"""A simulated Cassandra as clients see it: requests for rows go in; answers and errors come out, sooner or later."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
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
from tests.simulation.engine.event_loop import Deadlines, EventLoop, SkewedClock
from tests.simulation.engine.fault_profile import FaultProfile

#: A request of a client that has no answer after this long has an unknown outcome.
TIMEOUT = 2 * SECOND
_HINTS_LIVE = 3 * 3_600 * SECOND
_MANY = 1 << 30

OnAnswer = Callable[[object], None]
#: A request, to be carried out on some node.
Job = Callable[[Replica], Coordinating[object]]


class Scanned(NamedTuple):
    """What one read passed over: the live columns, and the names of the tombstones among them."""

    columns: list[Column]
    tombstones: list[bytes]


#: Called for each page of messages that is read, with its row and what the read passed over.
Watch = Callable[[str, Scanned], None]


class _ParallelRequests:
    """Requests that run together; the caller gets all answers, in their order, when the last of them has come."""

    __slots__ = ("_answers", "_gather", "_left", "_on_answer")

    def __init__(self, gather: Callable[[list[object]], object], on_answer: OnAnswer, count: int) -> None:
        """Await this number of answers, of which `gather` makes the one for the caller."""
        self._gather = gather
        self._on_answer = on_answer
        self._left = count
        self._answers: list[object] = [None] * count

    def came(self, place: int, answer: object) -> None:
        """Note the answer, or the error, of one request."""
        self._answers[place] = answer
        self._left -= 1
        if not self._left:
            self._on_answer(self._gather(self._answers))


class Call:
    """A request to one row, on its way to a node and back; `met`: it was answered, or its client gave up."""

    __slots__ = ("_parallel", "_place", "job", "met")

    def __init__(self, job: Job, parallel: _ParallelRequests, place: int) -> None:
        """It is not answered yet."""
        self.job = job
        self.met = False
        self._parallel = parallel
        self._place = place

    def came(self, answer: object) -> None:
        """Give its client the answer, or the error, unless that has one."""
        if not self.met:
            self.met = True
            self._parallel.came(self._place, answer)

    def time_is_up(self) -> None:
        """Let its client go on without an answer."""
        self.came(TimedOut())


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
        self._timeouts = Deadlines(event_loop, TIMEOUT)

    def request(
        self, request: Read | Send | Commit, machine: SkewedClock, on_answer: OnAnswer, watch: Watch | None = None
    ) -> None:
        """Carry out a request; `on_answer` gets the answer or the StoreError, `watch` each page of messages."""
        jobs: Sequence[Job]
        gather: Callable[[list[object]], object]
        if isinstance(request, Send):
            batches = (request.batch, *request.more)
            stamp = machine.stamps(len(batches))
            gather, jobs = _answer_of_send, [partial(self._send, each, stamp + n) for n, each in enumerate(batches)]
        elif isinstance(request, Commit):
            gather, jobs = _answer_of_commit, [partial(self._commit, request.batch, request.expects)]
        elif request.exact:
            gather, jobs = _answer_of_exact_read, [partial(self._exactly, request.wanted)]
        else:
            gather, jobs = _answer_of_read, [partial(self._plainly, each, watch) for each in request.wanted]
        if not jobs:
            on_answer([])
        pending = _ParallelRequests(gather, on_answer, len(jobs))
        for place, job in enumerate(jobs):
            self._call(Call(job, pending, place))

    def _call(self, call: Call) -> None:
        """Send a request to some node, and make sure that there is an answer in time."""
        up = [replica for replica in self.replicas if replica.up]
        if not up:
            self.event_loop.call_later(SECOND, call.came, TooFew())
            return
        local = self._rng.choice(up)
        self.event_loop.call_later(self.network.latency(), self._begin, local, call)
        self._timeouts.set(call)

    def _begin(self, local: Replica, call: Call) -> None:
        if local.paused_until > self.event_loop.now:
            self.event_loop.call_at(local.paused_until, self._begin, local, call)
        elif local.up:
            self.network.coordinate(
                local,
                call.job(local),
                lambda answer: self.event_loop.call_later(self.network.latency(), call.came, answer),
            )

    def _plainly(self, wanted: Wanted, watch: Watch | None, local: Replica) -> Coordinating[list[Column]]:
        """A quorum read, page by page; each page as of another moment."""
        if self.activity_log and self.activity_log.unreadable(wanted.row):
            raise TooFew
        if isinstance(wanted, Named):
            found = yield from self.coordinator.read(wanted.row, _asking(wanted))
            return _alive(found, wanted, local.clock.now(), _MANY).columns
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

    def _scan_page(self, wanted: Wanted, found: Found, local: Replica, *, limit: int) -> Scanned:
        """The live columns of what was found, up to the limit; SliceTooLong for too many tombstones."""
        scanned = _alive(found, wanted, local.clock.now(), limit)
        if scanned.tombstones and isinstance(wanted, Slice):
            self.tombstones[wanted.row] += len(scanned.tombstones)
            self._insert(wanted, len(scanned.tombstones))
        return scanned

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


def _alive(found: Found, wanted: Wanted, now: int, limit: int) -> Scanned:
    """What a read at this moment of its coordinator's clock shows of what was found, and what it passes over."""
    if not found:
        return Scanned([], [])
    within = column_name_codec.bounds(wanted).ids if isinstance(wanted, Slice) else None
    living: list[tuple[bytes, bytes, int]] = []
    tombstones: list[bytes] = []
    for name, cell in found.items():
        if len(living) >= limit:
            break
        if cell.is_live(now) and (within is None or within[0] <= name[2:18] < within[1]):
            living.append((name, cell.value if wanted.values else b"", cell.stamp))
        else:
            tombstones.append(name)
    return Scanned(column_name_codec.columns(living) if living else [], tombstones)


def _answer_of_read(answers: list[object]) -> object:
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    if not errors:
        return answers
    too_long = next((error for error in errors if isinstance(error, SliceTooLong)), None)
    return too_long or StoreUnavailable("too few replicas answered: it was not read")


def _answer_of_exact_read(answers: list[object]) -> object:
    [answer] = answers
    return _answer_of_read(answer if isinstance(answer, list) else answers)


def _answer_of_send(answers: list[object]) -> object:
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    return _of_change(errors, len(answers)) if errors else None


def _answer_of_commit(answers: list[object]) -> object:
    [answer] = answers
    return _of_change([answer], 1) if isinstance(answer, Exception) else answer


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
