"""Simulations under row locks: the manager, the checkers of locks, and that locks keep processes out."""

from __future__ import annotations

from collections import Counter

import pytest

from astyqueue.protocol.coordination.row_lock import ColumnLock, LockHandle
from astyqueue.protocol.steps import Client, run
from astyqueue.queue.row_sharing.external_lock import ManagedLock
from astyqueue.store import Batch
from astyqueue.units import SECOND
from tests.simulation.cassandra.cluster import Cluster
from tests.simulation.cassandra.replica import Decision, Replica
from tests.simulation.cassandra.store import SimulatedClock, SimulatedStore
from tests.simulation.checkers.checkers import LOCK_CHECKERS
from tests.simulation.checkers.reference_model import ReferenceModel
from tests.simulation.engine.client import Agent, Pause, SimulatedProcess
from tests.simulation.engine.event_loop import EventLoop, SkewedClock
from tests.simulation.engine.fault_profile import FaultProfile
from tests.simulation.engine.history import History, RunRecord
from tests.simulation.engine.rng import SeededRandom
from tests.simulation.engine.runner import SeedSummary, Summary
from tests.simulation.engine.simulation import simulate
from tests.simulation.workload.lock_manager import Manager, ManagerClient, ManagerFault
from tests.simulation.workload.locks import COLUMNS, GUARD, MANAGER, LeftLock, LockNotes, Locks, LockWait

ROW = "mail:0:0"
TIMEOUT = 5 * SECOND
#: Simulations in which, taken together, every step of a lock is taken, and every fault of a manager occurs.
SEEDS_OF = {COLUMNS: range(13, 18), MANAGER: range(12)}


class LockBench:
    """Two processes that share a manager, which works unless a test makes it fail."""

    def __init__(
        self, *, fault_rate: float = 0, calls_take: int = SECOND // 1_000, ends_with_process: bool = False
    ) -> None:
        self.event_loop = EventLoop()
        self.steps: Counter[str] = Counter()
        cluster = Cluster(self.event_loop, FaultProfile.fault_free(3), SeededRandom(0), record_accept=_unseen)
        self.ann, self.bob = (
            SimulatedProcess(name, SkewedClock(self.event_loop, 0), cluster) for name in ("ann", "bob")
        )
        manager = self.manager = Manager(self.event_loop, SeededRandom(0), self.steps)
        manager._fault_rate, manager._life, manager._ends_with_process = fault_rate, None, ends_with_process  # noqa: SLF001 - these are drawn
        manager.time = lambda: calls_take  # type: ignore[method-assign]  # so is this
        self.results: list[tuple[str, bool]] = []
        self.locks = {
            client: ManagedLock(client.clock, ManagerClient(client, manager).submit) for client in (self.ann, self.bob)
        }

    def ask(self, client: SimulatedProcess, *, for_as_long: int = 0) -> None:
        """Have a process acquire the row, keep it for `for_as_long` microseconds, and release it."""
        client.start(self._asks(client, for_as_long))
        self.event_loop.run(lambda: not client.busy, self.event_loop.now + 100 * SECOND)

    def _asks(self, client: SimulatedProcess, for_as_long: int) -> Agent:
        handle = yield from self.locks[client].acquire(ROW)
        self.results.append((client.name, handle is not None))
        if handle:
            yield Pause(for_as_long)
            handle.let_go()


def _unseen(row: str, proposal: Decision, replica: Replica) -> None:
    """Keep no record of what is accepted."""


def test_a_manager_grants_a_row_to_one_process_after_the_other() -> None:
    bench = LockBench()
    bench.event_loop.call_later(SECOND, lambda: bench.bob.start(bench._asks(bench.bob, 0)))  # noqa: SLF001 - while ann has it
    bench.ask(bench.ann, for_as_long=2 * SECOND)
    bench.ask(bench.bob)
    assert bench.results == [("ann", True), ("bob", False), ("bob", True)]
    assert not any(bench.manager.granted.values())


@pytest.mark.parametrize("ends_with_process", [True, False])
def test_a_lock_of_a_process_that_crashed_stays_unless_locks_end_with_theirs(*, ends_with_process: bool) -> None:
    bench = LockBench(ends_with_process=ends_with_process)
    bench.event_loop.call_later(SECOND, bench.ann.crash)
    bench.ask(bench.ann, for_as_long=2 * SECOND)
    bench.ask(bench.bob)
    assert bench.results == [("ann", True), ("bob", ends_with_process)]


def test_a_yes_that_comes_after_half_a_second_is_released() -> None:
    bench = LockBench(calls_take=SECOND)
    bench.ask(bench.ann)
    assert bench.results == [("ann", False)]
    assert not any(bench.manager.granted.values())


def test_no_process_fails_because_of_a_manager_with_every_fault() -> None:
    bench = LockBench(fault_rate=1)
    for _ in range(100):
        bench.ask(bench.ann)
        bench.event_loop.advance_to(bench.event_loop.now + 30 * SECOND)
    assert set(ManagerFault) <= set(bench.steps)
    assert {yes for _, yes in bench.results} == {True, False}
    assert bench.ann.failures == []


@pytest.mark.parametrize("ahead", [0, 2 * TIMEOUT - SECOND, 2 * TIMEOUT + 2 * SECOND])
def test_a_column_lock_that_nobody_has_is_refused_only_where_clocks_of_servers_differ_by_two_timeouts(
    ahead: int,
) -> None:
    clock = SimulatedClock()
    store = SimulatedStore(clock)
    store.cluster.replicas[0].clock.skew = ahead
    lock = ColumnLock(Client("ann", lambda: clock.event_loop.now), TIMEOUT)
    refused = 0
    for _ in range(30):
        handle = run(lock.acquire(ROW), store)
        refused += handle is None
        store.send(Batch(ROW, deletes=(handle or LockHandle()).columns))
        clock.advance("1m")
    assert (refused > 0) == (ahead > 2 * TIMEOUT)


def notes(*waits: LockWait, left: tuple[LeftLock, ...] = (), kept: tuple[str, ...] = ()) -> LockNotes:
    return LockNotes(COLUMNS, TIMEOUT, list(waits), list(left), list(kept), {"drainer"})


def kept_out(client_name: str, seconds: float, *, until: bool = True, bypassed: bool = False) -> LockWait:
    end = int(seconds * SECOND)
    return LockWait(client_name, ROW, 0, 0, end, end if until else None, bypassed)


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (notes(), 0),
        (notes(kept_out("drainer", 6)), 0),
        (notes(kept_out("drainer", 8)), 1),
        (notes(kept_out("drainer", 8, until=False)), 1),
        (notes(kept_out("consumer", 8)), 0),
        (notes(kept_out("consumer", 5, bypassed=True)), 0),
        (notes(kept_out("consumer", 4.9, bypassed=True)), 1),
        (notes(kept_out("consumer", 4.9)), 0),
        (notes(left=(LeftLock(ROW, "consumer", visible=False),)), 0),
        (notes(left=(LeftLock(ROW, "consumer", visible=True),)), 1),
        (notes(left=(LeftLock(ROW, "drainer", visible=False),)), 1),
        (notes(kept=("drainer has nothing to do and has not released",)), 1),
    ],
)
def test_checkers_report_what_is_wrong_with_a_lock(found: LockNotes, wrong: int) -> None:
    record = RunRecord(History(), ReferenceModel(2, ROW), 0, found)
    assert len([results for check in LOCK_CHECKERS for results in check(record)]) == wrong


def test_most_simulations_have_no_lock_but_the_guard_and_many_have_another() -> None:
    drawn = Counter(Locks(SeededRandom(seed), EventLoop(), Counter()).kind for seed in range(300))
    assert drawn[GUARD] > 150
    assert min(drawn[COLUMNS], drawn[MANAGER]) > 30


def test_a_simulation_without_locks_draws_nothing_for_them() -> None:
    seed = next(seed for seed in range(100) if simulate(seed, checkers=()).lock == GUARD)
    assert simulate(seed) == simulate(seed, lock=GUARD)


@pytest.mark.parametrize("lock", [COLUMNS, pytest.param(MANAGER, marks=pytest.mark.full)])
def test_under_locks_every_promise_holds_and_rows_are_found_locked_and_locks_bypassed(lock: str) -> None:
    summary = Summary()
    for seed in SEEDS_OF[lock]:
        summary.add(SeedSummary.of(simulate(seed, lock=lock)))
    assert [seed_summary.text for seed_summary in summary.failed] == []
    assert summary.locks == {lock: len(SEEDS_OF[lock])}
    steps = {step for step, _ in summary.coverage}
    assert steps >= {f"{what} ({lock})" for what in ("acquire", "acquire after waiting", "refused", "bypassed")}
    assert lock != MANAGER or steps >= set(ManagerFault) | {"manager hangs"}


@pytest.mark.parametrize("lock", [COLUMNS, MANAGER])
def test_a_simulation_under_locks_is_the_same_each_time_and_can_be_played_without_them(lock: str) -> None:
    whole = simulate(5, lock=lock)
    part = f"row locks by {lock}"
    assert part in whole.parts
    assert simulate(5, only=frozenset(whole.parts), lock=lock) == whole
    without = simulate(5, only=frozenset(whole.parts) - {part}, lock=lock)
    assert without.lock == GUARD
    assert not any(lock in step for step in without.steps)
