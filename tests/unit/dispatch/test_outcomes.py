"""What becomes of a message, by what its handler did."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

import pytest

from astyqueue.clock import SECOND, microseconds
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.errors import Reject, Retry, Snooze, Vetoed
from astyqueue.protocol.columns import Type, decode_dead, decode_timer
from astyqueue.protocol.steps import read_one
from astyqueue.queue.delivery import Delivery
from astyqueue.queue.holding import Handed
from astyqueue.store import Slice
from astyqueue.testing import TimeMachine
from tests.unit.dispatch.stage import DEADLINE, Gate, Stage


class Unspeakable(Exception):  # noqa: N818 - named for what it is
    def __str__(self) -> str:
        raise ValueError


def timers(stage: Stage) -> list[tuple[int, str, int]]:
    """What hides messages: in how many seconds each is due, why, and the attempts spent."""
    columns = stage.queue.run(read_one(Slice("emails:0:0", Type.TIMER, 0)))
    decoded = [decode_timer("emails:0:0", column.name, column.value) for column in columns]
    now = stage.queue.clock.now()
    return [(round((timer.due - now) / SECOND), timer.state.name, entry.spent) for timer in decoded for entry in timer.entries]


def reasons(stage: Stage) -> list[tuple[str, str, int]]:
    """Why each dead letter is dead."""
    columns = stage.queue.run(read_one(Slice("emails:0:0", Type.DEAD)))
    return [(dead.kind, dead.reason, dead.attempts) for dead in (decode_dead(column.value) for column in columns)]


def messages(stage: Stage) -> int:
    return len(stage.queue.run(read_one(Slice("emails:0:0", Type.MESSAGE))))


def raising(error: BaseException) -> object:
    def handle(_: Delivery) -> None:
        raise error

    return handle


def test_a_handler_that_returns_has_its_message_acked_whatever_it_returns(still: Stage) -> None:
    still.queue.send("one")
    still.once(lambda delivery: delivery.body)
    assert still.heard.outcomes == [("one", "acked")]
    assert messages(still) == 0


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        BaseException("base"),
        Unspeakable(),
        RecursionError(),
        StopIteration(1),
        Retry("no duration"),
        Snooze(datetime(2030, 1, 1)),  # noqa: DTZ001 - naive on purpose
        Snooze(-1),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_handler_raises_is_a_failed_attempt_and_its_thread_goes_on(still: Stage, error: BaseException) -> None:
    failed: list[object] = []

    def handle(delivery: Delivery) -> None:
        failed.append(delivery.body)
        if delivery.body == "bad":
            raise error

    still.queue.send("bad")
    still.queue.send("good")
    dispatcher = still.start(handle, threads=1)
    still.when(lambda: len(failed) == 2) if len(failed) == 2 else None
    dispatcher.drain(None)
    if len(failed) < 2:
        still.begin(Dispatcher.builder().queue(still.queue).handler(handle, threads=1).build()).drain(None)
    [(pause, state, spent)] = timers(still)
    assert (state, spent) == ("BACKING_OFF", 1)
    assert 1 <= pause <= 2
