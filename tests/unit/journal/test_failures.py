"""A disk that does not carry out a write or a sync: it is logged, and one caller at least gets the error."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from astyqueue.journal import BYTES, Journal
from astyqueue.journal_errors import JournalFailed
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening, until_true

DEADLINE: Final = 20


def disk_error() -> None:
    raise OSError(errno.EIO, "Input/output error")


def fail_batches(disk: SimulatedDisk, durability: str) -> None:
    """Have the disk fail at what the timer does with a batch: it writes, or it syncs."""
    setattr(disk, "before_write" if durability == "none" else "before_sync", disk_error)


def failed_logs(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.ERROR]


class Doing(logging.Handler):
    """Does this with each line of the log about a failure, in the thread that logs it."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__(logging.ERROR)
        self._action = action

    def emit(self, _record: logging.LogRecord) -> None:
        self._action()


@contextmanager
def at_each_failed_log(action: Callable[[], object]) -> Iterator[None]:
    logger, handler = logging.getLogger("astyqueue.journal"), Doing(action)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("durability", ["none", "batch"])
def test_a_batch_that_fails_while_nothing_is_appended_is_logged_and_raised_by_close(
    durability: str, opened: Opening, disk: SimulatedDisk, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened(durability=durability, batch_delay="10ms", page_size="1MiB")
    journal.append(b"a")
    clock.when_waiting(1, DEADLINE)
    fail_batches(disk, durability)
    clock.advance("10ms")
    until_true(lambda: failed_logs(caplog) != [])
    with pytest.raises(JournalFailed, match="Input/output error"):
        journal.close()
    journal.close()
    assert [line.partition(" ")[0] for line in failed_logs(caplog)] == ["journal_failed"]
    assert "Input/output error" in failed_logs(caplog)[0]
    disk.before_write = disk.before_sync = int
    assert [record.value for record in opened().read()] == ([] if durability == "none" else [b"a"])


def test_a_failure_that_a_reader_met_is_raised_by_close(
    opened: Opening, disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened(durability="batch", batch_delay="1h", page_size="1MiB")
    journal.append(b"a")
    disk.before_write = disk_error
    assert [record.value for record in journal.read()] == []
    assert len(failed_logs(caplog)) == 1
    with pytest.raises(JournalFailed, match="Input/output error"):
        journal.close()


@pytest.mark.parametrize("call", ["append", "sync"])
def test_a_failure_that_a_caller_got_is_not_raised_again_by_close(
    call: str, opened: Opening, disk: SimulatedDisk, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened(durability="batch", batch_delay="10ms", page_size="1MiB")
    journal.append(b"a")
    clock.when_waiting(1, DEADLINE)
    disk.sync_error = OSError(errno.EIO, "Input/output error")
    clock.advance("10ms")
    until_true(lambda: failed_logs(caplog) != [])
    with pytest.raises(JournalFailed, match="Input/output error"):
        getattr(journal, call)(*([b"b"] if call == "append" else []))
    journal.close()
    disk.sync_error = None


@pytest.mark.parametrize("call", ["append", "append_and_flush", "flush", "sync", "reclaim", "read", "close"])
def test_a_handler_of_the_log_that_appends_to_the_journal_gets_the_failure_and_hinders_no_thread(
    call: str, opened: Opening, disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    def append() -> None:
        with pytest.raises(JournalFailed, match="Input/output error"):
            journal.append(b"of the handler")
        ended.append(call)

    def append_in_time() -> None:
        thread = threading.Thread(target=append, daemon=True)
        thread.start()
        thread.join(DEADLINE)
        assert ended

    def act() -> None:
        if call == "append":
            journal.append(b"x" * 100)  # in a new page
        elif call == "append_and_flush":
            journal.append_and_flush([b"b"])
        elif call == "reclaim":
            journal.reclaim(last_page=True)
        elif call == "read":
            assert list(journal.read()) == []
            raise JournalFailed(str(FOLDER), "Input/output error")
        else:
            getattr(journal, call)()

    ended: list[str] = []
    journal = opened(durability="batch", batch_delay="1h", page_size=256)
    journal.append(b"x" * 80)
    disk.before_write = disk_error
    with at_each_failed_log(append_in_time), pytest.raises(JournalFailed, match="Input/output error"):
        act()
    assert ended == [call]
    assert len(failed_logs(caplog)) == 1
    journal.close()


@pytest.mark.parametrize("durability", ["none", "batch"])
def test_a_failure_that_a_caller_gets_before_the_batch_that_met_it_has_ended_is_not_raised_again_by_close(
    durability: str, opened: Opening, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    def wait() -> None:
        is_logged.set()
        may_end.wait(2 * DEADLINE)

    is_logged, may_end = threading.Event(), threading.Event()
    journal = opened(durability=durability, batch_delay="10ms", page_size="1MiB")
    journal.append(b"a")
    clock.when_waiting(1, DEADLINE)
    fail_batches(disk, durability)
    with at_each_failed_log(wait):
        clock.advance("10ms")
        assert is_logged.wait(DEADLINE)
        getting = threading.Thread(target=append_refused, args=(journal,), daemon=True)
        getting.start()
        getting.join(DEADLINE)
        is_refused = not getting.is_alive()
        may_end.set()
        assert is_refused
        journal.close()


def append_refused(journal: Journal[bytes]) -> None:
    with pytest.raises(JournalFailed, match="Input/output error"):
        journal.append(b"b")


@pytest.mark.parametrize("durability", ["none", "batch"])
def test_a_failure_that_reached_no_caller_is_raised_by_a_close_while_it_is_logged(
    durability: str, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    def close() -> None:
        with pytest.raises(JournalFailed, match="Input/output error"):
            journal.close()
        is_raised.set()

    is_raised = threading.Event()
    journal = Journal.open(
        FOLDER, codec=BYTES, disk=disk, clock=clock, durability=durability, batch_delay="10ms", page_size="1MiB"
    )
    journal.append(b"a")
    clock.when_waiting(1, DEADLINE)
    fail_batches(disk, durability)
    with at_each_failed_log(close):
        clock.advance("10ms")
        assert is_raised.wait(DEADLINE)
