from __future__ import annotations

import ast
import logging
import re
from pathlib import Path
from typing import Final

import pytest

import astyqueue
from astyqueue.journal import UTF8, Journal
from astyqueue.structured_log import log_event

PACKAGE: Final = Path(astyqueue.__file__).parent
_SNAKE_CASE: Final = re.compile(r"[a-z]+(?:_[a-z]+)*")


def test_an_event_is_one_line_and_its_facts_are_fields_of_the_record(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("two\nlines")
    log_event(logging.getLogger("astyqueue.test"), logging.WARNING, "tried", exc_info=error, queue="a b", error=error)
    [record] = caplog.records
    assert record.getMessage() == r'tried queue="a b" error="two\nlines"'
    assert (record.__dict__["event"], record.__dict__["facts"]) == ("tried", {"queue": "a b", "error": error})
    assert record.exc_info is not None
    assert record.funcName.startswith("test_an_event")


def test_what_happens_to_a_journal_is_an_event_with_its_facts_as_fields(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Journal.open(tmp_path, codec=UTF8) as journal:
        journal.cursor("mail").commit(journal.append("hello"))
    [file] = tmp_path.glob("*.mail.cursor")
    file.write_bytes(b"?" * file.stat().st_size)
    with Journal.open(tmp_path, codec=UTF8) as journal:
        assert [record.value for record in journal.read(cursor="mail")] == ["hello"]
    record, *_ = caplog.records
    assert record.__dict__["event"] == "journal_cursor_unreadable"
    assert record.__dict__["facts"] == {"file": file, "effect": "its reader starts from the first record"}


def test_an_event_below_the_level_of_its_logger_is_not_made(caplog: pytest.LogCaptureFixture) -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise AssertionError

    caplog.set_level(logging.WARNING)
    log_event(logging.getLogger("astyqueue.test"), logging.INFO, "tried", fact=Unprintable())
    assert caplog.records == []


def test_the_names_of_events_are_in_snake_case() -> None:
    calls = [
        call
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "log_event"
    ]
    names = {ast.literal_eval(call.args[2]) for call in calls if ast.unparse(call.args[0]) == "_log"}
    assert len(names) > 20
    assert [name for name in names if not _SNAKE_CASE.fullmatch(name)] == []


@pytest.mark.parametrize("package", ["journal", "spool"])
def test_journals_and_spools_log_nothing_but_events(package: str) -> None:
    calls = [
        f"{path.name}:{call.lineno}"
        for path in (PACKAGE / package).glob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("_log.")
    ]
    assert calls == []
