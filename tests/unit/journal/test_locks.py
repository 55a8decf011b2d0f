"""The files that keep other writers and readers out, when they are removed while processes use or open them."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Final

import pytest

from astyqueue.errors import Closed
from astyqueue.journal import BYTES, Journal, ReadOnlyJournal
from astyqueue.journal_errors import JournalFailed, JournalInUse
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import OpenedFile, SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening

DEADLINE: Final = 20
#: One record in each page of a test.
LARGE: Final = b"x" * 90


def test_a_writer_whose_lock_file_is_gone_takes_nothing_more_from_its_next_page_on(tmp_path: Path) -> None:
    with Journal.open(tmp_path, codec=BYTES, page_size=256, durability="each") as journal:
        journal.append(LARGE)
        (tmp_path / "journal.lock").unlink()
        with Journal.open(tmp_path, codec=BYTES, durability="each") as second:
            with pytest.raises(JournalFailed, match=r"journal\.lock was removed"):
                journal.append(LARGE)
            assert second.append(LARGE).sequence == 2
            with pytest.raises(JournalInUse):
                Journal.open(tmp_path)
    with ReadOnlyJournal.open(tmp_path, codec=BYTES) as other:
        assert [finding.severity.word for finding in other.verify()] == ["ok"]


def test_a_lock_file_that_is_removed_while_a_process_opens_it_is_made_again(
    opened: Opening, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = OpenedFile.lock

    def removed_meanwhile(file: OpenedFile, *, exclusive: bool) -> bool:
        monkeypatch.undo()
        disk.remove(FOLDER / "journal.lock")
        return lock(file, exclusive=exclusive)

    monkeypatch.setattr(OpenedFile, "lock", removed_meanwhile)
    opened()
    with pytest.raises(JournalInUse):
        opened()


def test_a_cursor_that_is_removed_while_another_process_opens_it_is_made_again(
    opened: Opening, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened()
    last = journal.append(b"a")
    journal.cursor("mail").close()
    lock = OpenedFile.lock

    def removed_meanwhile(file: OpenedFile, *, exclusive: bool) -> bool:
        monkeypatch.undo()
        disk.remove(FOLDER / "journal.mail.cursor")
        return lock(file, exclusive=exclusive)

    monkeypatch.setattr(OpenedFile, "lock", removed_meanwhile)
    journal.cursor("mail").commit(last)
    assert journal.stat().cursors == {"mail": 1}


def test_a_cursor_that_the_disk_does_not_store_fails_and_can_be_committed_again(
    opened: Opening, disk: SimulatedDisk
) -> None:
    journal = opened()
    first, second = journal.append(b"a"), journal.append(b"b")
    with ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk) as other:
        cursor = other.cursor("mail")
        cursor.commit(first)
        disk.sync_error = OSError(errno.EIO, "Input/output error")
        for _ in range(2):
            with pytest.raises(JournalFailed, match=r"cursor 'mail'.*was not stored.*Input/output error"):
                cursor.commit(second)
        disk.sync_error = None
        assert cursor.position == first
        cursor.commit(second)
        assert cursor.position == second
    assert journal.append(b"c").sequence == 3


def test_a_closed_cursor_does_not_remove_the_file_of_the_one_that_has_its_name_now(
    opened: Opening, disk: SimulatedDisk
) -> None:
    journal = opened()
    *_, last = [journal.append(b"a"), journal.append(b"b")]
    closed = journal.cursor("mail")
    closed.close()
    with pytest.raises(Closed, match="cursor 'mail' was closed"):
        closed.remove()
    cursor = journal.cursor("mail")
    with pytest.raises(Closed, match="cursor 'mail' was closed"):
        closed.remove()
    cursor.commit(last)
    journal.close()
    assert opened().cursor("mail").position == last
    assert FOLDER / "journal.mail.cursor" in disk.names_seen


@pytest.mark.parametrize("failing", ["remove", "sync_directory"])
def test_a_cursor_that_the_disk_does_not_remove_fails_and_can_be_removed_again(
    failing: str, opened: Opening, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened()
    last = journal.append(b"a")
    cursor = journal.cursor("mail")

    def fail(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, failing, fail)
    with pytest.raises(JournalFailed, match=r"cursor 'mail'.*was not removed.*Input/output error.*and remove it again"):
        cursor.remove()
    monkeypatch.undo()
    journal.cursor("mail").commit(last)
    assert journal.stat().cursors == {"mail": 1}
    journal.cursor("mail").remove()
    assert FOLDER / "journal.mail.cursor" not in disk.names_durable


def test_a_closed_journal_hands_out_no_cursor(opened: Opening, disk: SimulatedDisk) -> None:
    journal, other = opened(), ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk)
    journal.append(b"a")
    for closed in (journal, other):
        closed.close()
        with pytest.raises(Closed, match="journal /journal was closed: open it again"):
            closed.cursor("mail")
        with pytest.raises(Closed, match="journal /journal was closed: open it again"):
            closed.read(cursor="mail")
    assert opened().cursor("mail").position is None


def test_a_cursor_that_a_thread_asks_for_during_a_close_is_refused_and_the_journal_is_free_afterwards(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened()
    for name in ("first", "second", "third"):
        journal.cursor(name)
    close, refused = OpenedFile.close, threading.Event()

    def ask() -> None:
        with pytest.raises(Closed):
            journal.cursor("late")
        refused.set()

    def asked_meanwhile(file: OpenedFile) -> None:
        monkeypatch.undo()
        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(DEADLINE)
        close(file)

    monkeypatch.setattr(OpenedFile, "close", asked_meanwhile)
    journal.close()
    assert refused.is_set()
    following = opened()
    assert [following.cursor(name).position for name in ("first", "second", "third", "late")] == [None] * 4


def test_a_journal_is_free_although_the_file_of_a_cursor_cannot_be_closed(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened()
    journal.cursor("mail")

    def fail(_: OpenedFile) -> None:
        monkeypatch.undo()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(OpenedFile, "close", fail)
    with pytest.raises(OSError, match="Input/output error"):
        journal.close()
    assert opened().append(b"a").sequence == 1


def test_a_process_that_looks_at_the_lock_for_a_moment_keeps_no_writer_out(
    opened: Opening, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened().close()
    looking = disk.open(FOLDER / "journal.lock")
    looking.lock(exclusive=False)
    lock = OpenedFile.lock

    def looked_meanwhile(file: OpenedFile, *, exclusive: bool) -> bool:
        monkeypatch.undo()
        was_locked = lock(file, exclusive=exclusive)
        looking.close()
        return was_locked

    monkeypatch.setattr(OpenedFile, "lock", looked_meanwhile)
    assert opened().append(b"a").sequence == 1


def test_a_reader_that_comes_while_a_page_is_reclaimed_begins_behind_it_and_keeps_the_others(
    opened: Opening, disk: SimulatedDisk, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(retain="1s")
    for number in range(8):
        journal.append(b"%d" % number + LARGE)
    clock.advance("1m")
    reader = ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk).read()
    read: list[bytes] = []

    def remove(path: Path) -> None:
        if not read:
            assert path == FOLDER / "journal-1.page"
            read.extend(record.value for record in reader.take(1))
        SimulatedDisk.remove(disk, path)

    monkeypatch.setattr(disk, "remove", remove)
    journal.reclaim()
    read += [record.value for record in reader]
    assert read == [b"%d" % number + LARGE for number in range(1, 8)]
