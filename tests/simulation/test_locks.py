"""Worlds under row locks: what a manager may do, how locks are judged, and that locks really are in the way."""

from __future__ import annotations

from collections import Counter

import pytest

from astyqueue.protocol.client import Client
from astyqueue.protocol.coordination.column_lock import ColumnLock
from astyqueue.protocol.coordination.row_lock import LockHandle
from astyqueue.protocol.steps import run
from astyqueue.queue.rows.managed_lock import ManagedLock
from astyqueue.store import Batch
from astyqueue.units import SECOND
from tests.simulation.cassandra.cluster import Cluster
from tests.simulation.cassandra.replica import Decision, Replica
from tests.simulation.cassandra.store import SimulatedClock, SimulatedStore
from tests.simulation.checkers.locks import LOCK_ORACLES
from tests.simulation.checkers.reference_model import Truth
from tests.simulation.engine.client import Agent, Pause, SimulatedProcess
from tests.simulation.engine.event_loop import SkewedClock, Timeline
from tests.simulation.engine.fault_profile import Weather
from tests.simulation.engine.history import Evidence, History
from tests.simulation.engine.rng import Chance
from tests.simulation.engine.runner import Brief, Summary
from tests.simulation.engine.simulation import simulate
from tests.simulation.workload.lock_manager import Desk, Manager, Mood
from tests.simulation.workload.locks import COLUMNS, GUARD, MANAGER, LeftLock, LockNotes, Locks, Stop

ROW = "mail:0:0"
TIMEOUT = 5 * SECOND
#: Worlds in which, taken together, every step of a lock is taken, and everything befalls a manager.
WORLDS = {COLUMNS: range(13, 18), MANAGER: range(12)}


class Place:
    """Two processes that share a manager which does what it should, unless it is told otherwise."""

    def __init__(
        self, *, madness: float = 0, calls_take: int = SECOND // 1_000, ends_with_process: bool = False
    ) -> None:
        self.timeline = Timeline()
        self.steps: Counter[str] = Counter()
        cluster = Cluster(self.timeline, Weather.fair(3), Chance(0), witness=_unseen)
        self.ann, self.bob = (SimulatedProcess(name, SkewedClock(self.timeline, 0), cluster) for name in ("ann", "bob"))
        manager = self.manager = Manager(self.timeline, Chance(0), self.steps)
        manager._madness, manager._life, manager._ends_with_process = madness, None, ends_with_process  # noqa: SLF001 - these are drawn
        manager.time = lambda: calls_take  # type: ignore[method-assign]  # so is this
        self.told: list[tuple[str, bool]] = []
        self.locks = {
            client: ManagedLock(client.clock, Desk(client, manager).hand_in) for client in (self.ann, self.bob)
        }

    def ask(self, client: SimulatedProcess, *, for_as_long: int = 0) -> None:
        """Have a process ask for the row, and keep it for so long if it gets it; time passes until it has let go."""
        client.start(self._asks(client, for_as_long))
        self.timeline.run(lambda: not client.busy, self.timeline.now + 100 * SECOND)

    def _asks(self, client: SimulatedProcess, for_as_long: int) -> Agent:
        grip = yield from self.locks[client].acquire(ROW)
        self.told.append((client.name, grip is not None))
        if grip:
            yield Pause(for_as_long)
            grip.let_go()


def _unseen(row: str, proposal: Decision, replica: Replica) -> None:
    """Nobody keeps a record of what is accepted."""


def test_a_manager_lets_in_one_after_the_other() -> None:
    place = Place()
    place.timeline.after(SECOND, lambda: place.bob.start(place._asks(place.bob, 0)))  # noqa: SLF001 - while ann has it
    place.ask(place.ann, for_as_long=2 * SECOND)
    place.ask(place.bob)
    assert place.told == [("ann", True), ("bob", False), ("bob", True)]
    assert not any(place.manager.given.values())


@pytest.mark.parametrize("ends_with_process", [True, False])
def test_a_lock_of_a_process_that_crashed_stays_unless_locks_end_with_theirs(*, ends_with_process: bool) -> None:
    place = Place(ends_with_process=ends_with_process)
    place.timeline.after(SECOND, place.ann.crash)
    place.ask(place.ann, for_as_long=2 * SECOND)
    place.ask(place.bob)
    assert place.told == [("ann", True), ("bob", ends_with_process)]


def test_a_yes_that_comes_after_half_a_second_is_given_back() -> None:
    place = Place(calls_take=SECOND)
    place.ask(place.ann)
    assert place.told == [("ann", False)]
    assert not any(place.manager.given.values())


def test_a_mad_manager_does_everything_that_one_should_not_and_no_process_fails_for_it() -> None:
    place = Place(madness=1)
    for _ in range(100):
        place.ask(place.ann)
        place.timeline.pass_over(place.timeline.now + 30 * SECOND)
    assert set(Mood) <= set(place.steps)
    assert {yes for _, yes in place.told} == {True, False}
    assert place.ann.failures == []


@pytest.mark.parametrize("ahead", [0, 2 * TIMEOUT - SECOND, 2 * TIMEOUT + 2 * SECOND])
def test_a_column_lock_that_nobody_has_is_refused_only_where_clocks_of_servers_differ_by_two_timeouts(
    ahead: int,
) -> None:
    clock = SimulatedClock()
    store = SimulatedStore(clock)
    store.cluster.replicas[0].clock.skew = ahead
    lock = ColumnLock(Client("ann", lambda: clock.timeline.now), TIMEOUT)
    refused = 0
    for _ in range(30):
        grip = run(lock.acquire(ROW), store)
        refused += grip is None
        store.send(Batch(ROW, deletes=(grip or LockHandle()).columns))
        clock.advance("1m")
    assert (refused > 0) == (ahead > 2 * TIMEOUT)


def notes(*stops: Stop, left: tuple[LeftLock, ...] = (), kept: tuple[str, ...] = ()) -> LockNotes:
    return LockNotes(COLUMNS, TIMEOUT, list(stops), list(left), list(kept), {"drainer"})


def kept_out(who: str, seconds: float, *, until: bool = True, went_round: bool = False) -> Stop:
    end = int(seconds * SECOND)
    return Stop(who, ROW, 0, 0, end, end if until else None, went_round)


@pytest.mark.parametrize(
    ("noted", "wrong"),
    [
        (notes(), 0),
        (notes(kept_out("drainer", 6)), 0),
        (notes(kept_out("drainer", 8)), 1),
        (notes(kept_out("drainer", 8, until=False)), 1),
        (notes(kept_out("taker", 8)), 0),
        (notes(kept_out("taker", 5, went_round=True)), 0),
        (notes(kept_out("taker", 4.9, went_round=True)), 1),
        (notes(kept_out("taker", 4.9)), 0),
        (notes(left=(LeftLock(ROW, "taker", stands=False),)), 0),
        (notes(left=(LeftLock(ROW, "taker", stands=True),)), 1),
        (notes(left=(LeftLock(ROW, "drainer", stands=False),)), 1),
        (notes(kept=("drainer has nothing to do and has not let go",)), 1),
    ],
)
def test_what_is_wrong_with_a_lock_is_told(noted: LockNotes, wrong: int) -> None:
    evidence = Evidence(History(), Truth(2, ROW), 0, noted)
    assert len([told for judge in LOCK_ORACLES for told in judge(evidence)]) == wrong


def test_most_worlds_have_no_lock_but_the_guard_and_many_have_another() -> None:
    drawn = Counter(Locks(Chance(seed), Timeline(), Counter()).kind for seed in range(300))
    assert drawn[GUARD] > 150
    assert min(drawn[COLUMNS], drawn[MANAGER]) > 30


def test_a_world_without_locks_draws_nothing_for_them() -> None:
    seed = next(seed for seed in range(100) if simulate(seed, judges=()).lock == GUARD)
    assert simulate(seed) == simulate(seed, lock=GUARD)


@pytest.mark.parametrize("lock", [COLUMNS, MANAGER])
def test_under_locks_every_promise_holds_and_rows_are_found_locked_and_locks_gone_round(lock: str) -> None:
    summary = Summary()
    for seed in WORLDS[lock]:
        summary.add(Brief.of(simulate(seed, lock=lock)))
    assert [brief.told for brief in summary.failed] == []
    assert summary.locks == {lock: len(WORLDS[lock])}
    steps = {step for step, _ in summary.coverage}
    assert steps >= {f"{what} ({lock})" for what in ("acquire", "acquire after waiting", "refused", "gone round")}
    assert lock != MANAGER or steps >= set(Mood) | {"manager hangs"}


@pytest.mark.parametrize("lock", [COLUMNS, MANAGER])
def test_a_world_under_locks_is_the_same_each_time_and_can_be_played_without_them(lock: str) -> None:
    whole = simulate(5, lock=lock)
    part = f"row locks by {lock}"
    assert part in whole.parts
    assert simulate(5, only=frozenset(whole.parts), lock=lock) == whole
    without = simulate(5, only=frozenset(whole.parts) - {part}, lock=lock)
    assert without.lock == GUARD
    assert not any(lock in step for step in without.steps)
