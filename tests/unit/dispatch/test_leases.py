"""Leases while handlers run, and handlers that take too long."""

from __future__ import annotations

import logging
import threading

import pytest

from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.protocol.layout.columns import Type, decode_timer
from astyqueue.protocol.steps import read_one
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.store import Slice
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.support.places import Place
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Breaking, Gate, Stage
from tests.unit.dispatch.test_outcomes import reasons, timers


def pass_time(stage: Stage, clock: TimeMachine, step: str, *, steps: int) -> None:
    """Let time pass in steps, each seen by the renewing thread before the next one."""
    for _ in range(steps):
        clock.advance(step)
        stage.look_around()


def others(stage: Stage) -> Stage:
    """Another process at the same queue."""
    return Stage(stage.queue.clock, stage.store)


@pytest.mark.every_store
def test_a_running_handler_keeps_its_message_across_several_leases(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, lease="10s")
    gate = Gate()
    stage.queue.send("one")
    dispatcher = stage.start(gate, threads=1)
    gate.when_entered()
    pass_time(stage, clock, "3s", steps=20)
    assert list(others(stage).queue.receive(10)) == []
    gate.open.set()
    dispatcher.drain(None)
    assert stage.heard.outcomes[-1] == ("one", "acked")
    assert stage.queue.stats.lost == 0


def test_messages_that_wait_in_the_backlog_are_kept_too(stages: Stages, clock: TimeMachine) -> None:
    """A handler ends every three seconds, so that the last ones wait for several leases."""
    stage = stages(clock, lease="10s")
    entered, may_end = threading.Semaphore(0), threading.Semaphore(0)

    def handle(_: Delivery) -> None:
        entered.release()
        assert may_end.acquire(timeout=DEADLINE)

    stage.queue.send_many(range(11))
    dispatcher = stage.start(handle, threads=1, backlog=11)
    assert entered.acquire(timeout=DEADLINE)
    stage.when(lambda: stage.stats.received == 11)
    for _ in range(9):
        pass_time(stage, clock, "3s", steps=1)
        may_end.release()
        assert entered.acquire(timeout=DEADLINE)
    assert list(others(stage).queue.receive(10)) == []
    may_end.release(2)
    assert entered.acquire(timeout=DEADLINE)
    dispatcher.drain(None)
    assert stage.heard.count("acked") == 11


def test_what_waits_in_the_backlog_of_a_process_without_a_free_slot_goes_to_others(
    stages: Stages, clock: TimeMachine
) -> None:
    """After half a lease, for the process cannot know when a slot is free; it claims again once one is."""
    stage = stages(clock, lease="1m")
    gate = Gate()
    stage.queue.send_many(["one", "two", "three"])
    dispatcher = stage.start(gate, threads=1, backlog=2)
    gate.when_entered()
    stage.when(lambda: stage.stats.received == 3)
    stage.look_around()  # the claim thread notes since when the second message waits
    pass_time(stage, clock, "9s", steps=3)
    assert list(others(stage).queue.receive(10)) == []
    pass_time(stage, clock, "9s", steps=2)
    [taken] = others(stage).queue.receive(1)
    assert taken.body == "two"
    taken.ack()
    received = stage.stats.received
    pass_time(stage, clock, "9s", steps=10)
    assert stage.stats.received == received
    gate.open.set()
    gate.when_entered()
    dispatcher.drain(None)
    assert gate.bodies == ["one", "three"]


def test_a_handler_past_its_timeout_has_failed_and_what_it_does_later_is_ignored(
    stages: Stages, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    stage = stages(clock, lease="10s", backoff="1s")
    gate = Gate()
    stage.queue.send("one")
    dispatcher = stage.start(gate, threads=1, timeout="25s")
    gate.when_entered()
    pass_time(stage, clock, "3s", steps=8)
    assert list(others(stage).queue.receive(10)) == []
    clock.advance("1s")
    stage.when(lambda: stage.heard.outcomes[-1:] == [("one", "released")])
    assert [(state, spent) for _, state, spent in timers(stage)] == [("BACKING_OFF", 1)]
    gate.open.set()
    dispatcher.drain(None)
    for thread in dispatcher.threads:
        thread.join(DEADLINE)
    assert stage.heard.count("acked") == 0
    assert [record.getMessage().split()[0] for record in caplog.records if record.levelno == logging.WARNING] == [
        "timed_out",
        "ended_after_timeout",
    ]


@pytest.mark.every_store
def test_a_handler_that_always_takes_too_long_ends_as_a_dead_letter(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, max_attempts=1)
    gate = Gate()
    stage.queue.send("one")
    stage.start(gate, threads=1, timeout="1m")
    gate.when_entered()
    clock.advance("1m")
    assert stage.when_settled(1) == {"rejected": 1}
    assert reasons(stage) == [("failed", "TimeoutError: no outcome within 1m", 1)]
    gate.open.set()


def test_other_messages_go_on_while_a_handler_is_stuck(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, lease="10s", backoff="1h", backoff_cap="1h")
    gate = Gate()

    others_done = threading.Semaphore(0)

    def handle(delivery: Delivery) -> None:
        if delivery.body == "stuck":
            gate(delivery)
        else:
            others_done.release()

    stage.queue.send("stuck")
    dispatcher = stage.start(handle, threads=2, timeout="5s")
    gate.when_entered()
    clock.advance("6s")
    stage.when(lambda: stage.heard.count("released") == 1)
    stage.queue.send_many(range(10))
    for _ in range(10):
        assert others_done.acquire(timeout=DEADLINE)
    dispatcher.drain("1h")
    assert stage.heard.count("acked") == 10
    gate.open.set()


def test_a_delivery_whose_lease_ran_out_in_the_backlog_is_not_begun(
    place: Place, stages: Stages, clock: TimeMachine
) -> None:
    """As when the store is away, or a machine sleeps: leases are not renewed, and then it is much later."""
    broken = Breaking(place.store(clock))
    stage = stages(clock, broken, lease="10s")
    gate = Gate()
    stage.queue.send_many(["one", "two"])
    stage.start(gate, threads=1, backlog=1)
    gate.when_entered()
    stage.when(lambda: stage.stats.received == 2)
    broken.broken = True
    clock.advance("11s")
    broken.when_refused()
    gate.open.set()
    stage.when(lambda: ("two", "released") in stage.heard.asked)
    assert gate.bodies == ["one"]
    broken.broken = False
    while not gate.entered.acquire(timeout=0.01):
        clock.advance("100ms")
    assert gate.bodies == ["one", "two"]


def test_a_message_that_comes_again_while_its_handler_runs_here_is_not_begun_again(
    place: Place, stages: Stages, clock: TimeMachine
) -> None:
    """The lease was not renewed while the store was away. What the handler comes to counts for the newest receipt."""
    broken = Breaking(place.store(clock))
    stage = stages(clock, broken, lease="10s")
    gate = Gate()
    stage.queue.send("one")
    dispatcher = stage.start(gate, threads=2)
    gate.when_entered()
    broken.broken = True
    clock.advance("11s")
    broken.when_refused()
    broken.broken = False
    while stage.stats.received < 2:
        clock.advance("100ms")
        stage.look_around()
    stage.queue.send("next")
    gate.when_entered()
    assert gate.bodies == ["one", "next"]
    gate.open.set()
    dispatcher.drain(None)
    assert sorted(map(str, stage.heard.outcomes)) == ["('next', 'acked')", "('one', 'acked')"]
    assert stage.queue.stats.lost == 0


def test_what_is_not_begun_within_its_lease_comes_back_later_each_time_and_then_at_the_cost_of_an_attempt(
    stages: Stages, clock: TimeMachine
) -> None:
    stage = stages(clock, lease="10s", max_attempts=2)
    stage.queue.send("one")
    executions = Dispatcher.builder().queue(stage.queue).handler(print).build()._subscriptions[0].executions  # noqa: SLF001 - too late
    seen: list[tuple[float, int]] = []
    while not reasons(stage):
        [delivery] = stage.queue.receive()
        clock.advance("11s")
        executions.carry_out(delivery)
        stage.queue.run(stage.queue.core.claimer.flush())
        seen += [((due - clock.now()) / SECOND, spent) for due, spent in hidden(stage)]
        clock.advance("1m")
    assert [round(pause, 2) for pause, _ in seen[:5]] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert [spent for _, spent in seen] == [0, 0, 0, 0, 0, 1]
    [(kind, reason, attempts)] = reasons(stage)
    assert (kind, attempts) == ("failed", 2)
    assert reason.startswith("its lease expired before a handler was free, 7 times")


def hidden(stage: Stage) -> list[tuple[int, int]]:
    """When each hidden message is due, and the attempts it has used up."""
    columns = stage.queue.run(read_one(Slice("emails:0:0", Type.TIMER, 0)))
    timers = [decode_timer("emails:0:0", column.name, column.value) for column in columns]
    return [(timer.due, entry.spent) for timer in timers for entry in timer.entries]
