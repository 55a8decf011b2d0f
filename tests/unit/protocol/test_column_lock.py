"""The lock of columns: what it does right where its ancestor did not, who wins, and claims under it, in all orders."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest

from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.model.envelope import FORMAT
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.coordination.row_lock import ColumnLock, LockHandle, LockState
from astyqueue.protocol.layout.columns import HEADER, Type
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Client, Read, Request, Send, Steps, perform, run
from astyqueue.store import Batch, Name, Put, Slice, Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Failing, Faulty, Recording
from astyqueue.units import SECOND
from tests.modelcheck.executor import History, Scenario, deterministic_client
from tests.modelcheck.explorer import explore
from tests.modelcheck.schedule import Work
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene, Told, acking

ROW = "mail:0:0"
TIMEOUT = 5 * SECOND


@pytest.fixture
def store(clock: TimeMachine) -> Store:
    return MemoryStore(clock)


def lock_of(name: str, clock: TimeMachine, *, ahead: int = 0) -> ColumnLock:
    """A process, by name, whose clock is ahead by `ahead` microseconds."""
    process = deterministic_client(name, clock)
    return ColumnLock(Client(name, lambda: clock.now() + ahead, process.id_at, process.nonce), TIMEOUT)


def columns(store: Store) -> list[Name]:
    [found] = store.read((Slice(ROW, Type.LOCK),))
    return [column.name for column in found if column.name != HEADER]


def release(store: Store, grip: LockHandle) -> None:
    store.send(Batch(ROW, deletes=grip.columns))


def test_the_holder_keeps_others_out_until_its_column_is_gone(store: Store, clock: TimeMachine) -> None:
    ann, bob = lock_of("ann", clock), lock_of("bob", clock)
    grip = run(ann.acquire(ROW), store)
    assert grip is not None
    assert [name.state for name in columns(store)] == [LockState.ACQUIRED]
    assert run(bob.acquire(ROW), store) is None
    assert columns(store) == list(grip.columns)
    release(store, grip)
    assert run(bob.acquire(ROW), store) is not None


def test_a_lock_counts_for_its_timeout_in_the_units_it_was_given_in(store: Store, clock: TimeMachine) -> None:
    assert run(lock_of("ann", clock).acquire(ROW), store)
    bob = lock_of("bob", clock)
    clock.advance("4999ms")
    assert run(bob.acquire(ROW), store) is None
    clock.advance("1ms")
    assert run(bob.acquire(ROW), store) is not None


def test_a_stale_lock_stops_nobody_even_once_and_is_removed(store: Store, clock: TimeMachine) -> None:
    assert run(lock_of("ann", clock).acquire(ROW), store)
    clock.advance("6s")
    grip = run(lock_of("bob", clock).acquire(ROW), store)
    assert grip is not None
    assert columns(store) == list(grip.columns)


def test_the_winner_writes_one_column_however_many_candidates_there_are(store: Store, clock: TimeMachine) -> None:
    ann = lock_of("ann", clock).acquire(ROW)
    answer = perform(next(ann), store)
    clock.advance("1ms")
    for name in ("bob", "cyd"):
        perform(next(lock_of(name, clock).acquire(ROW)), store)
    grip = _finish(ann, answer, store)
    assert grip is not None
    assert [name for name in columns(store) if name.state == LockState.ACQUIRED] == list(grip.columns)
    assert len(columns(store)) == 3


def test_a_clock_that_is_slow_sorts_first_and_still_leaves_a_lock_to_its_holder(
    store: Store, clock: TimeMachine
) -> None:
    grip = run(lock_of("ann", clock).acquire(ROW), store)
    assert grip is not None
    assert run(lock_of("bob", clock, ahead=-2 * SECOND).acquire(ROW), store) is None
    assert columns(store) == list(grip.columns)


@pytest.mark.parametrize("ahead", [-30 * SECOND, 30 * SECOND])
def test_a_wrong_clock_takes_no_column_of_its_own_for_another(store: Store, clock: TimeMachine, ahead: int) -> None:
    assert run(lock_of("ann", clock, ahead=ahead).acquire(ROW), store) is not None


def test_a_column_that_is_not_there_when_it_is_read_back_is_no_lock(store: Store, clock: TimeMachine) -> None:
    class Forgetful(Faulty):
        def perform(self, request: Request) -> object:
            done = super().perform(request)
            return [[]] if isinstance(request, Read) else done

    assert run(lock_of("ann", clock).acquire(ROW), Forgetful(store)) is None
    assert columns(store) == []


@pytest.mark.parametrize(("of", "at"), [(Send, 1), (Read, 1), (Send, 2)])
def test_an_error_while_acquiring_leaves_no_column_and_writes_none_twice(
    store: Store, clock: TimeMachine, of: type[Send | Read], at: int
) -> None:
    recording = Recording(store)
    failing = Failing(recording, StoreUnavailable("it is away"), of=(of,), at=at)
    with pytest.raises(StoreUnavailable):
        run(lock_of("ann", clock).acquire(ROW), failing)
    assert columns(store) == []
    put = [put.name for request in recording.requests if isinstance(request, Send) for put in request.batch.puts]
    assert len(put) == len(set(put))


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("at", [1, 2])
def test_after_a_write_of_unknown_outcome_the_lock_is_acquired_if_it_is_read_back(
    store: Store, clock: TimeMachine, at: int, *, applied: bool
) -> None:
    failing = Failing(store, OutcomeUnknown("who knows"), of=(Send,), at=at, applied=applied)
    grip = run(lock_of("ann", clock).acquire(ROW), failing)
    assert (grip is None) == (at == 1 and not applied)
    release(store, grip or LockHandle())
    assert columns(store) == []


def test_no_column_is_written_twice_or_deleted_twice(store: Store, clock: TimeMachine) -> None:
    recording = Recording(store)
    locks = [lock_of(name, clock) for name in ("ann", "bob")]
    kept = run(locks[0].acquire(ROW), recording)
    assert kept is not None
    for lock in locks * 2:
        clock.advance("1ms")
        assert run(lock.acquire(ROW), recording) is None
    release(recording, kept)
    release(recording, run(locks[1].acquire(ROW), recording) or LockHandle())
    batches = [request.batch for request in recording.requests if isinstance(request, Send)]
    put = [put.name for batch in batches for put in batch.puts]
    deleted = [name for batch in batches for name in batch.deletes]
    assert len(put) == len(set(put))
    assert sorted(deleted) == sorted(put)


def test_columns_of_a_day_ago_are_not_read(store: Store, clock: TimeMachine) -> None:
    """What was deleted lies there still, and a copy that was away for days may bring back what was."""
    run(lock_of("ann", clock).acquire(ROW), store)
    [old] = columns(store)
    clock.advance("1d")
    store.send(Batch(ROW, (Put(old, FORMAT + (clock.now() + TIMEOUT).to_bytes(8) + b"ann"),)))
    recording = Recording(store)
    assert run(lock_of("bob", clock).acquire(ROW), recording) is not None
    [wanted] = [wanted for request in recording.requests if isinstance(request, Read) for wanted in request.wanted]
    assert isinstance(wanted, Slice)
    assert wanted.after > old.id


def test_a_lock_that_cannot_be_read_counts_by_its_age(store: Store, clock: TimeMachine) -> None:
    run(lock_of("ann", clock).acquire(ROW), store)
    [name] = columns(store)
    store.send(Batch(ROW, (Put(name, b"\xff", clock.now()),)))
    assert run(lock_of("bob", clock).acquire(ROW), store) is None
    clock.advance("5s")
    assert run(lock_of("bob", clock).acquire(ROW), store) is not None


def test_lock_columns_expire_after_twice_their_timeout(store: Store, clock: TimeMachine) -> None:
    run(lock_of("ann", clock).acquire(ROW), store)
    clock.advance("10s")
    assert columns(store) == []


def test_of_three_candidates_at_least_one_acquires_the_lock_in_any_order() -> None:
    """All may stand back only where a process died; the guard of their commits decides where two go."""

    def world() -> Scenario:
        clock = TimeMachine()
        actors = {name: partial(lock_of(name, clock).acquire, ROW) for name in ("ann", "bob", "cyd")}
        return Scenario(MemoryStore(clock), actors, _somebody_won)

    assert explore(world, isolated=True).require_none().schedules > 10


def test_of_two_candidates_either_may_acquire_the_lock_and_both_do_in_few_orders() -> None:
    seen: list[frozenset[str]] = []

    def see(history: History) -> None:
        seen.append(frozenset(_winners(history)))

    def world() -> Scenario:
        clock = TimeMachine()
        actors = {name: partial(lock_of(name, clock).acquire, ROW) for name in ("ann", "bob")}
        return Scenario(MemoryStore(clock), actors, see)

    explore(world)
    assert {frozenset({"ann"}), frozenset({"bob"})} <= set(seen)
    assert seen.count(frozenset({"ann", "bob"})) * 5 < len(seen)


def _somebody_won(history: History) -> str | None:
    return None if _winners(history) else "nobody has it"


def _winners(history: History) -> list[str]:
    return [name for name, grip in history.results.items() if grip is not None]


def _finish(steps: Steps[LockHandle | None], answer: object, store: Store) -> LockHandle | None:
    """Go on with an answer to the end."""
    try:
        while True:
            answer = perform(steps.send(answer), store)
    except StopIteration as finished:
        result: LockHandle | None = finished.value
        return result


@dataclass(frozen=True)
class Locked:
    """An actor that acquires a row, claims from it and acks; or finds it busy, and gives up."""

    scene: Scene
    name: str

    def __call__(self) -> Work:
        process, told, row = self.scene.process(self.name), Told(), self.scene.row
        grip = yield from ColumnLock(process, TIMEOUT).acquire(row)
        if grip is None:
            return told
        order = ClaimRequest(10, LEASE, ATTEMPTS, leases=False, unlocks=grip.columns)
        claimed = yield from claim(process, RowSnapshot(row, 1), order)
        for taken in claimed.claims:
            told.handed += [(held.entry.id, held.entry.spent) for held in taken.held]
            outcomes = {held.entry.id: acking(held) for held in taken.held}
            settled = yield from settle(process, row, SettleRequest(taken.timer, outcomes))
            told.settled(outcomes, settled)
        return told


def two_claimers(unguarded: tuple[int, ...] = ()) -> Scenario:
    scene = Scene(messages=1, unguarded=unguarded)
    return scene.world(ann=Locked(scene, "ann"), bob=Locked(scene, "bob"))


def test_two_processes_that_lock_and_claim_lose_and_double_no_message_in_any_order() -> None:
    assert explore(two_claimers, isolated=True).require_none().schedules > 30


@pytest.mark.full
def test_two_processes_that_lock_and_claim_lose_no_message_if_one_dies_or_an_outcome_is_unknown() -> None:
    explore(two_claimers, crashes=1, unknowns=1, isolated=True, limit=1_500).require_none()


def test_without_the_guard_of_its_commit_the_lock_lets_a_message_be_acked_twice() -> None:
    """Two may both acquire: without the guard a message is acked twice in some order."""
    assert explore(lambda: two_claimers((Type.LOCK,)), isolated=True).violations
