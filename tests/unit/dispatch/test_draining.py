"""How a dispatcher ends, also while handlers are stuck or one of its queues fails."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import pytest

from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.execution.delivery_execution import DeliveryOutcome
from astyqueue.dispatch.running_executions import BegunExecution
from astyqueue.errors import Closed
from astyqueue.observe.events import ObservedEvent, Settled
from astyqueue.observe.observers import Observer
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.hooks import Hook
from astyqueue.testing import TimeMachine
from astyqueue.units import MonotonicUs
from tests.support.places import Place
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Gate, Stage
from tests.unit.dispatch.test_outcomes import messages, timers


def in_a_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def ended(thread: threading.Thread) -> bool:
    thread.join(DEADLINE)
    return not thread.is_alive()


@pytest.mark.every_store
def test_a_drain_finishes_what_runs_and_gives_back_at_once_what_was_not_begun(still: Stage) -> None:
    gate = Gate()
    still.queue.send_many(["running", "waiting", "waiting too"])
    dispatcher = still.start(gate, threads=1, backlog=2)
    gate.when_entered()
    still.when(lambda: still.stats.received == 3)
    draining = in_a_thread(lambda: dispatcher.drain("1h"))
    still.when(lambda: still.heard.count("released") == 2)
    assert timers(still)[:2] == [(0, "SNOOZED", 0)] * 2
    assert draining.is_alive()
    gate.open.set()
    assert ended(draining)
    assert still.heard.outcomes[-1] == ("running", "acked")
    assert [delivery.attempt for delivery in still.queue.receive(10)] == [1, 1]


def test_a_drain_claims_nothing_more(still: Stage) -> None:
    gate = Gate()
    still.queue.send("one")
    dispatcher = still.start(gate, threads=2)
    gate.when_entered()
    (idle,) = (thread for thread in dispatcher.threads if ":handle" in thread.name and thread not in gate.threads)
    dispatcher.drain("1h", wait=False)
    idle.join(DEADLINE)  # it ends when nothing more is to be claimed
    still.queue.send("two")
    still.look_around()
    gate.open.set()
    dispatcher.drain("1h")
    assert gate.bodies == ["one"]
    assert messages(still) == 1


def test_what_still_runs_when_the_time_to_drain_is_over_is_released_and_costs_no_attempt(
    still: Stage, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    still.queue.send("slow")
    dispatcher = still.start(gate, threads=1)
    gate.when_entered()
    draining = in_a_thread(lambda: dispatcher.drain("30s"))
    while draining.is_alive():
        clock.advance("10s")
        draining.join(0.01)
    assert still.heard.outcomes[-1] == ("slow", "released")
    [again] = still.queue.receive(1)
    assert (again.body, again.attempt) == ("slow", 1)
    gate.open.set()
    handler = next(thread for thread in threading.enumerate() if thread.name == "astyqueue:handle:1")
    assert ended(handler)
    assert still.heard.count("acked") == 0
    assert "ended_after_timeout" in [record.getMessage().split()[0] for record in caplog.records]
    again.ack()


def test_a_stop_does_not_wait_for_handlers(still: Stage) -> None:
    gate = Gate()
    still.queue.send_many(["running", "waiting"])
    dispatcher = still.start(gate, threads=1, backlog=1)
    gate.when_entered()
    still.when(lambda: still.stats.received == 2)
    dispatcher.stop()
    assert sorted(map(str, still.heard.outcomes)) == ["('running', 'released')", "('waiting', 'released')"]
    assert {delivery.attempt for delivery in still.queue.receive(10)} == {1}
    gate.open.set()


@pytest.mark.every_store
def test_a_stop_loses_no_ack(stage: Stage) -> None:
    done: list[object] = []
    some = threading.Event()

    def handle(delivery: Delivery) -> None:
        done.append(delivery.body)
        if len(done) == 700:
            some.set()

    stage.queue.send_many(range(5_000))
    dispatcher = stage.start(handle, threads=8)
    assert some.wait(DEADLINE)
    dispatcher.drain(None)
    finished = {body for body, outcome in stage.heard.outcomes if outcome == "acked"}
    assert finished == set(done)
    assert messages(stage) == 5_000 - len(done)
    assert stage.stats.lost == stage.queue.stats.lost == 0


def test_a_drain_waits_for_a_claim_thread_that_has_committed_outcomes_and_not_yet_noted_them(stages: Stages) -> None:
    class Pausing(Observer):
        def __init__(self) -> None:
            self.hears, self.goes_on = threading.Event(), threading.Event()

        def observe(self, event: ObservedEvent) -> None:
            if isinstance(event, Settled):
                self.hears.set()
                assert self.goes_on.wait(DEADLINE)

    pausing = Pausing()
    stage = stages(observers=[pausing])
    stage.queue.send("a")
    dispatcher = stage.start(lambda _: None)
    assert pausing.hears.wait(DEADLINE)
    drain = in_a_thread(lambda: dispatcher.drain(None))
    drain.join(0.2)
    pausing.goes_on.set()
    assert ended(drain)
    assert stage.heard.outcomes == [("a", "acked")]


def test_hooks_have_heard_of_every_outcome_when_a_drain_is_over(stages: Stages) -> None:
    class Slow(Hook):
        def __init__(self) -> None:
            self.hears, self.goes_on = threading.Event(), threading.Event()
            self.heard: list[object] = []

        def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
            self.hears.set()
            assert self.goes_on.wait(DEADLINE)
            self.heard.append((delivery.body, outcome))

    slow = Slow()
    stage = stages(hooks=[slow])
    stage.queue.send("a")
    dispatcher = stage.start(lambda _: None)
    assert slow.hears.wait(DEADLINE)
    drain = in_a_thread(lambda: dispatcher.drain(None))
    drain.join(0.2)
    assert drain.is_alive()
    slow.goes_on.set()
    assert ended(drain)
    assert slow.heard == [("a", "acked")]


def test_a_stop_records_the_outcome_of_a_handler_that_has_ended_though_a_hook_is_still_asked_about_it(
    stages: Stages,
) -> None:
    class Slow(Hook):
        def __init__(self) -> None:
            self.asked, self.answers = threading.Event(), threading.Event()
            self.about: list[object] = []

        def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
            self.about.append((delivery.body, outcome))
            self.asked.set()
            assert self.answers.wait(DEADLINE)

    slow = Slow()
    stage = stages(hooks=[slow])
    stage.queue.send("a")
    dispatcher = stage.start(lambda _: None)
    assert slow.asked.wait(DEADLINE)
    stop = in_a_thread(dispatcher.stop)
    stop.join(0.2)
    slow.answers.set()
    assert ended(stop)
    assert stage.heard.outcomes == slow.about == [("a", "acked")]
    assert messages(stage) == 0


def test_a_stop_while_draining_ends_the_drain(still: Stage) -> None:
    gate = Gate()
    still.queue.send("slow")
    dispatcher = still.start(gate, threads=1)
    gate.when_entered()
    draining = in_a_thread(lambda: dispatcher.drain(None))
    still.look_around()
    assert draining.is_alive()
    dispatcher.stop()
    assert ended(draining)
    assert still.heard.outcomes == [("slow", "released")]
    gate.open.set()


def test_stop_and_drain_may_be_called_from_anywhere_and_again(still: Stage) -> None:
    dispatcher = still.start(lambda _: None, threads=3)
    threads = [in_a_thread(dispatcher.stop) for _ in range(8)] + [in_a_thread(dispatcher.drain) for _ in range(8)]
    assert all(map(ended, threads))
    dispatcher.stop()
    dispatcher.drain(None)
    assert not dispatcher.running


@pytest.mark.parametrize("end", [Dispatcher.stop, Dispatcher.drain])
def test_a_handler_may_end_its_own_dispatcher(still: Stage, end: Callable[[Dispatcher], None]) -> None:
    def handle(_: Delivery) -> None:
        end(dispatcher)

    still.queue.send("last")
    dispatcher = Dispatcher.builder().queue(still.queue).handler(handle, threads=1).build()
    still.started.append(dispatcher)
    assert ended(in_a_thread(dispatcher.run))
    assert len(still.heard.outcomes) == 1


def test_run_blocks_until_the_dispatcher_is_drained(still: Stage) -> None:
    gate = Gate()
    gate.open.set()
    still.queue.send("one")
    dispatcher = Dispatcher.builder().queue(still.queue).handler(gate).build()
    running = in_a_thread(dispatcher.run)
    gate.when_entered()
    assert running.is_alive()
    dispatcher.drain()
    assert ended(running)


def test_leaving_its_block_drains_a_dispatcher(still: Stage) -> None:
    gate = Gate()
    gate.open.set()
    still.queue.send("one")
    with Dispatcher.builder().queue(still.queue).handler(gate).build() as dispatcher:
        gate.when_entered()
    assert not dispatcher.running
    assert still.heard.outcomes == [("one", "acked")]


def test_what_is_delivered_at_most_once_is_still_handled_when_draining(still: Stage) -> None:
    gate = Gate()
    for body in ("one", "two"):
        still.queue.send(body, lease=0)
    dispatcher = still.start(gate, threads=1, backlog=1)
    gate.when_entered()
    still.when(lambda: still.stats.received == 2)
    draining = in_a_thread(lambda: dispatcher.drain(None))
    gate.open.set()
    assert ended(draining)
    assert gate.bodies == ["one", "two"]


def test_all_threads_of_a_dispatcher_end_with_it(still: Stage) -> None:
    dispatcher = still.start(lambda _: None, threads=3)
    names = {thread.name for thread in dispatcher.threads}
    assert names == {
        "astyqueue:monitor",
        "astyqueue:presence",
        "astyqueue:claim:1",
        *(f"astyqueue:handle:{number}" for number in (1, 2, 3)),
    }
    dispatcher.stop()
    assert all(map(ended, dispatcher.threads))


def test_a_dispatcher_that_ended_cannot_be_started_again(still: Stage) -> None:
    dispatcher = still.start(lambda _: None)
    dispatcher.stop()
    with pytest.raises(Closed, match="build another"):
        dispatcher.start()


def test_a_dispatcher_that_never_began_can_be_stopped(still: Stage) -> None:
    dispatcher = Dispatcher.builder().queue(still.queue).handler(lambda _: None).build()
    dispatcher.stop()
    dispatcher.drain()
    with pytest.raises(Closed):
        dispatcher.start()


def test_a_dispatcher_in_a_forked_process_tells_to_build_another(still: Stage) -> None:
    dispatcher = still.start(lambda _: None)
    ours = os.getpid()
    try:
        dispatcher._pid = ours + 1  # noqa: SLF001 - a fork of a process with threads is not for a test runner
        with pytest.raises(Closed, match="fork"):
            dispatcher.stop()
        with pytest.raises(Closed, match="fork"):
            dispatcher.start()
    finally:
        dispatcher._pid = ours  # noqa: SLF001 - as above


@pytest.mark.stores("sqlite", "cassandra")
def test_a_forgotten_dispatcher_lets_the_interpreter_exit_and_loses_no_ack(place: Place) -> None:
    """It ends with the main program, while a second handler is stuck; what the first one did is recorded."""
    url = place.url
    program = """
        import sys, threading
        from astyqueue.dispatch.dispatcher import Dispatcher
        from astyqueue.queue.connection import connect

        queue = connect(sys.argv[1]).queue("emails", lease="1h")
        queue.send_many(["one", "stuck"])
        done = {"one": threading.Event(), "stuck": threading.Event()}

        def handle(delivery):
            done[delivery.body].set()
            if delivery.body == "stuck":
                threading.Event().wait()

        Dispatcher.builder().queue(queue).handler(handle, threads=2).build().start()
        assert done["one"].wait(20) and done["stuck"].wait(20)
    """
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), url], timeout=60, check=False, capture_output=True
    )
    assert (finished.returncode, b"Traceback" in finished.stderr) == (0, False), finished.stderr
    from astyqueue.queue.connection import connect  # noqa: PLC0415 - only here

    with connect(url) as connection, connection.queue("emails").receive(10) as left:
        assert [(delivery.body, delivery.attempt) for delivery in left] == [("stuck", 1)]


def test_closing_the_queue_ends_its_dispatcher(still: Stage) -> None:
    dispatcher = still.start(lambda _: None)
    running = in_a_thread(dispatcher.run)
    claimer = still.queue.core.claimer
    still.queue.close()
    claimer.wake()
    assert ended(running)


def test_two_queues_drain_together(stages: Stages, clock: TimeMachine) -> None:
    first, second = stages(clock), stages(clock)
    gate = Gate()
    first.queue.send("one")
    second.queue.send("two")
    built = (
        Dispatcher.builder()
        .queue(first.queue)
        .handler(gate, threads=1)
        .queue(second.queue)
        .handler(gate, threads=1)
        .build()
    )
    first.begin(built)
    gate.when_entered(2)
    gate.open.set()
    built.drain(None)
    assert first.heard.outcomes + second.heard.outcomes == [("one", "acked"), ("two", "acked")]


def test_a_drain_ends_when_its_last_handler_is_given_up_and_not_when_its_own_time_is_over(
    stages: Stages, clock: TimeMachine
) -> None:
    stage = stages(clock, lease="10s")
    gate = Gate()
    stage.queue.send("stuck")
    dispatcher = stage.start(gate, threads=1, timeout="5s")
    gate.when_entered()
    draining = in_a_thread(lambda: dispatcher.drain("1h"))
    clock.advance("6s")
    assert ended(draining)
    assert stage.heard.outcomes == [("stuck", "released")]
    gate.open.set()


@pytest.mark.parametrize("part", ["give_up", "shut", "abandon", "leave"])
def test_an_error_of_one_queue_stops_neither_the_other_queues_nor_the_drain(
    stages: Stages, clock: TimeMachine, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = stages(clock), stages(clock)
    gate = Gate()
    sound.queue.send("stuck")
    builder = Dispatcher.builder().queue(broken.queue).handler(gate, threads=1)
    dispatcher = builder.queue(sound.queue).handler(gate, threads=1, timeout="5s").build()

    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(dispatcher._subscriptions[0], part, fail)  # noqa: SLF001 - nothing that goes wrong there is known
    sound.begin(dispatcher)
    gate.when_entered()
    clock.advance("6s")
    sound.when(lambda: sound.heard.outcomes == [("stuck", "released")])
    dispatcher.drain("1h")
    assert not dispatcher.running
    gate.open.set()


def test_a_stop_gives_back_a_message_that_a_slot_has_taken_and_not_begun(
    still: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = Dispatcher.builder().queue(still.queue).handler(print).build()
    monitor, executions = dispatcher._monitor, dispatcher._subscriptions[0].executions  # noqa: SLF001 - held between two steps
    taken, may_begin, abandoned = threading.Event(), threading.Event(), threading.Event()
    abandon, begin, wait = executions.abandon, executions.begin, monitor._attention.wait  # noqa: SLF001 - as above

    def abandons() -> list[DeliveryOutcome]:
        abandoned.set()
        return abandon()

    def begins_late(delivery: Delivery) -> BegunExecution | None:
        taken.set()
        assert may_begin.wait(DEADLINE)
        return begin(delivery)

    def waits(until: MonotonicUs | None = None) -> None:
        if abandoned.is_set():
            may_begin.set()
        wait(until)

    monkeypatch.setattr(executions, "abandon", abandons)
    monkeypatch.setattr(executions, "begin", begins_late)
    monkeypatch.setattr(monitor._attention, "wait", waits)  # noqa: SLF001 - as above
    dispatcher.when_finished(may_begin.set)
    still.begin(dispatcher)
    still.queue.send("one")
    assert taken.wait(DEADLINE)
    dispatcher.stop()
    assert still.queue.counts().in_flight == 0
