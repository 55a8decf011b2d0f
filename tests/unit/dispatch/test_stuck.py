"""Handlers that outlast their timeout and keep their threads: the log and `doctor` say so; the dispatcher may end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.errors import HandlersStuck
from astyqueue.findings import Finding, Severity
from astyqueue.model.health import findings_of
from astyqueue.protocol.admin.health import read_health
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Gate, Stage
from tests.unit.dispatch.test_outcomes import reasons


@pytest.fixture
def stage(stages: Stages, clock: TimeMachine) -> Stage:
    return stages(clock, lease="1h", max_attempts=1)


def when_entered(stage: Stage, gate: Gate, count: int) -> None:
    """Wait until this many handlers run; time stands still, so the claimer sees to those that began late."""
    for _ in range(count):
        while not gate.entered.acquire(timeout=0.05):
            stage.look_around()


def get_stuck(stage: Stage, clock: TimeMachine, gate: Gate, *, threads: int, count: int) -> Dispatcher:
    """A dispatcher some of whose threads are held by handlers whose time is over."""
    stage.queue.send_many(range(count), headers={"task": "mail.send"})
    builder = Dispatcher.builder().queue(stage.queue, threads=threads).handler(gate, task="mail.send", timeout="5s")
    dispatcher = stage.begin(builder.build())
    when_entered(stage, gate, count)
    clock.advance("5s")
    stage.when(lambda: stage.heard.count("rejected") == count)
    return dispatcher


class Lines(logging.Handler):
    """What a worker logs, and when it has."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self._records.append(record)
            self._changed.notify_all()

    def of(self, event: str) -> list[logging.LogRecord]:
        return [record for record in self._records if vars(record).get("event") == event]

    def first(self, event: str) -> logging.LogRecord:
        """The first line of this kind, waited for."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.of(event), DEADLINE), event
        return self.of(event)[0]


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, log = Lines(), logging.getLogger("astyqueue.worker")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.setLevel(logging.NOTSET)
    log.removeHandler(handler)


def found(stage: Stage) -> list[Finding]:
    settings = stage.queue.settings
    return [
        one
        for one in findings_of(stage.queue.run(read_health(stage.queue.core.process, settings)))
        if one.subject.startswith("worker ")
    ]


def test_a_message_that_dies_of_its_timeout_is_reported_as_dead_like_any_other(
    stage: Stage, clock: TimeMachine, lines: Lines
) -> None:
    gate = Gate()
    get_stuck(stage, clock, gate, threads=2, count=1)
    assert lines.first("dead").levelno == logging.ERROR
    assert vars(lines.first("dead"))["facts"]["error"] == "TimeoutError: no outcome within 5s"
    assert reasons(stage) == [("failed", "TimeoutError: no outcome within 5s", 1)]
    gate.open.set()


def test_a_handler_that_keeps_its_thread_is_reported_once_a_minute(
    stage: Stage, clock: TimeMachine, lines: Lines
) -> None:
    gate = Gate()
    dispatcher = get_stuck(stage, clock, gate, threads=2, count=1)
    clock.advance("59s")
    clock.advance("2s")
    assert lines.first("stuck").levelno == logging.WARNING
    facts = vars(lines.first("stuck"))["facts"]
    assert (facts["queue"], facts["task"], facts["for"], facts["threads"]) == ("emails", "mail.send", "1m6s", "1 of 2")
    for event in ("timed_out", "stuck"):
        assert "stage.py" in (lines.first(event).exc_text or ""), event  # where it is: in the gate of this test
    assert vars(lines.first("timed_out"))["facts"]["dur_ms"] == 5_000
    gate.open.set()
    dispatcher.drain(None)
    [finding] = found(stage)
    assert finding.severity is Severity.WARNING
    assert finding.fact == "1 of 2 threads are occupied by tasks past their timeout: mail.send"
    assert stage.queue.core.process.name in finding.subject


@pytest.mark.parametrize("hours", [-1, 1], ids=["set back", "set ahead"])
def test_how_long_a_handler_is_stuck_is_measured_though_the_wall_clock_is_set(
    stage: Stage, clock: TimeMachine, lines: Lines, hours: int
) -> None:
    gate = Gate()
    get_stuck(stage, clock, gate, threads=2, count=1)
    clock.set(clock.now() + hours * 3_600 * SECOND)
    clock.advance("61s")
    assert vars(lines.first("stuck"))["facts"]["for"] == "1m6s"
    gate.open.set()


@pytest.mark.stores("memory", "sqlite")  # reports go by the clock of a store, which on Cassandra is the server's
def test_a_queue_without_a_thread_left_is_reported_at_once_and_is_a_problem_until_that_is_over(
    stage: Stage, clock: TimeMachine, lines: Lines
) -> None:
    gate = Gate()
    dispatcher = get_stuck(stage, clock, gate, threads=2, count=2)
    assert lines.first("stuck").levelno == logging.ERROR
    assert "no thread is left for this queue" in lines.first("stuck").getMessage()
    gate.open.set()
    dispatcher.drain(None)
    assert [finding.severity for finding in found(stage)] == [Severity.PROBLEM]
    clock.advance("4m")
    assert found(stage) == []


@pytest.mark.parametrize(("most", "threads", "count"), [(2, 3, 2), (10, 2, 2)])
def test_a_dispatcher_may_end_when_so_many_handlers_or_all_are_stuck(
    stage: Stage, clock: TimeMachine, most: int, threads: int, count: int
) -> None:
    gate = Gate()
    stage.queue.send_many(range(count))
    builder = Dispatcher.builder().queue(stage.queue, threads=threads).handler(gate, timeout="5s").max_stuck(most)
    dispatcher = builder.build()
    stage.started.append(dispatcher)
    with ThreadPoolExecutor(1) as running:
        outcome = running.submit(dispatcher.run)
        try:
            when_entered(stage, gate, count)
            clock.advance("5s")
            error = outcome.exception(DEADLINE)
        finally:
            dispatcher.stop(wait=False)
    assert isinstance(error, HandlersStuck)
    assert str(error).startswith(f"{count} of {threads} threads are held by handlers that ran on past their timeout (")
    assert stage.heard.count("rejected") == count
    gate.open.set()


def test_a_dispatcher_that_is_to_begin_one_message_claims_no_more(stage: Stage) -> None:
    gate = Gate()
    stage.queue.send_many(range(20))
    dispatcher = stage.begin(Dispatcher.builder().queue(stage.queue, threads=8).handler(gate).max_messages(1).build())
    gate.when_entered()
    before = stage.stats.claims
    for _ in range(10):
        stage.look_around()
    assert (stage.stats.received, stage.stats.claims) == (1, before)
    gate.open.set()
    dispatcher.drain(None)
    assert stage.heard.outcomes == [(0, "acked")]


def test_it_ends_by_itself_with_the_last_message_and_leaves_the_others_as_they_were(
    stages: Stages, lines: Lines
) -> None:
    one, other = stages(), stages()
    for stage in (one, other):
        stage.queue.send_many(range(20))
    builder = Dispatcher.builder().queue(one.queue, threads=4).handler(lambda _: None)
    dispatcher = builder.queue(other.queue, threads=4).handler(lambda _: None).max_messages(5).build()
    one.started.append(dispatcher)
    with ThreadPoolExecutor(1) as running:
        outcome = running.submit(dispatcher.run)
        try:
            outcome.result(DEADLINE)
        finally:
            dispatcher.stop(wait=False)
    assert len(lines.of("done")) == 5
    assert lines.of("snooze") == []
    left = [found for stage in (one, other) for found in stage.queue.peek(40, include="all")]
    assert [found.spent for found in left] == [0] * 35
