"""Who handles a message, and what is refused before anything runs."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest

from astyqueue.dispatch.builder import DispatcherBuilder
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.handlers.handler import Call, Handler
from astyqueue.dispatch.worker_log import DeliveryLog
from astyqueue.errors import BadInput, BadSetting, Reject, Retry, Snooze
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import Gate, Stage
from tests.unit.dispatch.test_outcomes import reasons, timers

Seen = list[tuple[str, object]]


def noting(seen: Seen, name: str) -> Call:
    return lambda delivery: seen.append((name, delivery.body))


def built(stage: Stage) -> DispatcherBuilder[Dispatcher]:
    return Dispatcher.builder().queue(stage.queue, threads=1)


def handled(stage: Stage, builder: DispatcherBuilder[Dispatcher], outcomes: int) -> None:
    """Let a dispatcher run until there were this many outcomes."""
    dispatcher = stage.begin(builder.build())
    stage.when_settled(outcomes)
    dispatcher.drain(None)


@pytest.mark.every_store
def test_messages_go_to_the_handler_of_their_task_and_all_others_to_the_one_for_all(stage: Stage) -> None:
    seen: Seen = []
    stage.queue.send("a", headers={"task": "mail.send"})
    stage.queue.send("b", headers={"task": "mail.other"})
    stage.queue.send("c")
    builder = built(stage).handler(noting(seen, "all")).handler(noting(seen, "send"), task="mail.send")
    handled(stage, builder, 3)
    assert sorted(seen) == [("all", "b"), ("all", "c"), ("send", "a")]


def test_a_factory_makes_handlers_by_name_and_is_asked_once_for_each(stage: Stage) -> None:
    seen: Seen = []
    asked: list[str] = []

    def factory(name: str) -> Call | None:
        asked.append(name)
        return noting(seen, name)

    for name in ("one", "two", "one", "two"):
        stage.queue.send(1, headers={"task": name})
    handled(stage, built(stage).handlers(factory), 4)
    assert sorted(seen) == [("one", 1), ("one", 1), ("two", 1), ("two", 1)]
    assert sorted(asked) == ["one", "two"]


def test_what_a_factory_makes_may_have_options_of_its_own(stage: Stage) -> None:
    def factory(name: str) -> Handler:
        return Handler(name, lambda _: dict[str, int]()["gone"], max_attempts=1)

    stage.queue.send(1, headers={"task": "one"})
    handled(stage, built(stage).handlers(factory), 1)
    assert [reason for _, reason, _ in reasons(stage)] == ["KeyError: 'gone'"]


def test_a_factory_that_fails_is_a_failed_attempt(stage: Stage) -> None:
    def factory(name: str) -> None:
        raise ImportError(name)

    stage.queue.send(1, headers={"task": "one"})
    handled(stage, built(stage).handlers(factory, max_attempts=1), 1)
    assert stage.heard.count("released") == 1
    assert [(state, spent) for _, state, spent in timers(stage)] == [("BACKING_OFF", 1)]


@pytest.mark.parametrize("headers", [{"task": "from.tomorrow"}, None])
def test_a_message_that_nobody_here_knows_is_parked_and_costs_no_attempt(
    stages: Stages, clock: TimeMachine, headers: dict[str, str] | None
) -> None:
    stage = stages(clock, max_attempts=1)
    stage.queue.send("one", headers=headers)
    stage.queue.send("known", headers={"task": "known"})
    gate = Gate()
    gate.open.set()
    dispatcher = stage.begin(built(stage).handler(gate, task="known").handlers(lambda _: None).build())
    gate.when_entered()
    dispatcher.drain(None)
    assert timers(stage) == [(60, "PARKED", 0)]
    clock.advance("1m")
    stage.once(lambda _: None)
    assert stage.heard.outcomes[-1] == ("one", "acked")


def park_again(stage: Stage) -> list[tuple[int, str, int]]:
    """Let a worker without its task have the one message there is; what hides the message then."""
    builder = built(stage).handlers(lambda _: None)
    before = len(stage.heard.outcomes)
    handled(stage, builder, before + 1)
    return timers(stage)


def test_a_message_that_nobody_knows_is_tried_ever_more_rarely(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, max_attempts=1)
    stage.queue.send("one", headers={"task": "from.tomorrow"})
    pauses = []
    for _ in range(9):
        [(pause, state, spent)] = park_again(stage)
        assert (state, spent) == ("PARKED", 0)
        pauses.append(pause)
        clock.advance(pause)
    assert pauses == [60, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_a_message_that_nobody_knows_in_a_week_ends_as_a_dead_letter(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, max_attempts=2)
    stage.queue.send("one", headers={"task": "from.tomorrow"})
    clock.advance("7d")
    assert park_again(stage) == [(3600, "PARKED", 1)]
    clock.advance("1h")
    assert park_again(stage) == []
    assert reasons(stage) == [("failed", "no worker that claimed it in 7d1h knows task 'from.tomorrow'", 2)]


def test_a_message_without_a_task_is_parked_with_a_hint(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.queue.send("one")
    handled(stage, built(stage).handlers(lambda _: None), 1)
    [told] = [record.getMessage() for record in caplog.records if record.getMessage().startswith("parked")]
    assert 'hint="it names no task: send it with the header task, or give a handler without task="' in told


def test_an_unknown_task_is_spoken_of_once_a_minute(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.queue.send_many(range(5), headers={"task": "from.tomorrow"})
    stage.queue.send_many(range(5), headers={"task": "from.yesterday"})
    handled(stage, built(stage).handler(print, task="known"), 10)
    parked = [record.getMessage() for record in caplog.records if record.getMessage().startswith("parked")]
    assert len(parked) == 2
    told = 'hint="this worker does not know the task: start one whose app has it, or correct the sender"'
    assert all(told in line for line in parked)


def test_a_wall_clock_that_is_set_repeats_no_line_of_an_unknown_task(
    stages: Stages, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    queue = stages(clock).queue
    queue.send("x", headers={"task": "from.tomorrow"})
    log, [delivery] = DeliveryLog(clock), queue.receive()
    for year in (2030, 2040, 2020):
        clock.set(datetime(year, 1, 1, tzinfo=UTC))
        log.unknown(delivery, SECOND)
    assert sum(record.getMessage().startswith("parked") for record in caplog.records) == 1


def test_a_hundred_unknown_tasks_are_spoken_of_in_a_minute_and_of_long_names_the_beginning(
    stages: Stages, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    stage = stages(clock)
    for number in range(120):
        stage.queue.send("x", headers={"task": f"{number:03}{'x' * 8_000}"})
    handled(stage, built(stage).handler(print, task="known"), 120)
    parked = [record.getMessage() for record in caplog.records if record.getMessage().startswith("parked")]
    assert len(parked) == 100
    assert max(map(len, parked)) < 600
    assert "no more are logged for a minute" in parked[-1]
    caplog.clear()
    clock.advance("61s")
    dispatcher = stage.start(print, task="known", threads=1)
    stage.when_settled(240)
    dispatcher.drain(None)
    assert sum(record.getMessage().startswith("parked") for record in caplog.records) == 100


def test_a_thousand_handlers_of_a_factory_are_kept_whatever_names_senders_choose(stage: Stage) -> None:
    asked: list[str] = []

    def factory(name: str) -> Call:
        asked.append(name)
        return lambda _: None

    for number in range(1_001):
        stage.queue.send(number, headers={"task": f"task {number}"})
    dispatcher = built(stage).handlers(factory).build()
    stage.begin(dispatcher)
    stage.when_settled(1_001)
    for name in ("task 1000", "task 1", "task 0"):
        stage.queue.send("again", headers={"task": name})
    stage.when_settled(1_004)
    dispatcher.drain(None)
    assert len(asked) == 1_002
    assert asked[-1] == "task 0"


def test_middleware_wraps_handlers_the_first_outermost(stage: Stage) -> None:
    seen: list[object] = []

    def outer(delivery: Delivery, call_next: Call) -> object:
        seen.append("outer before")
        result = call_next(delivery)
        seen.append(("outer after", result))
        return result

    def inner(delivery: Delivery, call_next: Call) -> object:
        seen.append("inner before")
        return [call_next(delivery)]

    stage.queue.send("one")
    handled(stage, built(stage).handler(lambda delivery: delivery.body).middleware(outer, inner), 1)
    assert seen == ["outer before", "inner before", ("outer after", ["one"])]


def test_middleware_may_answer_for_the_handler_or_fail(stage: Stage) -> None:
    def skipping(delivery: Delivery, call_next: Call) -> object:
        if delivery.body == "bad":
            message = "no"
            raise PermissionError(message)
        return None if delivery.body == "skip" else call_next(delivery)

    seen: Seen = []
    stage.queue.send_many(["skip", "do", "bad"])
    handled(stage, built(stage).handler(noting(seen, "all"), max_attempts=1).middleware(skipping), 3)
    assert seen == [("all", "do")]
    assert sorted(map(str, stage.heard.outcomes)) == ["('bad', 'rejected')", "('do', 'acked')", "('skip', 'acked')"]


async def asynchronous_generator(_: Delivery) -> AsyncIterator[int]:
    yield 1


def generator(_: Delivery) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (generator, "generator"),
        (asynchronous_generator, "generator"),
        ("text", "not a handler"),
    ],
)
def test_what_would_do_nothing_when_called_is_refused(still: Stage, call: Call, told: str) -> None:
    with pytest.raises(BadSetting, match=told):
        built(still).handler(call)


def test_what_cannot_be_is_refused(still: Stage) -> None:
    def handle(_: Delivery) -> None:
        """Nothing."""

    with pytest.raises(BadSetting, match="needs a queue"):
        Dispatcher.builder().build()
    with pytest.raises(BadSetting, match="name the queue first"):
        Dispatcher.builder().handler(handle)
    with pytest.raises(BadSetting, match="no handler"):
        built(still).build()
    with pytest.raises(BadSetting, match="twice"):
        built(still).queue(still.queue)
    with pytest.raises(BadSetting, match="two handlers for all"):
        built(still).handler(handle).handler(handle)
    with pytest.raises(BadSetting, match="task 'a'"):
        built(still).handler(handle, task="a").handler(handle, task="a")
    with pytest.raises(BadSetting, match="factories"):
        built(still).handlers(lambda _: None).handlers(lambda _: None)
    with pytest.raises(BadSetting, match="tasks='mail' is one text"):
        built(still).handlers(lambda _: None, tasks="mail")
    with pytest.raises(BadSetting, match="a timeout of 0"):
        Handler("a", handle, 0)
    with pytest.raises(BadSetting, match=r"blocked_after is .*: give at least 1ms"):
        built(still).coroutines(10, blocked_after=0.000_999)


@pytest.mark.parametrize(
    "options",
    [{"threads": 0}, {"threads": 1.5}, {"backlog": -1}, {"max_attempts": 0}, {"timeout": 0}, {"timeout": "soon"}],
)
def test_options_out_of_bounds_are_refused(still: Stage, options: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        Dispatcher.builder().queue(still.queue).handler(print, **options)  # type: ignore[arg-type]  # wrong on purpose


def test_lines_of_the_log_say_what_happened_and_carry_it_as_fields(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="astyqueue.worker")
    stage.queue.send({"secret": 1}, headers={"task": "mail.send"})
    handled(stage, built(stage).handler(lambda _: None, task="mail.send"), 1)
    records = [record for record in caplog.records if record.name == "astyqueue.worker"]
    assert [record.getMessage().split()[0] for record in records] == [
        "ready",
        "start",
        "done",
        "drain_begun",
        "stopped",
    ]
    assert [record.levelname for record in records] == ["INFO", "DEBUG", "INFO", "INFO", "INFO"]
    done = next(record for record in caplog.records if record.getMessage().startswith("done"))
    facts: dict[str, object] = vars(done)["facts"]
    assert (vars(done)["event"], facts["task"], facts["attempt"]) == ("done", "mail.send", 1)
    assert {"id", "lag_ms", "dur_ms"} <= facts.keys()
    assert "secret" not in caplog.text


def test_a_failure_is_one_record_with_the_traceback_of_the_program_only(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Delivery) -> None:
        message = "no\x1b[2J luck"
        raise LookupError(message)

    stage.queue.send("one")
    handled(stage, built(stage).middleware(lambda delivery, call_next: call_next(delivery)).handler(fail), 1)
    (retry,) = (record for record in caplog.records if vars(record).get("event") == "retry")
    assert retry.exc_text is not None
    assert retry.exc_text.isprintable() is False
    assert "\x1b" not in retry.exc_text
    assert retry.exc_text.count("  File ") == 2  # the middleware, the handler
    assert "astyqueue/dispatch" not in retry.exc_text
    assert retry.exc_text.endswith("LookupError: no\\u001b[2J luck")
    assert logging.Formatter().format(retry).endswith(retry.exc_text)


@pytest.mark.parametrize("chosen", [Retry("1s"), Reject("bad"), Snooze("1s")])
def test_an_outcome_that_the_handler_chose_has_no_traceback(
    stage: Stage, caplog: pytest.LogCaptureFixture, chosen: Exception
) -> None:
    def choose(_: Delivery) -> None:
        raise chosen

    caplog.set_level(logging.INFO, logger="astyqueue.worker")
    stage.queue.send("one")
    handled(stage, built(stage).handler(choose), 1)
    (line,) = (record for record in caplog.records if vars(record).get("event") in {"retry", "dead", "snooze"})
    assert (line.exc_info, line.exc_text) == (None, None)
    assert ("again_in" in vars(line)["facts"]) is not isinstance(chosen, Reject)


def test_a_long_traceback_keeps_its_ends(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Delivery) -> None:
        message = "x" * 1_000_000
        raise LookupError(message)

    stage.queue.send("one")
    handled(stage, built(stage).handler(fail), 1)
    (retry,) = (record for record in caplog.records if vars(record).get("event") == "retry")
    assert "Traceback (most recent call last)" in str(retry.exc_text)
    assert "characters are left out here" in str(retry.exc_text)
    assert len(str(retry.exc_text)) < 17_000


def test_the_trace_id_of_a_message_is_in_its_lines(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="astyqueue.worker")
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    for header in (f"00-{trace}-00f067aa0ba902b7-01", "not a trace"):
        stage.queue.send("one", headers={"traceparent": header})
    handled(stage, built(stage).handler(lambda _: None), 2)
    done = [vars(record)["facts"] for record in caplog.records if vars(record).get("event") == "done"]
    assert sorted(facts.get("trace_id", "") for facts in done) == ["", trace]


def test_nobody_is_told_of_what_goes_well_when_nobody_listens(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="astyqueue.worker")
    stage.queue.send_many(range(100))
    handled(stage, built(stage).handler(lambda _: None), 100)
    assert [record for record in caplog.records if record.name.startswith("astyqueue")] == []


def test_where_an_error_came_from_is_told_to_those_who_ask_for_that_much(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="astyqueue.worker")
    stage.queue.send(1)
    handled(stage, built(stage).handler(lambda _: 1 // 0, max_attempts=1), 1)
    assert "dead task=" in caplog.text
    assert "Traceback" in caplog.text


def test_several_queues_have_handlers_of_their_own(stages: Stages) -> None:
    first, second = stages(), stages()
    seen: Seen = []
    first.queue.send("one")
    second.queue.send("two")
    builder = Dispatcher.builder().queue(first.queue).handler(noting(seen, "first"))
    first.begin(builder.queue(second.queue).handler(noting(seen, "second")).build())
    first.when_settled(1)
    second.when_settled(1)
    assert sorted(seen) == [("first", "one"), ("second", "two")]
