"""The thread that forwards a spool: what it does after errors that concern no message, and after errors of its log."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

from astyqueue import ids
from astyqueue.errors import BadSetting, StoreUnavailable
from astyqueue.model.envelope import MessageId, encode_plain
from astyqueue.observe.observers import UNOBSERVED
from astyqueue.spool import Spool, SpooledMessage, SpoolOptions
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.journal.conftest import until_true

if TYPE_CHECKING:
    from _typeshed import TraceFunction

ROWS: Final = ("many:0:0", "many:0:1")
LOG: Final = "astyqueue.spool"


def message(row: str, number: int) -> SpooledMessage:
    return SpooledMessage(MessageId(row, 0, ids.first_at(number)), encode_plain(number, b'"body"'))


class Forwarding:
    """A spool that is forwarded to this object, which fails as a test says."""

    def __init__(self, folder: Path, clock: TimeMachine) -> None:
        self.clock = clock
        self.error_of_rows: Callable[[set[str]], Exception | None] = lambda _: None
        self.errors: dict[str, Exception] = {}
        self.calls = 0
        self.arrived: list[SpooledMessage] = []
        self.spool = Spool(SpoolOptions.of(folder, drain=0), "many", clock)
        self.spool.start(self._deliver, UNOBSERVED)

    def _deliver(self, messages: Sequence[SpooledMessage]) -> Mapping[str, Exception]:
        self.calls += 1
        if error := self.error_of_rows({one.id.row for one in messages}):
            raise error
        self.arrived += [one for one in messages if one.id.row not in self.errors]
        return self.errors

    def in_time(self, condition: Callable[[], bool]) -> None:
        """Have the clock go on, so that the thread tries again, until this holds."""
        until_true(lambda: condition() or self.clock.advance("5s") is None)

    def fail(self, error: Exception | None) -> None:
        self.error_of_rows = lambda _: error

    @property
    def is_failing(self) -> bool:
        return self.spool.status().failing_since is not None


@pytest.fixture
def forwarding(tmp_path: Path, clock: TimeMachine) -> Iterator[Forwarding]:
    made = Forwarding(tmp_path, clock)
    with closing(made.spool):
        yield made


def test_an_error_that_concerns_all_rows_refuses_no_message_however_often_it_comes(
    forwarding: Forwarding, caplog: pytest.LogCaptureFixture
) -> None:
    error = RuntimeError("can't start new thread")
    forwarding.error_of_rows = lambda rows: error if len(rows) > 1 else None
    sent = [message(row, number) for number, row in enumerate(ROWS)]
    forwarding.spool.append(sent)
    forwarding.in_time(lambda: forwarding.calls >= 8 or forwarding.spool.status().refused > 0)
    status = forwarding.spool.status()
    assert (status.refused, status.messages, status.last_error) == (0, 2, "RuntimeError: can't start new thread")
    assert caplog.text.count("spool_unexpected_error") == 1
    forwarding.fail(None)
    forwarding.in_time(lambda: not forwarding.is_failing)
    assert (forwarding.arrived, forwarding.spool.status().refused) == (sent, 0)


def test_a_row_waits_while_the_store_cannot_be_opened_again_with_the_settings_it_has(forwarding: Forwarding) -> None:
    forwarding.errors = {ROWS[0]: BadSetting("password_file '/run/secrets/queue' cannot be read")}
    sent = [message(row, number) for number, row in enumerate(ROWS)]
    forwarding.spool.append(sent)
    forwarding.in_time(lambda: forwarding.calls >= 8 or forwarding.spool.status().refused > 0)
    assert (forwarding.arrived, forwarding.spool.status().refused) == (sent[1:], 0)
    forwarding.errors = {}
    forwarding.in_time(lambda: not forwarding.is_failing)
    assert forwarding.arrived == [*sent[1:], sent[0]]


class Refusing(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        raise KeyError(record.name)


@pytest.fixture
def refusing_filter() -> Iterator[None]:
    log, refusing = logging.getLogger(LOG), Refusing()
    log.addFilter(refusing)
    yield
    log.removeFilter(refusing)


class Unprintable(Exception):
    def __str__(self) -> NoReturn:
        raise AssertionError


@pytest.mark.usefixtures("refusing_filter")
@pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("a bug of the driver")])
def test_a_log_filter_that_raises_ends_no_forwarding(
    error: Exception, forwarding: Forwarding, capsys: pytest.CaptureFixture[str]
) -> None:
    forwarding.fail(error)
    sent = [message(ROWS[0], 0)]
    forwarding.spool.append(sent)
    forwarding.in_time(lambda: forwarding.is_failing)
    forwarding.fail(None)
    forwarding.in_time(lambda: not forwarding.is_failing)
    assert forwarding.arrived == sent
    assert "KeyError: 'astyqueue.spool'" in capsys.readouterr().err


def test_an_error_without_a_text_ends_no_forwarding(forwarding: Forwarding) -> None:
    forwarding.fail(Unprintable())
    sent = [message(ROWS[0], 0)]
    forwarding.spool.append(sent)
    forwarding.in_time(lambda: forwarding.is_failing)
    assert forwarding.spool.status().last_error == "Unprintable: (its text is not available: its __str__ raised)"
    forwarding.fail(None)
    forwarding.in_time(lambda: not forwarding.is_failing)
    assert forwarding.arrived == sent


def test_an_error_with_half_a_surrogate_pair_ends_no_forwarding(forwarding: Forwarding) -> None:
    forwarding.fail(PermissionError("Permission denied: '/run/\udcff'"))
    forwarding.spool.append([message(ROWS[0], 0)])
    forwarding.in_time(lambda: forwarding.spool.status().journals[0].last_error != "")
    [state] = forwarding.spool.status().journals  # as other processes see it
    assert state.last_error == r"PermissionError: Permission denied: '/run/\udcff'"
    forwarding.fail(None)
    forwarding.in_time(lambda: not forwarding.is_failing)


def test_a_message_can_be_set_aside_for_an_error_without_a_text(forwarding: Forwarding) -> None:
    forwarding.errors = {ROWS[0]: Unprintable()}
    forwarding.spool.append([message(ROWS[0], 0)])
    forwarding.in_time(lambda: forwarding.spool.status().last_refusal.startswith("Unprintable: "))
    assert forwarding.spool.status().refused == 1


class AtInstruction:
    """Calls a function before one of the instructions with which the thread notes its second failure; counts them."""

    def __init__(self, number: int, call: Callable[[], object]) -> None:
        self.failures = 0
        self.passed = 0
        self.has_ended = False
        self._number = number
        self._call = call

    def trace(self, frame: FrameType, event: str, _: Any) -> TraceFunction | None:  # noqa: ANN401 - as `sys.settrace` has it
        if frame.f_code.co_qualname != "Forwarder._note_failure":
            return None
        self.failures += event == "call"
        if self.failures != 2:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.passed += 1
            if self.passed == self._number:
                self._call()
        self.has_ended |= event == "return"
        return self.trace


def noting_a_failure(folder: Path, clock: TimeMachine, drain_at: int) -> int:
    """Forward a message at the third try, with a `drain` during the second; returns the number of instructions."""

    def drain() -> None:
        made.fail(None)
        made.spool.drain(0)

    at = AtInstruction(drain_at, drain)
    sys._getframe().f_trace_opcodes = True  # noqa: SLF001 - else Python 3.12 has no such events in another thread
    threading.settrace(at.trace)
    try:
        made = Forwarding(folder, clock)
    finally:
        threading.settrace(None)
    with closing(made.spool):
        made.fail(StoreUnavailable("away"))
        made.spool.append([message(ROWS[0], 0)])
        until_true(lambda: made.is_failing)
        made.spool.drain(0)
        until_true(lambda: at.has_ended)
        if drain_at:
            until_true(lambda: bool(made.arrived))
    return at.passed


def test_a_drain_that_begins_as_a_try_fails_has_the_next_one_at_once(tmp_path: Path, clock: TimeMachine) -> None:
    instructions = noting_a_failure(tmp_path / "none", clock, 0)
    assert instructions > 10
    for number in range(1, instructions + 1):
        noting_a_failure(tmp_path / str(number), clock, number)


def test_how_long_an_outage_lasted_does_not_depend_on_a_clock_that_is_set_back(
    forwarding: Forwarding, caplog: pytest.LogCaptureFixture
) -> None:
    began = forwarding.clock.monotonic()
    forwarding.fail(StoreUnavailable("away"))
    forwarding.spool.append([message(ROWS[0], 0)])
    forwarding.in_time(lambda: forwarding.is_failing)
    forwarding.clock.set(forwarding.clock.now() - 3_600_000_000)
    forwarding.fail(None)
    forwarding.in_time(lambda: not forwarding.is_failing)
    [line] = [one.getMessage() for one in caplog.records if "spool_forwards_again" in one.getMessage()]
    assert 0 <= int(line.partition("after_seconds=")[2]) <= (forwarding.clock.monotonic() - began) // SECOND
