"""Files that the disk does not show or does not remove while a journal looks for pages that may go."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from astyqueue.findings import Severity
from astyqueue.journal import ReadOnlyJournal
from astyqueue.journal_errors import JournalFailed, JournalFull
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import OpenedFile, SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening

#: One record in each page of a test.
LARGE: Final = b"x" * 90
CURSOR: Final = FOLDER / "journal.foreign.cursor"

Denying = Callable[[str, Path], None]


@pytest.fixture
def denied(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> Denying:
    """Has a call of the disk refuse one path, as the system does for a file of another user."""

    def deny(verb: str, path: Path) -> None:
        real = getattr(disk, verb)

        def call(given: Path, **options: bool) -> object:
            if given == path:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(given))
            return real(given, **options)

        monkeypatch.setattr(disk, verb, call)

    return deny


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [message for record in caplog.records if (message := record.getMessage()).startswith(event)]


def test_a_cursor_that_may_not_be_read_keeps_its_pages_and_stops_no_append(
    opened: Opening,
    denied: Denying,
    clock: TimeMachine,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = opened(retain="1h")
    *_, last = [journal.append(LARGE) for _ in range(3)]
    journal.cursor("foreign").commit(last)
    denied("open", CURSOR)
    clock.advance("1d")
    for count in range(4, 9):
        assert journal.append(LARGE).sequence == count
    assert journal.reclaim() == 0
    assert len(list(journal.read())) == 8
    (line,) = logged(caplog, "journal_pages_not_reclaimed")
    assert "cursor 'foreign' cannot be read" in line
    assert "Permission denied" in line
    monkeypatch.undo()
    assert journal.reclaim() == 3


def test_a_cursor_that_may_not_be_read_keeps_no_journal_from_being_opened_or_looked_at(
    opened: Opening, disk: SimulatedDisk, denied: Denying, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(retain="1h")
    *_, last = [journal.append(LARGE) for _ in range(3)]
    for name in ("foreign", "mail"):
        journal.cursor(name).commit(last)
    journal.close()
    denied("open", CURSOR)
    journal = opened(retain="1h")
    clock.advance("1d")
    assert journal.reclaim() == 0
    for one in (journal, ReadOnlyJournal.open(FOLDER, disk=disk, clock=clock)):
        assert one.stat().cursors == {"foreign": 0, "mail": 3}
        [finding] = one.verify()
        assert (finding.subject, finding.severity) == ("cursor foreign", Severity.WARNING)
        assert "Permission denied" in finding.fact
        assert "its pages are kept" in finding.reason
    monkeypatch.undo()
    assert journal.reclaim() == 2


def test_a_full_journal_names_the_cursor_that_may_not_be_read(
    opened: Opening, denied: Denying, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(cap=2 * 256, when_full="raise")
    *_, last = [journal.append(LARGE), journal.append(LARGE)]
    journal.cursor("foreign").commit(last)
    journal.cursor("mail").commit(last)
    denied("open", CURSOR)
    with pytest.raises(JournalFull, match=r"its cap is 512 bytes, and cursor 'foreign' cannot be read.*denied"):
        journal.append(LARGE)
    monkeypatch.undo()
    assert journal.append(LARGE).sequence == 3


def test_pages_stay_where_the_folder_does_not_show_which_cursors_there_are(
    opened: Opening, denied: Denying, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(retain="1h")
    journal.append_many([LARGE] * 3)
    cursor = journal.cursor("mail")
    clock.advance("1d")
    denied("names", FOLDER)
    assert journal.append(LARGE).sequence == 4
    assert journal.reclaim() == 0
    monkeypatch.undo()
    assert journal.reclaim() == 0
    cursor.commit(list(journal.read())[-1])
    assert journal.reclaim() == 3


@pytest.mark.parametrize("when_full", ["raise", "drop_oldest"])
def test_a_page_that_cannot_be_removed_leaves_a_journal_full_and_not_failed(
    when_full: str,
    opened: Opening,
    denied: Denying,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = opened(cap=3 * 256, when_full=when_full)
    *_, last = [journal.append(LARGE) for _ in range(3)]
    if when_full == "raise":
        journal.cursor("mail").commit(last)
    denied("remove", FOLDER / "journal-1.page")
    for _ in range(2):
        with pytest.raises(JournalFull, match=r"its cap is 768 bytes, and page 1 cannot be removed.*denied"):
            journal.append(LARGE)
    assert len(logged(caplog, "journal_pages_not_reclaimed")) == 1
    assert journal.stat().dropped_records == 0
    monkeypatch.undo()
    assert journal.append(LARGE).sequence == 4
    assert journal.stat().dropped_records == (1 if when_full == "drop_oldest" else 0)


def test_a_page_that_may_not_be_read_stays_and_stops_no_append(
    opened: Opening, denied: Denying, disk: SimulatedDisk, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened()
    journal.append_many([LARGE] * 3)
    journal.close()
    disk.remove(FOLDER / "journal-1.index")
    journal = opened(retain="1h")
    clock.advance("1d")
    denied("open", FOLDER / "journal-1.page")
    assert [journal.append(LARGE).sequence, journal.append(LARGE).sequence] == [4, 5]
    assert journal.reclaim() == 0
    monkeypatch.undo()
    assert journal.reclaim() == 3


def test_a_new_page_that_cannot_be_synced_fails_the_journal_whose_last_page_was_to_go(
    opened: Opening, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    journal = opened(retain="1h")
    journal.append(LARGE)
    clock.advance("1d")
    disk.sync_error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(JournalFailed, match="Input/output error"):
        journal.reclaim(last_page=True)
    disk.sync_error = None


def test_a_damaged_cursor_is_logged_when_it_is_opened_and_once_as_what_keeps_pages(
    opened: Opening, disk: SimulatedDisk, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened(retain="1h")
    journal.append_many([LARGE] * 3)
    journal.cursor("mail").close()
    file: OpenedFile = disk.open(FOLDER / "journal.mail.cursor", write=True)
    file.write_at(0, bytes(file.size()))
    clock.advance("1d")
    for _ in range(3):
        assert journal.stat().cursors == {"mail": 0}
        assert journal.reclaim() == 0
    assert logged(caplog, "journal_cursor_unreadable") == []
    (line,) = logged(caplog, "journal_pages_not_reclaimed")
    assert "cursor 'mail' cannot be read" in line
    journal.cursor("mail")
    assert len(logged(caplog, "journal_cursor_unreadable")) == 1
