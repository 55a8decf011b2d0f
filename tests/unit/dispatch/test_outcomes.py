"""What becomes of a message, by what its handler did."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta

import pytest

from astyqueue.dispatch.handlers.handler import Call
from astyqueue.durations import Duration
from astyqueue.errors import Reject, Retry, Snooze, Vetoed
from astyqueue.protocol.layout.columns import State, Type, decode_dead, decode_timer
from astyqueue.protocol.steps import read_one
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.hooks import Hook
from astyqueue.store import Slice
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Gate, Stage


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError


def timers(stage: Stage) -> list[tuple[int, str, int]]:
    """What hides messages: in how many seconds each is due, why, and the attempts spent."""
    columns = stage.queue.run(read_one(Slice("emails:0:0", Type.TIMER, 0)))
    decoded = [decode_timer("emails:0:0", column.name, column.value) for column in columns]
    now = stage.queue.clock.now()
    return [
        (round((timer.due - now) / SECOND), State(timer.state).name, entry.spent)
        for timer in decoded
        for entry in timer.entries
    ]


def reasons(stage: Stage) -> list[tuple[str, str, int]]:
    """Why each dead letter is dead."""
    columns = stage.queue.run(read_one(Slice("emails:0:0", Type.DEAD)))
    return [(dead.kind, dead.reason, dead.attempts) for dead in (decode_dead(column.value) for column in columns)]


def messages(stage: Stage) -> int:
    return len(stage.queue.run(read_one(Slice("emails:0:0", Type.MESSAGE))))


def raising(error: BaseException) -> Call:
    def handle(_: Delivery) -> None:
        raise error

    return handle


@pytest.mark.every_store
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
        Snooze(datetime(9999, 12, 31, tzinfo=UTC)),
        Snooze(-1),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_handler_raises_is_a_failed_attempt_and_its_thread_goes_on(
    still: Stage, error: BaseException
) -> None:
    threads: list[int] = []
    good = threading.Event()

    def handle(delivery: Delivery) -> None:
        threads.append(threading.get_ident())
        if delivery.body == "bad":
            raise error
        good.set()

    still.queue.send_many(["bad", "good"])
    dispatcher = still.start(handle, threads=1, backlog=2)
    assert good.wait(DEADLINE)
    dispatcher.drain(None)
    assert len(threads) == 2
    assert len(set(threads)) == 1
    [(pause, state, spent)] = timers(still)
    assert (state, spent) == ("BACKING_OFF", 1)
    assert 1 <= pause <= 2


@pytest.mark.every_store
def test_the_last_failed_attempt_makes_a_dead_letter_with_the_error_in_one_line(
    stages: Stages, clock: TimeMachine
) -> None:
    stage = stages(clock, max_attempts=3)
    stage.queue.send("bad")
    attempts: list[int] = []

    def handle(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        message = "no\nsuch   place"
        raise LookupError(message)

    for _ in range(3):
        stage.once(handle)
        clock.advance("1m")
    assert attempts == [1, 2, 3]
    assert reasons(stage) == [("failed", "LookupError: no such place", 3)]
    assert stage.heard.outcomes == [("bad", "released"), ("bad", "released"), ("bad", "rejected")]


def test_the_attempts_of_a_handler_beat_those_of_its_queue(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, max_attempts=5)
    stage.queue.send("bad")
    stage.once(raising(ValueError("bad")), max_attempts=1)
    assert reasons(stage) == [("failed", "ValueError: bad", 1)]


def test_an_error_whose_text_cannot_be_written_makes_a_dead_letter_like_any_other(
    stages: Stages, clock: TimeMachine
) -> None:
    stage = stages(clock)
    stage.queue.send("bad")
    stage.once(raising(ValueError("no file \udcff")), max_attempts=1)
    assert reasons(stage) == [("failed", "ValueError: no file \\udcff", 1)]


def test_pauses_grow_up_to_the_cap_and_vary(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, max_attempts=20, backoff="2s", backoff_cap="30s")
    stage.queue.send("bad")
    pauses = []
    for _ in range(8):
        stage.once(raising(ValueError()))
        pauses.append(timers(stage)[0][0])
        clock.advance("30s")
    longest = [2, 4, 8, 16, 30, 30, 30, 30]
    assert all(most / 2 - 1 <= pause <= most for pause, most in zip(pauses, longest, strict=True))
    assert len(set(pauses[4:])) > 1


def test_retry_counts_and_says_when(still: Stage) -> None:
    still.queue.send("one")
    still.once(raising(Retry("10m")))
    assert timers(still) == [(600, "BACKING_OFF", 1)]


def test_retry_after_the_last_attempt_is_a_dead_letter(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, max_attempts=1)
    stage.queue.send("one")
    stage.once(raising(Retry("10m", reason="not yet")))
    assert reasons(stage) == [("failed", "Retry: not yet", 1)]


def test_reject_is_a_dead_letter_at_once(still: Stage) -> None:
    still.queue.send("one")
    still.once(raising(Reject("not for us")))
    assert reasons(still) == [("rejected", "not for us", 1)]


@pytest.mark.parametrize("until", ["1h", timedelta(hours=1), 3600])
def test_snooze_for_a_while_costs_no_attempt(still: Stage, until: Duration) -> None:
    still.queue.send("one")
    still.once(raising(Snooze(until)))
    assert timers(still) == [(3600, "SNOOZED", 0)]


@pytest.mark.every_store
def test_snooze_until_a_moment_costs_no_attempt(still: Stage, clock: TimeMachine) -> None:
    still.queue.send("one")
    still.once(raising(Snooze(clock.instant + timedelta(hours=2))))
    assert timers(still) == [(7200, "SNOOZED", 0)]


def test_a_handler_that_settles_its_delivery_itself_is_left_its_outcome(
    still: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    still.queue.send("one")

    def handle(delivery: Delivery) -> None:
        delivery.release("5m")
        message = "after all"
        raise ValueError(message)

    still.once(handle)
    assert timers(still) == [(300, "SNOOZED", 0)]
    assert [record.getMessage().split()[0] for record in caplog.records if record.levelno == logging.WARNING] == [
        "failed"
    ]


def test_a_message_delivered_at_most_once_is_handled_and_not_settled(still: Stage) -> None:
    still.queue.send("one", lease=0)
    seen: list[object] = []
    still.once(lambda delivery: seen.append(delivery.body))
    assert seen == ["one"]
    assert still.heard.outcomes == [("one", "at most once")]
    assert still.queue.stats.lost == 0


def test_a_result_that_is_still_to_be_awaited_is_a_failed_attempt(still: Stage) -> None:
    async def later() -> None:
        """Nothing."""

    still.queue.send("one")
    still.once(lambda _: later())
    assert [(state, spent) for _, state, spent in timers(still)] == [("BACKING_OFF", 1)]


def test_a_generator_as_a_result_is_a_failed_attempt(still: Stage) -> None:
    still.queue.send("one")
    still.once(lambda _: (number for number in range(3)))
    assert [(state, spent) for _, state, spent in timers(still)] == [("BACKING_OFF", 1)]


def test_a_hook_that_refuses_an_outcome_lets_the_lease_run_out(stages: Stages, clock: TimeMachine) -> None:
    class Veto(Hook):
        def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
            if outcome == "acked":
                raise Vetoed(str(delivery.body))

    stage = stages(clock, hooks=[Veto()], lease="10s")
    stage.queue.send("one")
    gate = Gate()
    gate.open.set()
    dispatcher = stage.start(gate, threads=1)
    gate.when_entered()
    dispatcher.drain(None)
    clock.advance("10s")
    with stage.queue.receive() as again:
        assert [delivery.body for delivery in again] == ["one"]
        again[0].release()
