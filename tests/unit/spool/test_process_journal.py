"""The journal of one process: which messages its forwarder gets, in which batches, and what it keeps of them."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from astyqueue.journal import Record
from astyqueue.journal.format import Entry
from astyqueue.journal.page_walk import PageWalk
from astyqueue.journal_errors import JournalFailed
from astyqueue.spool import SpoolOptions
from astyqueue.spool.process_journal import ProcessJournal
from astyqueue.spool.record import PendingMessage, SpooledMessage
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import OpenedFile, SimulatedDisk

FOLDER: Final = Path("/spool/queue-emails/1")
MIB: Final = bytes(1 << 20)
ENOUGH_FOR_A_LOCK: Final = 100

Opening = Callable[..., ProcessJournal]


@pytest.fixture
def opened(disk: SimulatedDisk, clock: TimeMachine) -> Iterator[Opening]:
    """Opens the journal on the simulated disk."""
    with ExitStack() as stack:

        def open_journal(**options: Any) -> ProcessJournal:  # noqa: ANN401 - the options of a spool
            journal = ProcessJournal(FOLDER, SpoolOptions.of("/spool", disk=disk, **options), clock)
            stack.callback(journal.close)
            return journal

        yield open_journal


def values(messages: list[PendingMessage]) -> list[bytes]:
    return [one.value for one in messages]


def test_an_error_while_records_are_parsed_loses_no_message(opened: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = opened()
    journal.append([b"%d" % number for number in range(10)])
    journal.confirm(journal.pending(())[1:4])  # the row of the first cannot be written
    journal.append([b"%d" % number for number in range(10, 20)])
    parse = PendingMessage.of

    def failing(record: Record[bytes]) -> PendingMessage:
        if record.value == b"15":
            raise MemoryError
        return parse(record)

    monkeypatch.setattr(PendingMessage, "of", failing)
    with pytest.raises(MemoryError):
        journal.pending(())
    monkeypatch.undo()
    assert journal.has_more()
    again = journal.pending(())
    assert values(again) == [b"%d" % number for number in range(20)]
    journal.confirm(again)
    assert not journal.has_more()
    journal.close()
    assert not opened().has_more()


def test_an_error_in_a_look_whether_messages_wait_loses_none(opened: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = opened()
    journal.append([b"a", b"b"])
    read = PageWalk.next_entries

    def failing(walk: PageWalk, start: int) -> list[Entry]:
        read(walk, start)
        raise MemoryError

    monkeypatch.setattr(PageWalk, "next_entries", failing)
    with pytest.raises(MemoryError):
        journal.has_more()
    monkeypatch.undo()
    assert journal.has_more()
    assert values(journal.pending(())) == [b"a", b"b"]


def test_a_batch_ends_at_a_thousand_messages_or_at_eight_mebibytes(opened: Opening) -> None:
    journal = opened(durability="none")
    journal.append([b"small"] * 1_500)
    for _ in range(20):
        journal.append([MIB])
    sizes = []
    while batch := journal.pending(()):
        sizes.append(len(batch))
        journal.confirm(batch)
    assert sizes == [1_000, 508, 8, 4]


def test_what_was_forwarded_behind_a_message_that_waits_takes_no_memory(tmp_path: Path, clock: TimeMachine) -> None:
    journal = ProcessJournal(tmp_path / "1", SpoolOptions.of(tmp_path, durability="none"), clock)
    journal.append([b"its row cannot be written"])
    tracemalloc.start()
    try:
        for _ in range(24):
            journal.append([MIB])
            journal.confirm(journal.pending(())[1:])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert values(journal.pending(())) == [b"its row cannot be written"]
    assert kept < 8 << 20
    journal.close()


@pytest.mark.parametrize(("waiting", "behind"), [(15, 1), (16, 0)])
def test_messages_behind_a_held_row_are_read_until_sixteen_mebibytes_of_it_wait(
    waiting: int, behind: int, opened: Opening
) -> None:
    journal = opened(durability="none")
    held = SpooledMessage.parse(b'{"id":"held/0/00000000-0000-1000-8000-000000000000","envelope":%b}' % MIB)
    for _ in range(waiting):
        journal.append([held.pack()])
    journal.append([b"of another row"])
    assert values(journal.pending(("held",))) == [b"of another row"] * behind
    assert len(journal.pending(())) == 8


def test_a_journal_whose_cursor_cannot_be_made_can_be_opened_afterwards(opened: Opening, disk: SimulatedDisk) -> None:
    disk.room = ENOUGH_FOR_A_LOCK
    with pytest.raises(JournalFailed, match="No space left on device"):
        opened()
    disk.room = None
    assert not opened().has_more()


def test_a_journal_whose_cursor_cannot_be_opened_can_be_opened_afterwards(
    opened: Opening, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_file(path: Path, *, write: bool = False, create: bool = False) -> OpenedFile:
        if path.suffix == ".cursor":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return SimulatedDisk.open(disk, path, write=write, create=create)

    monkeypatch.setattr(disk, "open", open_file)
    with pytest.raises(OSError, match="Too many open files"):
        opened()
    monkeypatch.undo()
    assert not opened().has_more()
