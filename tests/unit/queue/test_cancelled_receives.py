"""Waiters that leave while a claim for them is in the store, and hooks that act on their arguments."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType

import pytest

from astyqueue import Hook, Message, MessageQueue, Vetoed
from astyqueue.errors import OutcomeUnknown
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.steps import Commit, Request
from astyqueue.queue.consuming.leader_follower import Leadership
from astyqueue.queue.consuming.lease_table import LeaseTable
from astyqueue.queue.consuming.waiters import Waiters
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Waiter
from astyqueue.queue.delivery.delivery import Received
from astyqueue.queue.row_sharing.row_scheduler import RowScheduler
from astyqueue.store import Batch
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, TimeMachine

DEADLINE = 10


class Held(Faulty):
    """Holds the next claim up, when a test says so, until it is let go."""

    def __init__(self, clock: TimeMachine) -> None:
        super().__init__(MemoryStore(clock))
        self.holding = False
        self.entered = threading.Event()
        self.open = threading.Event()

    def perform(self, request: Request) -> object:
        if self.holding and isinstance(request, Commit) and claims(request.batch):
            self.holding = False
            self.entered.set()
            assert self.open.wait(DEADLINE)
        return super().perform(request)


def claims(batch: Batch) -> bool:
    """Whether it hands anything out: under a lease, or at most once."""
    return any(name.type in (Type.TIMER, Type.MESSAGE) for name in (*(put.name for put in batch.puts), *batch.deletes))


class NoReleases(Hook):
    """Refuses every release, and notes which it was asked about."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        if outcome == "released":
            self.asked.append(delivery.body)
            reason = "nothing goes back"
            raise Vetoed(reason)


class Scene:
    """Two waiters wait; a claim for both is held up in the store, and the second one's patience ends."""

    def __init__(self, clock: TimeMachine) -> None:
        self.clock = clock
        self.hook = NoReleases()
        self.store = Held(clock)
        builder = MessageQueue.builder().store(self.store).name("emails").lease("30s").clock(clock)
        self.queue = builder.hook(self.hook).build()

    def play(self, *, lease: int | None) -> tuple[Received, Received]:
        """What the two waiters got."""
        with ThreadPoolExecutor(2) as threads:
            patient: Future[Received] = threads.submit(self.queue.receive, 1, "1h")
            self.clock.when_waiting(1)
            hurried = threads.submit(self.queue.receive, 1, "10s")
            self.clock.when_waiting(2)
            self.look_around()
            self.store.holding = True
            self.queue.send_many([Message(body, lease=lease) for body in ("first", "second")])
            assert self.store.entered.wait(DEADLINE)
            self.clock.advance("11s")
            late = hurried.result(timeout=DEADLINE)
            self.store.open.set()
            return patient.result(timeout=DEADLINE), late

    def look_around(self) -> None:
        """Let the leader see that there is nothing, so that a waiter may leave when its time is over."""
        claimer = self.queue.core.claimer
        self.queue.run(claimer.take(Waiter(lambda: 0, lambda _: None), lambda: False, until=self.clock.monotonic()))


@pytest.fixture
def scene(clock: TimeMachine) -> Iterator[Scene]:
    made = Scene(clock)
    yield made
    made.queue.close()


def test_what_was_claimed_for_who_has_left_goes_back_and_no_hook_is_asked(scene: Scene) -> None:
    got, late = scene.play(lease=None)
    assert ([delivery.body for delivery in got], len(late)) == (["first"], 0)
    scene.queue.run(scene.queue.core.claimer.flush())
    [again] = scene.queue.receive(1)
    assert (again.body, again.attempt) == ("second", 1)
    assert scene.hook.asked == []


def test_what_is_delivered_at_most_once_goes_to_the_next_consumer_when_its_own_has_left(scene: Scene) -> None:
    got, late = scene.play(lease=0)
    assert ([delivery.body for delivery in got], len(late)) == (["first"], 0)
    [again] = scene.queue.receive(1)
    assert (again.body, again.settled) == ("second", "at most once")
    scene.queue.close()
    assert scene.queue.stats.dropped == 0


def test_what_is_delivered_at_most_once_and_goes_to_nobody_is_counted_and_told(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.play(lease=0)
    scene.queue.close()
    assert scene.queue.stats.dropped == 1
    assert "at_most_once_dropped queue=emails messages=1 reason=closed" in caplog.text


class Follows(Hook):
    """Settles one delivery and sends a message after another was settled."""

    def __init__(self) -> None:
        self.queue: MessageQueue | None = None
        self.other: list[BaseDelivery] = []
        self.told: list[tuple[object, str]] = []

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        self.told.append((delivery.body, outcome))
        assert self.queue
        for other in self.other:
            self.other = []
            self.queue.send("follow-up")
            self.queue.ack(other.receipt)
            [held] = self.queue.receive(1)
            held.ack()


def test_a_hook_may_send_receive_and_settle_when_it_is_told_of_an_outcome(clock: TimeMachine) -> None:
    hook = Follows()
    queue = hook.queue = MessageQueue.builder().store(MemoryStore(clock)).name("emails").clock(clock).hook(hook).build()
    queue.send_many(["one", "other"])
    one, other = queue.receive(2)
    hook.other = [other]
    with ThreadPoolExecutor(1) as threads:
        acking = threads.submit(one.ack)
        try:
            acking.result(timeout=DEADLINE)
        except TimeoutError:
            queue.close()
            raise
    assert hook.told == [("one", "acked"), ("other", "acked"), ("follow-up", "acked")]
    assert queue.counts().total == 0


@pytest.mark.parametrize(
    ("part", "step"), [(Leadership, "wake"), (RowScheduler, "request"), (Waiters, "add"), (Leadership, "take_part")]
)
def test_a_thread_that_is_interrupted_while_it_joins_the_line_leaves_it(
    clock: TimeMachine, monkeypatch: pytest.MonkeyPatch, part: type, step: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    queue = MessageQueue.builder().store(MemoryStore(clock)).name("emails").clock(clock).build()
    queue.send("work")
    with monkeypatch.context() as patched:
        patched.setattr(part, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.receive()
    with ThreadPoolExecutor(1) as threads:
        receiving = threads.submit(queue.receive)
        try:
            assert [delivery.body for delivery in receiving.result(timeout=DEADLINE)] == ["work"]
        finally:
            queue.close()


def test_a_thread_that_is_interrupted_after_it_committed_for_another_leaves_that_one_and_a_close_not_waiting(
    clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = MessageQueue.builder().store(MemoryStore(clock)).name("emails").clock(clock).build()
    queue.send("work")
    [delivery] = queue.receive()
    settled = LeaseTable.settled

    def interrupted(*_: object) -> None:
        monkeypatch.setattr(LeaseTable, "settled", settled)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(3) as threads:
        leading = threads.submit(queue.receive, 1, "1h")
        clock.when_waiting(1)
        monkeypatch.setattr(LeaseTable, "settled", interrupted)
        acking = threads.submit(delivery.ack)
        try:
            with pytest.raises(KeyboardInterrupt):
                leading.result(DEADLINE)
            with pytest.raises(OutcomeUnknown):
                acking.result(DEADLINE)
            assert queue.counts().total == 0
            threads.submit(queue.close).result(DEADLINE)
        except TimeoutError:
            queue.core.close()  # or the threads would wait for ever
            raise


@pytest.mark.parametrize(("part", "leaves"), [(Leadership, "_in_line"), (Waiters, "remove")])
def test_a_thread_that_is_interrupted_at_any_call_while_it_leaves_the_line_has_left_it(
    clock: TimeMachine, part: type, leaves: str
) -> None:
    code = getattr(part, leaves).__code__
    queue = MessageQueue.builder().store(MemoryStore(clock)).name("emails").clock(clock).build()
    calls = 0

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        if event == "call" and frame.f_back and frame.f_back.f_code is code:
            calls += 1
            if calls == at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as threads:
        for at in itertools.count(1):
            calls = 0
            sys.setprofile(interrupt)
            with contextlib.suppress(KeyboardInterrupt):
                queue.receive()
            sys.setprofile(None)
            if calls < at:
                break
            queue.send(at)
            receiving = threads.submit(queue.receive)
            try:
                [delivery] = receiving.result(DEADLINE)
                assert delivery.body == at
                threads.submit(delivery.ack).result(DEADLINE)
            except TimeoutError:
                queue.core.close()
                raise
    queue.close()
