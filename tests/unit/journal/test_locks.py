"""The files that keep other writers and readers out, when they are removed while processes use or open them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from astyqueue.errors import JournalFailed, JournalInUse
from astyqueue.journal import BYTES, Journal, ReadOnlyJournal
from tests.support.simulated_disk import OpenedFile, SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening

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
