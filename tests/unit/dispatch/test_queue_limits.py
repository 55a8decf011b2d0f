"""Queues of which a dispatcher has at most so many messages at the same time, whatever runs their handlers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from astyqueue import aio
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.queue_patterns import QueueLimits
from astyqueue.dispatch.running_executions import BegunExecution
from astyqueue.errors import BadInput, BadSetting
from astyqueue.model.message import Message
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.testing import TimeMachine
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Gate, Stage


class AtATime:
    """Handlers that count how many of them run at the same time, and wait until this many do or did."""

    def __init__(self, expected: int) -> None:
        self.most = 0
        self._expected = expected
        self._running = 0
        self.changed = threading.Condition()

    def _begin(self) -> None:
        with self.changed:
            self._running += 1
            self.most = max(self.most, self._running)
            self.changed.notify_all()

    def _end(self) -> None:
        with self.changed:
            self._running -= 1

    def plain(self, _: Delivery) -> None:
        self._begin()
        self._wait()
        self._end()

    async def later(self, _: aio.Delivery) -> None:
        self._begin()
        await asyncio.to_thread(self._wait)
        self._end()

    def _wait(self) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.most >= self._expected, DEADLINE)


@pytest.mark.every_store
def test_handlers_of_all_kinds_together_have_at_most_so_many_messages(stage: Stage) -> None:
    running = AtATime(3)
    for number in range(30):
        stage.queue.send(number, headers={"task": ("plain", "later")[number % 2]})
    builder = Dispatcher.builder().threads(8).queue(stage.queue, limit=3)
    builder.handler(running.plain, task="plain").handler(running.later, task="later")
    dispatcher = stage.begin(builder.build())
    stage.when_settled(30)
    dispatcher.drain(None)
    assert running.most == 3


def test_what_is_more_stays_in_the_queue_for_other_processes(stage: Stage) -> None:
    gate = Gate()
    stage.queue.send_many(range(10))
    dispatcher = stage.begin(Dispatcher.builder().threads(8).queue(stage.queue, limit=2).handler(gate).build())
    gate.when_entered(2)
    stage.look_around()
    counts = stage.queue.counts()
    assert (counts.in_flight, counts.waiting) == (2, 8)
    gate.open.set()
    stage.when_settled(10)
    dispatcher.drain(None)


def test_a_handler_that_settles_by_itself_makes_room_when_it_ends(stage: Stage) -> None:
    seen: list[object] = []

    def handle(delivery: Delivery) -> None:
        delivery.ack()
        seen.append(delivery.body)

    stage.queue.send_many(range(5))
    dispatcher = stage.begin(Dispatcher.builder().threads(4).queue(stage.queue, limit=1).handler(handle).build())
    stage.when_settled(5)
    dispatcher.drain(None)
    assert sorted(map(str, seen)) == [*"01234"]


def test_a_handler_past_its_timeout_counts_until_it_ends(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, lease="1h", max_attempts=1)
    gate = Gate()
    stage.queue.send_many(range(2))
    builder = Dispatcher.builder().threads(4).queue(stage.queue, limit=1).handler(gate, timeout="5s")
    dispatcher = stage.begin(builder.build())
    gate.when_entered()
    clock.advance("5s")
    stage.when_settled(1)
    stage.look_around()
    assert stage.queue.counts().in_flight == 0
    gate.open.set()
    gate.when_entered()
    dispatcher.drain(None)


def test_batches_have_no_more_messages_than_the_limit(stage: Stage) -> None:
    sizes: list[int] = []
    stage.queue.send_many(range(4))
    builder = Dispatcher.builder().queue(stage.queue, limit=2)
    builder.handler(lambda batch: sizes.append(len(batch)), batch=(4, "20ms"))
    dispatcher = stage.begin(builder.build())
    stage.when_settled(4)
    dispatcher.drain(None)
    assert max(sizes) <= 2


def test_a_name_counts_before_a_pattern_and_the_first_of_several_patterns() -> None:
    limits = QueueLimits({"mail.*": 5, "*": 9, "mail.slow": 1})
    assert [limits.of(name) for name in ("mail.slow", "mail.fast", "sms")] == [1, 5, 9]
    assert QueueLimits({"mail.*": 5}).of("sms") is None


@pytest.mark.parametrize("served", [["mail.slow"], ["mail.*"]])
def test_limits_are_of_queues_that_are_served(served: list[str]) -> None:
    QueueLimits({"mail.slow": 1, "sms.*": 2}).check_served(served)
    with pytest.raises(BadInput, match="queue 'fax' has a limit and is not served here: this worker serves mail"):
        QueueLimits({"fax": 1}).check_served(served)


def limited(limit: object) -> Callable[[Stage], object]:
    return lambda stage: Dispatcher.builder().queue(stage.queue, limit=limit)  # type: ignore[arg-type]  # as given


@pytest.mark.parametrize("limit", [0, -1, True, "5"])
def test_a_limit_that_is_none_is_refused(still: Stage, limit: object) -> None:
    with pytest.raises(BadSetting, match="limit is"):
        limited(limit)(still)


def test_messages_at_most_once_that_wait_for_a_handler_count_among_the_limited(
    still: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Dispatcher.builder().queue(still.queue, limit=2).threads(8).handler(print)
    dispatcher = builder.build()
    executions, may_begin = dispatcher._subscriptions[0].executions, threading.Event()  # noqa: SLF001 - held before it begins
    begin = executions.begin

    def begins_late(delivery: Delivery) -> BegunExecution | None:
        assert may_begin.wait(DEADLINE)
        return begin(delivery)

    monkeypatch.setattr(executions, "begin", begins_late)
    still.queue.send_many([Message(number, lease=0) for number in range(10)])
    still.begin(dispatcher)
    still.when(lambda: still.stats.received >= 2)
    still.look_around()
    received = still.stats.received
    may_begin.set()
    assert received == 2
    still.when_settled(10)


def test_messages_at_most_once_that_no_handler_begins_count_no_more(stage: Stage) -> None:
    running = AtATime(1)
    builder = Dispatcher.builder().queue(stage.queue, limit=1).handler(running.plain, task="known")
    tasks = ["unknown", "unknown", "known"]
    stage.queue.send_many([Message(None, lease=0, headers={"task": task}) for task in tasks])
    stage.begin(builder.build())
    stage.when_settled(3)
    with running.changed:
        assert running.changed.wait_for(lambda: running.most == 1, DEADLINE)
