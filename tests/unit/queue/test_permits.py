"""At most so many processes claim from a queue at the same time as its setting says; others stand by and take over."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from astyqueue import MessageQueue
from astyqueue.errors import StoreUnavailable
from astyqueue.model.settings import Behaviour, Layout
from astyqueue.protocol.layout.rows import permits_row
from astyqueue.protocol.steps import Commit, Read, Request, Send, run
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Faulty
from astyqueue.units import SECOND
from tests.unit.queue.stepped_workers import MILLISECOND, Crew, Worker

ONE_ROW = Layout()
RING = Layout(time_shards=4, concurrency_shards=4)
LEASE = 3 * SECOND
ONE = Behaviour(max_active_processes=1, permit_lease_us=LEASE, lease_us=30 * SECOND)
PERMITS = permits_row("mail")
#: A row is scanned for messages that landed late, each minute for ten, and each scan of a limited queue takes a permit.
LATE_SCANS_END = 900 * SECOND


@pytest.fixture(autouse=True)
def _the_same_every_time() -> None:
    random.seed(1)


@dataclass
class Scene:
    """A crew whose queue always has messages, and who claimed when."""

    crew: Crew
    sender: Worker
    limit: int
    overlaps: list[int] = field(default_factory=list)

    def pass_time(self, microseconds: int, *, each: Callable[[], None] = lambda: None) -> None:
        """Let time pass while a message is sent every 50 ms; at no moment may more have permits than the limit."""
        left = [0]

        def step() -> None:
            each()
            left[0] -= 1
            if left[0] <= 0:
                left[0] = 10
                self.sender.send(1)
            active = [worker for worker in self.crew.workers if worker.core.claimer.permit.granted]
            if len(active) > self.limit:
                self.overlaps.append(self.crew.clock.now())

        self.crew.pass_time(microseconds, each=step)
        assert not self.overlaps

    def claims_of(self, worker: Worker, since: int = 0) -> list[int]:
        return [at for at, _ in worker.got if at >= since]

    def active(self, since: int) -> list[Worker]:
        """Those that got messages since a moment."""
        return [worker for worker in self.crew.workers if self.claims_of(worker, since)]

    @property
    def now(self) -> int:
        return self.crew.clock.now()


def scene_of(count: int, behaviour: Behaviour = ONE, layout: Layout = ONE_ROW, **options: object) -> Scene:
    clock = TimeMachine()
    crew = Crew(MemoryStore(clock), clock, layout, behaviour)
    scene = Scene(crew, crew.outsider(), behaviour.max_active_processes or count)
    for _ in range(count):
        crew.join(listens=True, **options)  # type: ignore[arg-type]  # a worker's options
        scene.pass_time(200 * MILLISECOND)
    return scene


def takes_over(scene: Scene, since: int, *, but: Worker) -> int:
    """When a process other than this one first claimed after a moment, and only one did."""
    others = [worker for worker in scene.active(since) if worker is not but]
    assert len(others) == 1
    return scene.claims_of(others[0], since)[0] - since


@pytest.mark.parametrize("layout", [ONE_ROW, RING])
@pytest.mark.parametrize("count", [2, 5])
def test_one_process_claims_and_the_others_stand_by(count: int, layout: Layout) -> None:
    scene = scene_of(count, layout=layout)
    scene.pass_time(10 * SECOND)
    [active] = scene.active(0)
    assert len(active.got) > 170
    assert sum(worker.core.claimer.permit.stands_by for worker in scene.crew.workers) == count - 1


def test_of_five_processes_two_claim() -> None:
    scene = scene_of(5, ONE.model_copy(update={"max_active_processes": 2}), hands=1, busy_for=100 * MILLISECOND)
    scene.pass_time(10 * SECOND)
    assert len(scene.active(0)) == 2


@pytest.mark.parametrize("layout", [ONE_ROW, RING])
@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("at", range(0, 1_100, 275))
def test_when_the_holder_dies_another_takes_over_within_the_lease_and_a_second(
    at: int, count: int, layout: Layout
) -> None:
    scene = scene_of(count, layout=layout)
    scene.pass_time(3 * SECOND + at * MILLISECOND)
    [holder] = scene.active(0)
    died, holder.dead = scene.now, True
    scene.pass_time(6 * SECOND)
    assert takes_over(scene, died + 1, but=holder) <= LEASE + SECOND


def test_a_holder_that_was_frozen_claims_nothing_more_once_another_may_have_begun() -> None:
    scene = scene_of(2)
    scene.pass_time(2 * SECOND)
    [holder] = scene.active(0)
    [other] = [worker for worker in scene.crew.workers if worker is not holder]
    holder.dead = True
    scene.pass_time(10 * SECOND)
    holder.dead, woke, had = False, scene.now, len(holder.got)
    scene.pass_time(10 * SECOND)
    assert len(holder.got) == had
    assert scene.claims_of(other, woke)
    assert holder.core.claimer.permit.stands_by


def test_a_holder_that_was_frozen_while_nobody_stood_by_goes_on() -> None:
    scene = scene_of(1)
    scene.pass_time(2 * SECOND)
    [holder] = scene.crew.workers
    holder.dead = True
    scene.pass_time(10 * SECOND)
    holder.dead, woke = False, scene.now
    scene.pass_time(2 * SECOND)
    assert scene.claims_of(holder, woke)[0] - woke < 100 * MILLISECOND


class LateClaims(Faulty):
    """Answers one commit of a claim only after its process was frozen for a while."""

    def __init__(self, store: Store, clock: TimeMachine) -> None:
        super().__init__(store)
        self._clock = clock
        self.freezes = 0

    def perform(self, request: Request) -> object:
        if self.freezes and isinstance(request, Commit) and request.batch.row != PERMITS:
            freezes, self.freezes = self.freezes, 0
            self._clock.advance(freezes / SECOND)
        return super().perform(request)


def test_what_a_holder_claims_with_a_commit_that_was_late_is_released_unseen() -> None:
    clock = TimeMachine()
    late = LateClaims(MemoryStore(clock), clock)
    crew = Crew(late, clock, ONE_ROW, ONE)
    scene = Scene(crew, crew.outsider(), 1)
    holder = crew.join(listens=True)
    scene.pass_time(2 * SECOND)
    had, late.freezes = len(holder.got), LEASE
    frozen = scene.now
    holder.send(1)
    holder.work()
    assert not late.freezes
    assert len(holder.got) == had
    scene.pass_time(SECOND)
    assert holder.got[had][1].attempt == 1
    assert holder.got[had][0] >= frozen + LEASE


@pytest.mark.parametrize("ahead", [-700, 700])
def test_clocks_may_differ_by_less_than_the_margin(ahead: int) -> None:
    scene = scene_of(1)
    clock = TimeMachine(scene.now + ahead * MILLISECOND)

    def follow() -> None:
        clock.advance(5 * MILLISECOND / SECOND)

    other = scene.crew.join(clock=clock, listens=True)
    scene.pass_time(5 * SECOND, each=follow)
    [holder] = scene.active(0)
    assert holder is not other
    died, holder.dead = scene.now, True
    scene.pass_time(6 * SECOND, each=follow)
    assert not scene.overlaps
    first = scene.claims_of(other)[0] - ahead * MILLISECOND - died
    assert first <= LEASE + SECOND


class Away(Faulty):
    """Does not answer requests to the row of permits while it is `away`."""

    away = False

    def perform(self, request: Request) -> object:
        if self.away and any(row == PERMITS for row in _rows(request)):
            message = "the permits are away"
            raise StoreUnavailable(message)
        return super().perform(request)


def _rows(request: Request) -> list[str]:
    match request:
        case Read(wanted):
            return [one.row for one in wanted]
        case Send():
            return [batch.row for batch in request.batches]
        case Commit(batch):
            return [batch.row]
    return []


@pytest.mark.parametrize("seconds", [1, 5])
def test_while_a_permit_cannot_be_renewed_its_process_claims_until_it_ends(seconds: int) -> None:
    clock = TimeMachine()
    store = MemoryStore(clock)
    crew = Crew(store, clock, ONE_ROW, ONE)
    scene = Scene(crew, crew.outsider(), 1)
    away = Away(store)
    holder = crew.join(listens=True, store=away)
    scene.pass_time(SECOND)
    other = crew.join(listens=True)
    scene.pass_time(SECOND)
    away.away, begins = True, scene.now
    for _ in range(seconds * 200):
        try:
            scene.pass_time(5 * MILLISECOND)
        except StoreUnavailable:
            assert not holder.core.claimer.permit.granted
            holder.start()
    away.away = False
    scene.pass_time(5 * SECOND)
    assert (holder.got[-1][0] > begins + 5 * SECOND) == (seconds == 1)
    assert bool(other.got) == (seconds == 5)


def leave(worker: Worker) -> None:
    worker.hands = 0
    worker.core.claimer.permit.leave(for_good=False)
    worker.core.claimer.wake()


@pytest.mark.parametrize("layout", [ONE_ROW, RING])
@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("at", range(0, 1_100, 275))
def test_when_the_holder_leaves_in_order_another_takes_over_within_a_second(
    at: int, count: int, layout: Layout
) -> None:
    scene = scene_of(count, layout=layout)
    scene.pass_time(3 * SECOND + at * MILLISECOND)
    [holder] = scene.active(0)
    leave(holder)
    left = scene.now
    scene.pass_time(3 * SECOND)
    assert takes_over(scene, left + 1, but=holder) < SECOND


def test_a_process_that_stands_down_finishes_what_it_has_first() -> None:
    scene = scene_of(2, hands=2, busy_for=4 * SECOND)
    scene.pass_time(2 * SECOND)
    [holder] = scene.active(0)
    began = scene.claims_of(holder)[-1]
    holder.hands = 0
    holder.core.claimer.permit.stand_down()
    holder.core.claimer.wake()
    scene.pass_time(8 * SECOND)
    ends = began + 4 * SECOND
    first = takes_over(scene, began + 1, but=holder) + began + 1
    assert ends <= first < ends + SECOND
    holder.hands = 2
    holder.core.claimer.wake()
    scene.pass_time(SECOND)
    assert holder.core.claimer.permit.stands_by


def test_who_waited_longest_takes_over() -> None:
    scene = scene_of(5)
    scene.pass_time(5 * SECOND)
    order = []
    for number in range(4):
        [holder] = [worker for worker in scene.crew.workers if worker.core.claimer.permit.granted]
        order.append(scene.crew.workers.index(holder))
        if number % 2:
            holder.dead = True
        else:
            leave(holder)
        scene.pass_time(5 * SECOND)
        holder.dead = True
    assert order == [0, 1, 2, 3]


def test_the_limit_may_be_set_changed_and_removed_while_processes_run() -> None:
    scene = scene_of(4, Behaviour(), RING, hands=1, busy_for=20 * MILLISECOND)

    def change(limit: int) -> None:
        behaviour = ONE.model_copy(update={"max_active_processes": limit})
        for worker in scene.crew.workers:
            sync = worker.core.settings_sync
            sync.settings = sync.settings.model_copy(update={"behaviour": behaviour})

    def shares_after(limit: int) -> int:
        change(limit)
        scene.limit = 4
        scene.pass_time(SECOND)
        began = scene.now
        scene.limit = limit or 4
        scene.pass_time(5 * SECOND)
        return len(scene.active(began + 1))

    scene.pass_time(SECOND)
    assert [shares_after(limit) for limit in (0, 1, 0, 2, 1, 3)] == [4, 1, 4, 2, 1, 3]


def test_a_permit_costs_a_commit_in_a_third_of_its_lease_and_standing_by_a_read_in_400_ms() -> None:
    scene = scene_of(2)
    scene.pass_time(2 * SECOND)
    for worker in scene.crew.workers:
        worker.requests.clear()
    scene.pass_time(10 * SECOND)
    [holder, other] = [
        [one for one in worker.requests if PERMITS in _rows(one)]
        for worker in sorted(scene.crew.workers, key=lambda worker: -len(worker.got))
    ]
    assert [type(one) for one in holder] == [Commit] * 10
    assert sum(isinstance(one, Read) for one in other) <= 25
    assert sum(isinstance(one, Send) for one in other) <= 10
    assert {type(one) for one in other} == {Read, Send}


def test_a_queue_without_limit_makes_no_request_for_permits() -> None:
    scene = scene_of(2, Behaviour())
    scene.pass_time(5 * SECOND)
    scene.crew.pass_time(100 * SECOND, step=250 * MILLISECOND)
    for worker in scene.crew.workers:
        leave(worker)
    scene.crew.pass_time(SECOND)
    assert not [one for worker in scene.crew.workers for one in worker.requests if PERMITS in _rows(one)]


def test_in_an_idle_queue_nobody_has_a_permit_and_the_next_message_is_claimed_at_once() -> None:
    scene = scene_of(3)
    scene.pass_time(2 * SECOND)
    scene.crew.pass_time(LATE_SCANS_END, step=250 * MILLISECOND)
    for worker in scene.crew.workers:
        worker.requests.clear()
    scene.crew.pass_time(30 * SECOND)
    assert not [one for worker in scene.crew.workers for one in worker.requests if PERMITS in _rows(one)]
    dead, *alive = scene.crew.workers
    dead.dead = True
    sent = scene.now
    scene.sender.send(1)
    run(scene.sender.core.doorbell.notify_idle(), scene.sender.store)
    scene.crew.pass_time(SECOND)
    assert [at - sent <= 200 * MILLISECOND for worker in alive for at in scene.claims_of(worker, sent)] == [True]


def test_a_delayed_message_of_an_idle_queue_is_claimed_in_time_though_its_last_holder_is_dead() -> None:
    scene = scene_of(3)
    scene.pass_time(2 * SECOND)
    due = scene.now + 600 * SECOND
    scene.sender.send(1, delay=600)
    scene.crew.pass_time(400 * SECOND, step=250 * MILLISECOND)
    [last] = scene.active(0)
    last.dead = True
    scene.crew.pass_time(220 * SECOND, step=50 * MILLISECOND)
    [claimed] = [at for worker in scene.crew.workers for at in scene.claims_of(worker, due)]
    assert claimed - due <= 100 * MILLISECOND


@pytest.mark.every_store
def test_receive_of_a_stand_by_returns_nothing_and_gets_messages_once_the_other_queue_is_closed(
    builder: QueueBuilder[MessageQueue], another: MessageQueue, clock: TimeMachine
) -> None:
    with builder.build() as active:
        active.configure(max_active_processes=1)
        another.core.settings_sync.settings = active.settings
        active.send_many([1, 2])
        [first] = active.receive()
        assert not another.receive()
        assert active.permits().standby == [], "it may not look again"
        clock.advance("1s")
        assert not another.receive(limit=5)
        shown = active.permits()
        assert [one.process for one in shown.active] == [active.core.process.name]
        assert [one.process for one in shown.standby] == [another.core.process.name]
        first.ack()
    clock.advance("1s")
    [second] = another.receive()
    assert second.body == 2
    second.ack()
    assert [one.process for one in another.permits().active] == [another.core.process.name]
    another.configure(max_active_processes=0)
    assert another.permits().active == []


@pytest.mark.every_store
def test_a_permit_that_was_not_renewed_is_taken_after_its_lease_and_its_old_holder_gets_nothing(
    builder: QueueBuilder[MessageQueue], another: MessageQueue, clock: TimeMachine
) -> None:
    with builder.build() as active:
        active.configure(max_active_processes=1, permit_lease="2s")
        another.core.settings_sync.settings = active.settings
        active.send_many([1, 2, 3])
        [first] = active.receive()
        clock.advance("1.9s")
        assert not another.receive()
        clock.advance("0.5s")
        assert [one.body for one in another.receive()] == [2]
        assert not active.receive()
        first.ack()


def test_nothing_is_left_to_a_process_that_waited_and_has_gone_in_order(
    builder: QueueBuilder[MessageQueue], another: MessageQueue
) -> None:
    with builder.build() as third:
        third.configure(max_active_processes=1)
        another.core.settings_sync.settings = third.settings
        assert not third.receive()
        assert not another.receive()
        another.send("next")
        another.close()
        assert third.permits().standby == []
    with builder.build() as later:
        [delivery] = later.receive()
        delivery.ack()


def test_a_stand_by_whose_queue_has_lost_its_limit_can_be_closed(
    builder: QueueBuilder[MessageQueue], another: MessageQueue
) -> None:
    with builder.build() as active:
        active.configure(max_active_processes=1)
        another.core.settings_sync.settings = active.settings
        active.send_many([1, 2])
        assert [len(queue.receive()) for queue in (active, another)] == [1, 0]
        another.configure(max_active_processes=0)
        another.close()
        assert active.permits().standby == []
