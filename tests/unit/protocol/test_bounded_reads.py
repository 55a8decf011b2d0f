"""Rows full of what was deleted, on a store that gives up a read for it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from astyqueue import ids
from astyqueue.errors import SliceTooLong
from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.admin.browse import counts
from astyqueue.protocol.admin.delete import delete
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import HEADER, SCANS, Type, decode_header, message_name
from astyqueue.protocol.row.bounded_reads import ReadWindow, read_bounded
from astyqueue.protocol.row.snapshot import RowSnapshot, read_all_timers
from astyqueue.protocol.settling.outcomes import ACK, Extend
from astyqueue.protocol.steps import Commit, Read, Request, run
from astyqueue.store import Batch, Column, Name, Put, Refused, Slice, Store, Wanted
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Faulty
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import ROW, Meanwhile
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene, put_at

MOST = 50


class Cemetery(Faulty):
    """Remembers what was deleted, and gives up a slice that passes too much of it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.graves: set[Name] = set()
        self.failed = 0

    def perform(self, request: Request) -> object:
        answer = super().perform(request)
        if isinstance(request, Commit):
            self.graves |= set(request.batch.deletes)
        for wanted in request.wanted if isinstance(request, Read) else ():
            self._pass(wanted)
        return answer

    def _pass(self, wanted: Wanted) -> None:
        if not isinstance(wanted, Slice):
            return
        columns: list[Column] = self._store.read((wanted,))[0]
        end = columns[-1].name.id if wanted.limit is not None and len(columns) == wanted.limit else wanted.until
        passed = [name for name in self.graves if name.type == wanted.type and wanted.after <= name.id < end]
        if len(passed) > MOST:
            self.failed += 1
            message = f"{len(passed)} deleted columns"
            raise SliceTooLong(message)


class Buried(Scene):
    """A row in which much was settled over an hour, and a little waits."""

    def __init__(self, *, settled: int, waiting: int) -> None:
        super().__init__()
        self.cemetery = Cemetery(MemoryStore(self.clock))
        self.store = self.cemetery  # type: ignore[assignment]  # a store, whatever else the scene's own could do
        for _ in range(settled // 20):
            self.send(20)
            [taken] = self.do("ann", want=20).claims
            self.settle(taken, {held.entry.id: ACK for held in taken.held})
            self.clock.advance("30s")
        self.waiting = self.send(waiting)

    def forget_cursors(self) -> None:
        """Delete the cursors from the header, as an accident would."""
        [[column]] = self.store.read((Slice(ROW, Type.LOCK, 0),))
        header = decode_header(ROW, column.value)
        blank = replace(header, cursors=tuple((ids.LEAST,) * SCANS for _ in header.cursors))
        self.store.commit(Batch(ROW, (Put(HEADER, blank.encode()),)), ())


@pytest.fixture
def scene() -> Buried:
    return Buried(settled=1_000, waiting=3)


def test_a_slice_that_passes_too_much_is_read_in_stretches(scene: Buried) -> None:
    wanted = Slice(ROW, Type.MESSAGE, 0, limit=10)
    with pytest.raises(SliceTooLong):
        scene.store.read((wanted,))
    columns, long = run(read_bounded(wanted, scene.now, ReadWindow()), scene.store)
    assert ([column.name.id for column in columns], long) == (scene.waiting, True)


@pytest.mark.parametrize("limit", [1, 2, 3, None])
def test_no_more_is_read_than_was_asked_for_and_nothing_twice(scene: Buried, limit: int | None) -> None:
    columns, _ = run(read_bounded(Slice(ROW, Type.MESSAGE, 0, limit=limit), scene.now, ReadWindow()), scene.store)
    assert [column.name.id for column in columns] == scene.waiting[:limit]


def test_what_lies_ahead_of_the_clock_is_read_as_well(scene: Buried) -> None:
    later: Id = ids.at(scene.now + 3_600 * SECOND)
    scene.store.send(Batch(ROW, (Put(message_name(0, later), b"later"),)))
    columns, _ = run(read_bounded(Slice(ROW, Type.MESSAGE, 0), scene.now, ReadWindow()), scene.store)
    assert [column.name.id for column in columns] == [*scene.waiting, later]


def test_what_no_stretch_is_short_enough_for_is_reported(clock: TimeMachine) -> None:
    cemetery = Cemetery(MemoryStore(clock))
    cemetery.graves = {message_name(0, ids.at(clock.now())) for _ in range(MOST + 1)}
    with pytest.raises(SliceTooLong):
        run(read_bounded(Slice(ROW, Type.MESSAGE, 0), clock.now(), ReadWindow()), cemetery)


def test_a_row_whose_cursors_are_lost_is_slower_once_and_loses_nothing(scene: Buried) -> None:
    scene.forget_cursors()
    [taken] = scene.do("bob", snapshot=RowSnapshot(ROW, 1)).claims
    assert [held.entry.id for held in taken.held] == scene.waiting
    assert scene.cemetery.failed > 0
    scene.clock.advance("1s")
    more = scene.send(2)
    [taken] = scene.do("cid", snapshot=RowSnapshot(ROW, 1)).claims
    assert [held.entry.id for held in taken.held] == more


def test_a_scan_that_finds_nothing_to_claim_is_stored_for_the_others() -> None:
    """Four scans, as at every range of ids; then no process goes there again."""
    scene = Buried(settled=1_000, waiting=0)
    scene.forget_cursors()
    snapshot = RowSnapshot(ROW, 1)
    for _ in range(3):
        assert scene.do("bob", snapshot=snapshot).claims == []
        scene.clock.advance("11m")
    failed = scene.cemetery.failed
    assert failed > 0
    assert scene.do("cid", snapshot=RowSnapshot(ROW, 1)).claims == []
    assert scene.cemetery.failed == failed


class RefusedOnce(Faulty):
    """Refuses the first commit that changes nothing but the header, and shows the header that was expected."""

    refused = 0

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit) and [put.name for put in request.batch.puts] == [HEADER] and not self.refused:
            self.refused += 1
            return Refused({expected.name: expected.value for expected in request.expects})
        return super().perform(request)


def test_when_the_commit_of_the_cursors_is_refused_scans_continue_from_where_they_were() -> None:
    scene = Buried(settled=1_000, waiting=0)
    scene.forget_cursors()
    snapshot = RowSnapshot(ROW, 1)
    scene.store = store = RefusedOnce(scene.cemetery)  # type: ignore[assignment]  # as in `Buried`
    assert scene.do("bob", snapshot=snapshot).claims == []
    assert store.refused == 1
    [reached] = snapshot.scans.cursors
    assert [cursor > ids.LEAST for cursor in reached] == [True] + [False] * (SCANS - 1)
    scene.clock.advance("1s")
    sent = scene.send(2)
    [taken] = scene.do("bob", snapshot=snapshot).claims
    assert [held.entry.id for held in taken.held] == sent


def test_counting_goes_through_it_too(scene: Buried) -> None:
    scene.forget_cursors()
    assert run(counts(scene.process("bob"), [ROW], levels=1), scene.store).waiting == 3


class Row(Faulty):
    """A row in which `rate` messages a second were settled for a while, on a store that fails at 100 000 tombstones."""

    def __init__(self, store: Store, *, rate: int, since: int, until: int) -> None:
        super().__init__(store)
        self._rate = rate
        self._since = since
        self._until = until
        self.failed = 0
        self.slices = 0

    def perform(self, request: Request) -> object:
        for wanted in request.wanted if isinstance(request, Read) else ():
            if isinstance(wanted, Slice) and wanted.type == Type.MESSAGE:
                self._pass(wanted)
        return super().perform(request)

    def _pass(self, wanted: Slice) -> None:
        self.slices += 1
        seconds = (min(ids.moment(wanted.until), self._until) - max(ids.moment(wanted.after), self._since)) / SECOND
        if seconds * self._rate > 100_000:
            self.failed += 1
            message = f"{seconds * self._rate} deleted columns"
            raise SliceTooLong(message)


def busy_scene(rate: int) -> tuple[Scene, RowSnapshot]:
    """A process that claimed a thousand messages of a row at this rate a second."""
    scene, snapshot = Scene(), RowSnapshot(ROW, 1)
    for _ in range(50):
        scene.put(*[put_at(scene.now + number * SECOND // rate) for number in range(20)])
        scene.clock.advance(20 / rate)
        for taken in scene.do("ann", snapshot=snapshot, want=200).claims:
            scene.acked(taken, snapshot=snapshot)
    return scene, snapshot


@pytest.mark.parametrize("rate", [30, 300, 3_000])
def test_an_hour_that_a_late_scan_has_left_out_is_scanned_without_a_failure_by_who_worked_in_the_row(rate: int) -> None:
    scene, snapshot = busy_scene(rate)
    row = Row(scene.store, rate=rate, since=scene.now - 3_600 * SECOND, until=scene.now)
    scene.clock.advance("11m")
    snapshot.scans.cursors[0][-1] = ids.first_at(scene.now - 4_260 * SECOND)
    run(claim(scene.process("ann"), snapshot, ClaimRequest(10, LEASE, ATTEMPTS)), row)
    assert row.failed == 0
    assert row.slices <= 10 + 3_600 * rate // 30_000


@pytest.mark.parametrize("rate", [30, 300, 3_000])
def test_who_never_worked_in_a_row_fails_a_few_times_and_remembers(rate: int) -> None:
    scene = Scene()
    hour = Slice(
        ROW,
        Type.MESSAGE,
        0,
        after=ids.first_at(scene.now - 3_600 * SECOND),
        until=ids.first_at(scene.now),
        values=False,
    )
    row = Row(scene.store, rate=rate, since=scene.now - 3_600 * SECOND, until=scene.now)
    window = ReadWindow()
    run(read_bounded(hour, scene.now, window), row)
    assert row.failed <= 1 + 3_600 * rate // 1_000_000
    failed = row.failed
    run(read_bounded(hour, scene.now, window), row)
    assert row.failed - failed <= 3_600 * rate // 1_000_000


def test_what_is_known_of_one_row_of_the_ring_counts_for_the_others() -> None:
    queue = ReadWindow()
    busy, other = ReadWindow(queue), ReadWindow(queue)
    busy.saw(200, ids.first_at(0), ids.first_at(SECOND))
    assert other.first == busy.first == 50 * SECOND


def test_a_row_that_rests_most_of_the_time_counts_with_the_rate_of_its_busy_times() -> None:
    window = ReadWindow()
    for hour in range(10):
        window.saw(1, ids.first_at(hour * 3_600 * SECOND), ids.first_at((hour + 1) * 3_600 * SECOND))
    assert window.lasts(1) == 60 * SECOND


def test_a_thousand_messages_of_one_moment_do_not_show_how_fast_messages_come() -> None:
    window = ReadWindow()
    window.saw(1_000, ids.first_at(0), ids.first_at(1))
    assert window.longest > 10 * SECOND


def test_a_quiet_row_is_read_at_once_however_long_it_was_quiet() -> None:
    scene, snapshot = Scene(), RowSnapshot(ROW, 1)
    for _ in range(3):
        scene.send(1)
        [taken] = scene.do("ann", snapshot=snapshot).claims
        scene.acked(taken, snapshot=snapshot)
        scene.clock.advance("8h")
    row = Row(scene.store, rate=0, since=0, until=0)
    scene.clock.advance("11m")
    scene.send(1)
    assert run(claim(scene.process("ann"), snapshot, ClaimRequest(10, LEASE, ATTEMPTS)), row).claims
    assert row.slices == SCANS


class LongLease(Buried):
    """A row in which one process has held two messages for forty minutes, and others claimed and settled meanwhile."""

    def __init__(self) -> None:
        super().__init__(settled=0, waiting=2)
        [self.held] = self.do("dan", lease=3_600 * SECOND).claims
        snapshot = RowSnapshot(ROW, 1)
        for _ in range(4 * MOST):
            self.clock.advance("12s")
            self.send(1)
            [taken] = self.do("ann", snapshot=snapshot, want=1, lease=3_600 * SECOND).claims
            self.acked(taken, snapshot=snapshot)
        self.clock.advance("1s")


def test_who_comes_to_a_row_with_one_long_lease_beside_many_short_ones_claims_in_it() -> None:
    scene = LongLease()
    sent = scene.send(3)
    [taken] = scene.do("bob").claims
    assert [held.entry.id for held in taken.held] == sent
    assert scene.cemetery.failed > 0


def test_who_knows_that_timers_are_read_in_stretches_begins_with_them() -> None:
    scene = LongLease()
    snapshot = RowSnapshot(ROW, 1)
    scene.do("bob", snapshot=snapshot)
    failed = scene.cemetery.failed
    for _ in range(5):
        snapshot.forget()
        scene.clock.advance("1s")
        sent = scene.send(1)
        [taken] = scene.do("bob", snapshot=snapshot).claims
        assert [held.entry.id for held in taken.held] == sent
    assert scene.cemetery.failed == failed


def test_a_timer_that_changed_is_found_again_among_many_that_are_gone() -> None:
    """An operator deletes one of the two messages, so the settle of the other meets another timer than its own."""
    scene = LongLease()
    gone, left = scene.waiting
    run(delete(scene.process("cyd"), MessageId(ROW, 0, gone)), scene.store)
    settled = scene.settle(scene.held, {gone: ACK, left: ACK}, name="dan")
    assert (settled.lost, [name.id for settle_plan in settled.done for name in settle_plan.acked]) == ([gone], [left])


def test_a_lease_that_moves_up_while_timers_are_read_in_stretches_is_seen() -> None:
    """Before whatever request it is extended: its message is hidden from who reads."""
    for at in range(1, 40):
        scene = LongLease()
        store = Meanwhile(scene.store, partial(extend, scene), at=at)
        timers = run(read_all_timers(ROW, scene.held.timer.due), store)
        assert {entry.id for timer in timers for entry in timer.entries} == set(scene.waiting)
        if len(store.requests) < at:
            return
    pytest.fail("it never came to an end")


def extend(scene: LongLease) -> None:
    """The lease moves to a later timer."""
    scene.settle(
        scene.held, {held.entry.id: Extend(scene.now + 7_200 * SECOND) for held in scene.held.held}, name="dan"
    )


@pytest.mark.parametrize("back", [0, 1, 2, 40 * SECOND])
def test_what_was_cancelled_ahead_of_the_clock_is_read_past(back: int) -> None:
    """Wherever the reading begins: a message is left behind many that will never come due."""
    scene = Buried(settled=0, waiting=0)
    row = Row(scene.store, rate=200, since=scene.now, until=scene.now + 3_600 * SECOND)
    last = put_at(scene.now + 3_601 * SECOND)
    scene.put(last)
    window = ReadWindow()
    for _ in range(2):
        wanted = Slice(ROW, Type.MESSAGE, 0, after=ids.first_at(scene.now - back))
        columns, _ = run(read_bounded(wanted, scene.now, window), row)
        assert [column.name for column in columns] == [last.name]
    failed = row.failed
    run(read_bounded(wanted, scene.now, window), row)
    assert row.failed == failed > 0


def test_a_row_that_is_new_is_not_scanned_from_the_beginning_of_time() -> None:
    """Also where messages came so fast that stretches would be short."""
    scene, snapshot = Scene(), RowSnapshot(ROW, 1)
    row = Row(scene.store, rate=0, since=0, until=0)
    for _ in range(3):
        scene.send(200)
        scene.clock.advance("1s")
        run(claim(scene.process("ann"), snapshot, ClaimRequest(200, LEASE, ATTEMPTS)), row)
    assert row.slices <= 3 * SCANS + 1
