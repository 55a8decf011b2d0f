"""What a claim that is under way brings to a dispatcher that drains, stops, or removes its queue."""

from __future__ import annotations

import threading

import pytest

from astyqueue import Message
from astyqueue.clock import SystemClock
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.execution.delivery_execution import DeliveryOutcome, HandlerExecutions
from astyqueue.dispatch.flow_control import AdaptivePrefetch, MessageQuota
from astyqueue.dispatch.handlers.handler import Handler
from astyqueue.dispatch.handlers.handler_registry import GivenHandlers, HandlerRegistry
from astyqueue.dispatch.handlers.middleware import HandlerWrapping
from astyqueue.dispatch.running_executions import BegunExecution
from astyqueue.protocol.steps import Commit, Request
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.store import Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, TimeMachine
from astyqueue.units import SECOND
from tests.support.places import ONE_ROW
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Stage
from tests.unit.dispatch.test_stuck import Lines, lines

__all__ = ["lines"]


class Holding(Faulty):
    """Holds, once, the answer to a commit of a claim thread, after that has taken effect."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.holds = False
        self.held, self.go = threading.Event(), threading.Event()

    def perform(self, request: Request) -> object:
        answer = super().perform(request)
        if self.holds and isinstance(request, Commit) and threading.current_thread().name.startswith("astyqueue:claim"):
            self.holds = False
            self.held.set()
            assert self.go.wait(DEADLINE)
        return answer


class Held:
    """A dispatcher whose claim has taken a message, delivered at most once, which its thread does not know yet."""

    def __init__(self, stages: Stages) -> None:
        clock = SystemClock()
        self.store = Holding(MemoryStore(clock))
        self.stage: Stage = stages(clock, self.store, **ONE_ROW)
        self.handled = threading.Event()
        self.dispatcher: Dispatcher = self.stage.start(lambda _: self.handled.set(), threads=1)
        self.store.holds = True
        self.stage.queue.send("one", lease=0)
        assert self.store.held.wait(DEADLINE)


@pytest.fixture
def held(stages: Stages) -> Held:
    return Held(stages)


def test_a_drain_handles_what_a_claim_under_way_brings_at_most_once(held: Held, lines: Lines) -> None:
    held.dispatcher.drain(None, wait=False)
    lines.first("drain_begun")
    held.store.go.set()
    held.dispatcher.drain(None)
    assert held.handled.is_set()
    assert lines.of("dropped") == []


def test_a_stop_reports_what_a_claim_under_way_brings_at_most_once(held: Held, lines: Lines) -> None:
    held.dispatcher.stop(wait=False)
    for thread in held.dispatcher.threads:
        if ":handle" in thread.name:
            thread.join(DEADLINE)
    held.store.go.set()
    held.dispatcher.stop()
    assert not held.handled.is_set()
    assert [line.levelname for line in lines.of("dropped")] == ["WARNING"]


def test_a_queue_that_leaves_has_handled_what_its_last_claim_brings_at_most_once(held: Held, lines: Lines) -> None:
    held.dispatcher.remove_queue(held.stage.queue)
    held.store.go.set()
    lines.first("left")
    assert held.handled.is_set()


def test_a_drain_does_not_wait_for_claims_of_a_queue_that_is_paused(still: Stage) -> None:
    still.queue.pause()
    dispatcher = still.start(print)
    dispatcher.drain(None)
    assert not dispatcher.running


def test_a_message_at_most_once_of_an_unknown_task_is_reported_as_lost_and_not_as_parked(
    still: Stage, lines: Lines
) -> None:
    still.start(print, task="known")
    still.queue.send("one", lease=0, headers={"task": "unknown"})
    assert "task=unknown" in lines.first("dropped").getMessage()
    assert lines.of("parked") == []


def test_a_message_at_most_once_that_a_slot_has_taken_when_a_stop_comes_is_reported_as_lost(
    still: Stage, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = Dispatcher.builder().queue(still.queue).handler(print).build()
    executions = dispatcher._subscriptions[0].executions  # noqa: SLF001 - held before one begins
    taken, abandoned, begin, abandon = threading.Event(), threading.Event(), executions.begin, executions.abandon

    def begins_late(delivery: Delivery) -> BegunExecution | None:
        taken.set()
        assert abandoned.wait(DEADLINE)
        return begin(delivery)

    def abandons() -> list[DeliveryOutcome]:
        outcomes = abandon()
        abandoned.set()
        return outcomes

    monkeypatch.setattr(executions, "begin", begins_late)
    monkeypatch.setattr(executions, "abandon", abandons)
    still.begin(dispatcher)
    still.queue.send("one", lease=0)
    assert taken.wait(DEADLINE)
    dispatcher.stop()
    assert [line.levelname for line in lines.of("dropped")] == ["WARNING"]


def test_messages_at_most_once_beyond_the_most_that_a_dispatcher_begins_are_handled_all_the_same(
    stages: Stages, lines: Lines
) -> None:
    """Two queues claim the last ones at the same time, and nothing can give these messages back."""
    clock, handled = SystemClock(), list[object]()
    store, five = Holding(MemoryStore(clock)), threading.Semaphore(0)
    held, other = stages(clock, store, **ONE_ROW), stages(clock)
    held.queue.send_many(Message(number, lease=0) for number in range(20))

    def handle(delivery: Delivery) -> None:
        handled.append(delivery.body)
        five.release()

    store.holds = True
    builder = Dispatcher.builder().queue(held.queue, threads=4).handler(handle).queue(other.queue, threads=4)
    dispatcher = held.begin(builder.handler(handle).max_messages(5).build())
    assert store.held.wait(DEADLINE)
    other.queue.send_many(Message(number, lease=0) for number in range(20))
    for _ in range(5):
        assert five.acquire(timeout=DEADLINE)
    store.go.set()
    dispatcher.drain(None)
    left = [stage.queue.counts().waiting for stage in (held, other)]
    assert lines.of("dropped") == []
    assert len(handled) + sum(left) == 40
    assert left[0] < 20


def test_what_is_claimed_beyond_the_messages_that_a_dispatcher_may_begin_goes_back_and_costs_no_attempt(
    stages: Stages, clock: TimeMachine
) -> None:
    stage, handled = stages(clock, **ONE_ROW), list[object]()
    registry = HandlerRegistry(GivenHandlers(Handler("note", lambda one: handled.append(one.body))), HandlerWrapping())
    executions = HandlerExecutions(stage.queue, registry, AdaptivePrefetch(2, 10 * SECOND, None), MessageQuota(1))
    stage.queue.send_many(["one", "two"])
    claimed = [*stage.queue.receive(2)]
    for delivery in claimed:
        executions.carry_out(delivery)
    stage.queue.run(stage.queue.core.claimer.flush())
    assert handled == [claimed[0].body]
    [left] = stage.queue.receive(2)
    assert (left.body, left.attempt) == (claimed[1].body, 1)
