"""Log lines of a worker."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from astyqueue.cli.logging import configure, warn
from astyqueue.dispatch.worker_log import log_event

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


def test_each_line_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "text")
    configure("info", "text")
    log_event(logging.INFO, "ready")
    assert line(capsys).endswith(" INFO astyqueue.worker ready")
