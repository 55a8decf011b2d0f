"""A disk that does not carry out a write or a sync: it is logged, and one caller at least gets the error."""

from __future__ import annotations

import errno
import logging
from typing import Final

import pytest

from astyqueue.journal_errors import JournalFailed
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.journal.conftest import Opening, until_true

DEADLINE: Final = 20


def failed_logs(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.ERROR]


@pytest.mark.parametrize("durability", ["none", "batch"])
def test_a_batch_that_fails_while_nothing_is_appended_is_logged_and_raised_by_close(
    durability: str, opened: Opening, disk: SimulatedDisk, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    journal = opened(durability=durability, batch_delay="10ms", page_size="1MiB")
    journal.append(b"a")
    clock.when_waiting(1, DEADLINE)
    setattr(disk, "before_write" if durability == "none" else "before_sync", fail)
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
    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    journal = opened(durability="batch", batch_delay="1h", page_size="1MiB")
    journal.append(b"a")
    disk.before_write = fail
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
