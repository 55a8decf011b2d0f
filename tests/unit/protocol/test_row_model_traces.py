"""What else model checking of one row found, about memory and order; `test_row_model.py` has the shortest stories."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId
from astyqueue.model.settings import Layout, Settings
from astyqueue.protocol.admin.dead_letters import redrive
from astyqueue.protocol.admin.delete import delete
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.row import snapshot as snapshots
from astyqueue.protocol.row.snapshot import RowSnapshot, read_all_timers
from astyqueue.protocol.row.timer_index import TimerIndex
from astyqueue.protocol.settling.outcomes import ACK, Extend, Reject
from astyqueue.protocol.steps import Commit, Read, run
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.store import Slice
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Recording, TimeMachine
from astyqueue.units import SECOND, MonotonicUs
from tests.modelcheck.explorer import explore
from tests.unit.protocol.checked_store import ROW, Meanwhile, picture
from tests.unit.protocol.schedule_table import Timetable
from tests.unit.protocol.test_interleavings import expiring, well_known
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene
from tests.unit.queue.stepped_workers import Crew, Worker

HOUR = 3_600 * SECOND


def handed(scene: Scene, name: str, snapshot: RowSnapshot | None = None, *, want: int = 10) -> list[Id]:
    return [held.entry.id for taken in scene.do(name, snapshot=snapshot, want=want).claims for held in taken.held]


def test_what_is_redriven_behind_the_head_comes_to_who_has_passed_it() -> None:
    scene = Scene(messages=2)
    snapshot = RowSnapshot(ROW, 1)
    [taken] = scene.do("ann", snapshot=snapshot).claims
    dead, done = scene.sent
    scene.settle(taken, {dead: Reject("rejected", "no", 1), done: ACK}, snapshot=snapshot)
    scene.clock.advance("1h")
    assert handed(scene, "ann", snapshot) == []
    run(redrive(scene.process("cleo"), [MessageId(ROW, 0, dead)]), scene.store)
    assert not picture(scene.store).waiting
    scene.survey(snapshot)
    assert handed(scene, "ann", snapshot) == [dead]


def test_an_occurrence_that_is_fired_an_hour_late_comes_to_who_has_passed_its_time() -> None:
    table = Timetable()
    table.make()
    table.clock.advance("1h")
    snapshot = RowSnapshot(ROW, 1)
    scene_sent = table.send(1)
    assert handed(table, "ann", snapshot) == scene_sent
    fired = table.fire("bob")
    assert len(fired) > 1
    assert not picture(table.store).waiting
    table.survey(snapshot)
    assert len(handed(table, "ann", snapshot, want=100)) == len(fired)


class Ahead(TimeMachine):
    """The clock of a machine that is an hour ahead; its monotonic clock goes as all do."""

    def __init__(self, true: TimeMachine) -> None:
        super().__init__(true.now())
        self._true = true

    def now(self) -> int:
        return self._true.now() + HOUR

    def monotonic(self) -> MonotonicUs:
        return self._true.monotonic()


def test_an_owner_with_a_clock_an_hour_ahead_that_dies_keeps_its_row_for_seconds_and_not_for_an_hour() -> None:
    clock = TimeMachine()
    store = MemoryStore(clock)
    layout = Layout(concurrency_shards=2)
    crew = Crew(store, clock, layout)
    fast = Worker(QueueRuntime(Settings(name="mail", layout=layout), Ahead(clock), ()), store)
    crew.workers.append(fast)
    fast.start()
    fast.work()
    fast.send(4)
    crew.pass_time(100_000)
    assert len(fast.got) == 4
    fast.dead = True
    bob = crew.join()
    bob.send(4)
    crew.pass_time(8 * SECOND, step=50_000)
    assert len(bob.got) == 4


def only_the_refused_timers_are_forgotten(scene: Scene) -> Callable[[RowSnapshot, int | None], None]:
    def forget(snapshot: RowSnapshot, written: int | None) -> None:
        if written is None:
            snapshot.timers = TimerIndex(timer for timer in snapshot.loaded_timers if timer.due > scene.now)

    return forget


@pytest.mark.parametrize("rule", [True, False], ids=["all timers are read again", "only the refused one is"])
def test_after_a_refusal_all_timers_are_read_again_for_the_refused_one_may_have_moved(
    monkeypatch: pytest.MonkeyPatch, *, rule: bool
) -> None:
    """Ann extended her lease: the timer that Bob remembers is gone, and he never saw the one that hides her message."""
    scene = Scene(messages=1)
    [taken] = scene.do("ann").claims
    snapshot = well_known(scene)
    snapshot.scans.cursors = [[b"\0" * 16] * 4]
    scene.settle(taken, {scene.sent[0]: Extend(scene.now + 4 * LEASE)})
    scene.clock.advance(LEASE // SECOND)
    if not rule:
        monkeypatch.setattr(RowSnapshot, "_forget_timers_if_refused", only_the_refused_timers_are_forgotten(scene))
    found = handed(scene, "bob", snapshot)
    assert bool(found or scene.store.wrong) is not rule


def test_after_a_refusal_timers_then_messages_then_dead_columns_are_read_again() -> None:
    """Dead columns remembered for longer than timers or messages would show what was rejected meanwhile as waiting."""
    scene = Scene(messages=1)
    [taken] = scene.do("ann").claims
    snapshot = well_known(scene)
    snapshot.loaded_timers.dead = set()
    scene.settle(taken, {scene.sent[0]: Reject("rejected", "no", 1)})
    scene.clock.advance(LEASE // SECOND)
    scene.send(1)
    seen = Recording(scene.store)
    claimed = run(claim(scene.process("bob"), snapshot, ClaimRequest(10, LEASE, ATTEMPTS)), seen)
    commits = [at for at, request in enumerate(seen.requests) if isinstance(request, Commit)]
    assert claimed.refused == 1
    again = seen.requests[commits[0] + 1 : commits[1]]
    asked = [
        wanted.type
        for request in again
        if isinstance(request, Read)
        for wanted in request.wanted
        if isinstance(wanted, Slice)
    ]
    assert asked[0] == Type.TIMER
    assert asked.index(Type.MESSAGE) < len(asked) - asked[::-1].index(Type.DEAD) - 1
    assert scene.sent[0] not in [held.entry.id for one in claimed.claims for held in one.held]
    scene.store.require_lawful()


def test_messages_are_read_at_each_scan_so_that_what_one_settled_oneself_is_not_taken_again_from_memory() -> None:
    scene = Scene(messages=4)
    snapshot = RowSnapshot(ROW, 1)
    [taken] = scene.do("ann", snapshot=snapshot, want=3).claims
    acked, rejected, kept, waiting = scene.sent
    scene.settle(taken, {acked: ACK, rejected: Reject("rejected", "no", 1)}, snapshot=snapshot)
    seen = Recording(scene.store)
    again = run(claim(scene.process("ann"), snapshot, ClaimRequest(10, LEASE, ATTEMPTS)), seen)
    assert [held.entry.id for one in again.claims for held in one.held] == [waiting]
    reads = [wanted for request in seen.requests if isinstance(request, Read) for wanted in request.wanted]
    assert [wanted.type for wanted in reads if isinstance(wanted, Slice) and wanted.values] == [Type.MESSAGE]
    scene.clock.advance(LEASE // SECOND)
    assert sorted(handed(scene, "ann", snapshot) + handed(scene, "ann", snapshot)) == sorted([kept, waiting])
    scene.store.require_lawful()


@pytest.mark.parametrize("at", [2, 3, 4])
def test_a_timer_that_moves_between_two_pages_of_a_read_is_seen(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Read downwards it would be missed: it moves up, past where the read began."""
    monkeypatch.setattr(snapshots, "_TIMERS_A_PAGE", 2)
    scene = Scene(messages=4)
    taken = [scene.do("ann", want=1).claims[0] for _ in range(4)]
    moved = taken[0].held[0].entry.id

    def extends() -> None:
        scene.settle(taken[0], {moved: Extend(scene.now + 4 * LEASE)})

    assert len({one.timer.name for one in taken}) == 4
    timers = run(read_all_timers(ROW, 0), Meanwhile(scene.store, extends, at=at))
    assert moved in {entry.id for timer in timers for entry in timer.entries}


def test_a_lease_that_ran_out_is_not_claimed_again_without_the_header() -> None:
    """Tried as settles are, on the timer's bytes alone: it has to stay guarded."""
    assert explore(partial(expiring, (Type.LOCK, Type.TIMER)), isolated=True).violations
    explore(expiring, isolated=True).require_none()


def test_an_ack_within_an_extended_lease_goes_through_whatever_others_did_meanwhile() -> None:
    """Others delete a neighbour, claim from an old snapshot, and come back when the first lease would have ended."""
    scene = Scene(messages=2)
    [taken] = scene.do("ann").claims
    neighbour, kept = scene.sent
    old = well_known(scene)
    scene.settle(taken, {kept: Extend(scene.now + 4 * LEASE)})
    assert run(delete(scene.process("cleo"), MessageId(ROW, 0, neighbour)), scene.store)
    assert handed(scene, "bob", old) == []
    scene.clock.advance(LEASE // SECOND + 1)
    assert handed(scene, "bob", old) == []
    assert handed(scene, "cyd") == []
    assert not scene.settle(taken, {kept: ACK}).lost
    scene.store.require_lawful()
