"""The lines of a worker's log: their facts, and the tracebacks that follow them."""

from __future__ import annotations

import logging

import pytest

import astyqueue
from astyqueue.dispatch.stacks import traceback_text
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.testing import TimeMachine
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import Gate, Stage

PACKAGE = astyqueue.__file__.removesuffix("/__init__.py")


def facts_of(caplog: pytest.LogCaptureFixture, event: str) -> dict[str, object]:
    facts: dict[str, object] = next(
        vars(record)["facts"] for record in caplog.records if vars(record).get("event") == event
    )
    return facts


def raised_inside(path: str, error: Exception) -> Exception:
    """The error after it passed through a function of a file at this path."""

    def raising() -> None:
        raise error

    names: dict[str, object] = {"raising": raising}
    exec(compile("def framed():\n    raising()\n", path, "exec"), names)  # noqa: S102 - a frame of a file that is elsewhere
    framed = names["framed"]
    assert callable(framed)
    try:
        framed()
    except Exception as caught:  # noqa: BLE001 - whatever was given
        return caught
    raise AssertionError


def test_a_traceback_leaves_out_the_frames_of_astyqueue_also_of_causes_contexts_and_groups() -> None:
    path = f"{PACKAGE}/dispatch/execution/delivery_execution.py"
    error = raised_inside(path, ValueError("outer"))
    error.__cause__ = raised_inside(path, KeyError("cause"))
    error.__cause__.__context__ = raised_inside(path, OSError("context"))
    group = ExceptionGroup("many", [raised_inside(path, TypeError("member"))])
    error.__cause__.__context__.__cause__ = group
    text = traceback_text(error)
    assert [name for name in ("outer", "cause", "context", "many", "member") if name not in text] == []
    assert path not in text


def test_a_traceback_keeps_the_frames_of_a_package_whose_name_begins_alike() -> None:
    path = f"{PACKAGE}_plugins/tasks.py"
    assert path in traceback_text(raised_inside(path, ValueError("outer")))


def test_the_line_of_a_message_that_was_settled_by_hand_says_how_late_and_how_long_it_was(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stage.queue.send("one")
    stage.once(Delivery.ack)
    facts = facts_of(caplog, "done")
    assert (facts["queue"], facts["outcome"], "lag_ms" in facts, "dur_ms" in facts) == ("emails", "acked", True, True)


def test_every_line_of_a_message_names_its_queue_and_those_of_an_attempt_say_how_late_and_how_long_it_was(
    stages: Stages, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Delivery) -> None:
        clock.advance("2s")
        message = "wrong"
        raise ValueError(message)

    caplog.set_level(logging.INFO)
    stage = stages(clock, max_attempts=2, backoff="1s")
    stage.queue.send("one")
    clock.advance("3s")
    stage.once(fail)
    facts = facts_of(caplog, "retry")
    assert (facts["queue"], facts["lag_ms"], facts["dur_ms"]) == ("emails", 3_000, 2_000)


def test_a_handler_that_ends_after_its_timeout_says_how_long_it_took(
    stages: Stages, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    stage = stages(clock, lease="1h", max_attempts=1)
    gate = Gate()
    stage.queue.send("one")
    dispatcher = stage.start(gate, threads=1, timeout="5s")
    gate.when_entered()
    clock.advance("5s")
    stage.when_settled(1)
    clock.advance("7s")
    gate.open.set()
    dispatcher.drain(None)
    for thread in dispatcher.threads:
        thread.join()
    assert (facts_of(caplog, "dead")["dur_ms"], facts_of(caplog, "ended_after_timeout")["dur_ms"]) == (5_000, 12_000)
