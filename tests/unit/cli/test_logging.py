"""Log lines of a worker."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TextIO, cast

import pytest

from astyqueue import Dispatcher, MessageQueue
from astyqueue.cli.errors import warn
from astyqueue.cli.logging import BatchedLines, configure
from astyqueue.dispatch.handlers.handler import Handler
from astyqueue.dispatch.worker_log import DeliveryLog, log_event
from astyqueue.ids import LEAST
from astyqueue.model.envelope import MessageId
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.testing import TimeMachine
from tests.unit.dispatch.test_threads_missing import Limit

MOMENT = 1_800_000_000.123


@pytest.fixture(autouse=True)
def root() -> Iterator[None]:
    """The root logger as it was, afterwards."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


def line(capsys: pytest.CaptureFixture[str]) -> str:
    logging.getLogger().handlers[0].flush()
    [told] = capsys.readouterr().err.splitlines()
    return str(told)


def test_a_line_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "text")
    record = logging.makeLogRecord(
        {"name": "shop", "levelname": "INFO", "levelno": logging.INFO, "msg": "hello", "created": MOMENT}
    )
    logging.getLogger("shop").handle(record)
    assert line(capsys) == "2027-01-15T08:00:00.123Z INFO shop hello"


def test_no_text_can_pass_for_a_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    forged = "2026-11-21T09:00:00Z INFO astyqueue.worker done"
    configure("info", "text")
    logging.getLogger("shop").warning("a \x1b[2J\n%s", forged)
    try:
        dict[str, str]()[f"\x9b2J\n{forged}"]
    except KeyError as error:
        error.add_note(f"\x9b2J\n{forged}")
        logging.getLogger("shop").exception("no luck", stack_info=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith(f" WARNING shop a \\u001b[2J\\n{forged}")
    assert lines[1].endswith(" ERROR shop no luck")
    assert all(line.startswith("    ") and line.isprintable() for line in lines[2:])


def test_facts_are_quoted_as_json_quotes_them(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "text")
    log_event(logging.WARNING, "retry", task="\x1b[2J", error="ValueError: \x9b", attempt=2, key="")
    assert line(capsys).endswith(r' retry task="\u001b[2J" error="ValueError: \u009b" attempt=2 key=""')


def test_warnings_of_other_commands_are_printed_in_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    warn()
    logging.getLogger("astyqueue.schedules").info("not told")
    logging.getLogger("astyqueue.schedules").warning("passed over: %s, %r", "\x1b[2J\nError: forged", "\x1b")
    assert capsys.readouterr().err == "astyqueue: passed over: \\u001b[2J\\nError: forged, '\\u001b'\n"


def test_facts_are_fields_of_their_own_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")
    log_event(logging.WARNING, "retry", task="welcome", attempt=2)
    told = json.loads(line(capsys))
    assert told.pop("time").endswith("Z")
    assert told == {"level": "warning", "logger": "astyqueue.worker", "event": "retry", "task": "welcome", "attempt": 2}


def test_what_others_log_is_a_message_with_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    configure("warning", "json")
    logging.getLogger("shop").info("not told")
    try:
        dict[str, str]()["address"]
    except KeyError:
        logging.getLogger("shop").exception("no %s", "luck")
    told = json.loads(line(capsys))
    assert (told["message"], told["trace"].splitlines()[-1]) == ("no luck", "KeyError: 'address'")


def test_each_line_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "text")
    configure("info", "text")
    log_event(logging.INFO, "ready")
    assert line(capsys).endswith(" INFO astyqueue.worker ready")


class Stream(io.StringIO):
    """Counts the writes, and says when the first has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.written = threading.Event()

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)

    def flush(self) -> None:
        super().flush()
        self.written.set()


@pytest.fixture
def stderr() -> Stream:
    return Stream()


def configure_on(stream: TextIO | None, form: str = "text") -> None:
    """Configure a process whose stderr is this stream."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", stream)
        configure("info", form)


def flush() -> None:
    logging.getLogger().handlers[0].flush()


DELIVERY = cast(
    "Delivery",
    SimpleNamespace(
        headers={"task": "mail send"},
        row="emails:0:0",
        message_id=MessageId("emails:0:0", 0, LEAST),
        attempt=3,
        due_us=1_000_000,
    ),
)
HANDLER = Handler("mail.send", print)
emit = BatchedLines.emit


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_line_of_a_done_task_is_the_same_with_a_record_and_without(stderr: Stream, form: str) -> None:
    configure_on(stderr, form)
    log = DeliveryLog(TimeMachine())
    records: list[logging.LogRecord] = []

    def note(handler: BatchedLines, record: logging.LogRecord) -> None:
        records.append(record)
        emit(handler, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchedLines, "emit", note)
        for listens in (False, True):
            if listens:
                log.listen()
            log.done(DELIVERY, HANDLER, began=3_500_000, took=12_345)
    assert len(records) == 1
    flush()
    with_record, without = stderr.getvalue().splitlines()
    moment = 23 if form == "text" else 36
    assert with_record[moment:] == without[moment:]
    assert "dur_ms" in without
    assert ('"queue": "emails"' if form == "json" else " queue=emails ") in without


def test_lines_of_done_tasks_are_written_together_and_in_order(stderr: Stream) -> None:
    configure_on(stderr)
    log = DeliveryLog(TimeMachine())
    log.listen()
    log_event(logging.INFO, "ready")
    for number in range(1_000):
        log.done(DELIVERY, HANDLER, began=number, took=number * 1_000)
    log_event(logging.INFO, "drain")
    flush()
    lines = stderr.getvalue().splitlines()
    assert [line.split("dur_ms=")[1] for line in lines[1:-1]] == [str(number) for number in range(1_000)]
    assert (lines[0].split()[-1], lines[-1].split()[-1]) == ("ready", "drain")
    assert stderr.writes <= 3


def test_a_thread_writes_what_no_other_flushes(stderr: Stream) -> None:
    configure_on(stderr)
    log_event(logging.INFO, "ready")
    assert stderr.written.wait(10)
    assert stderr.getvalue().endswith(" ready\n")


def log_threads() -> int:
    return sum(thread.name == "astyqueue:log" for thread in threading.enumerate())


def test_lines_for_which_no_thread_can_be_started_are_written_by_the_caller_until_one_can(
    stderr: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_on(stderr)
    limit = Limit("log", monkeypatch)
    log_event(logging.INFO, "ready")
    log_event(logging.INFO, "joined")
    assert [line.split()[-1] for line in stderr.getvalue().splitlines()] == ["ready", "joined"]
    before = log_threads()
    limit.lifted = True
    stderr.written.clear()
    log_event(logging.INFO, "left")
    assert stderr.written.wait(10)
    assert log_threads() == before + 1
    assert stderr.getvalue().endswith(" left\n")


def test_an_error_is_written_before_the_call_that_logs_it_returns(stderr: Stream) -> None:
    configure_on(stderr)
    log_event(logging.INFO, "ready")
    log_event(logging.ERROR, "claim_failed")
    assert [line.split()[-1] for line in stderr.getvalue().splitlines()] == ["ready", "claim_failed"]


def test_a_logger_with_filters_or_handlers_of_its_own_gets_records(stderr: Stream) -> None:
    configure_on(stderr)
    seen: list[str] = []

    def note(record: logging.LogRecord) -> bool:
        seen.append(record.getMessage())
        return True

    logger = logging.getLogger("astyqueue.worker")
    logger.addFilter(note)
    try:
        log = DeliveryLog(TimeMachine())
        log.listen()
        log.done(DELIVERY, HANDLER, began=0, took=0)
    finally:
        logger.removeFilter(note)
    flush()
    assert len(seen) == stderr.getvalue().count("done") == 1


def test_a_record_that_cannot_be_formatted_loses_only_itself(stderr: Stream) -> None:
    configure_on(stderr)
    logging.getLogger("shop").info("%d apples", "many")
    logging.getLogger("shop").info("pears")
    flush()
    assert stderr.getvalue().endswith(" INFO shop pears\n")


class LogsItself:
    def __str__(self) -> str:
        logging.getLogger("shop").error("logged while a line is formatted")
        return "an argument"


def test_an_argument_that_logs_loses_no_line(stderr: Stream) -> None:
    configure_on(stderr)
    log = logging.getLogger("shop")
    log.info("before")
    log.info("%s", LogsItself())
    log.error("after")
    told = [line.partition(" shop ")[2] for line in stderr.getvalue().splitlines()]
    assert told == ["before", "an argument", "after", "logged while a line is formatted"]


def test_a_closed_stderr_gets_nothing_and_raises_nothing() -> None:
    configure_on(None)
    log_event(logging.ERROR, "claim_failed")


def test_a_forked_child_prints_its_own_lines_and_none_of_its_parent() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        configure_on(stream)
        logging.getLogger().handlers[0].acquire()  # as another thread may at the moment of the fork
        log_event(logging.INFO, "parent")
        if (child := os.fork()) == 0:
            for name in ("child", "again"):
                log_event(logging.INFO, name)
            os._exit(0)
        os.waitpid(child, 0)
        flush()
    with os.fdopen(reading) as printed:  # libraries may log in a child as well, as they let go of what it copied
        words = [line.split()[-1] for line in printed]
    assert [words.count(name) for name in ("parent", "child", "again")] == [1, 1, 1]


def test_a_dispatcher_writes_a_line_for_each_message(stderr: Stream) -> None:
    configure_on(stderr)
    with MessageQueue.builder().store("memory://").name("emails").build() as queue:
        queue.send_many(range(20))
        dispatcher = Dispatcher.builder().queue(queue, threads=2).handler(lambda _: None).max_messages(20).build()
        dispatcher.run()
    flush()
    assert stderr.getvalue().count(" INFO astyqueue.worker done task=") == 20
