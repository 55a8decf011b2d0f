"""Crashes of a journal at every byte of every write: nothing acknowledged is lost, nothing torn is served."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from astyqueue.journal import BYTES, Journal, ReadOnlyJournal
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import Crash, SimulatedDisk, crashes

FOLDER: Final = Path("/journal")
PAGE: Final = 256
LEVELS: Final = ("none", "batch", "each")
#: Empty, short and long ones, and one that needs three pages.
SIZES: Final = (0, 1, 30, 7, 90, 3, 210, 0, 5, 60, 12)
LARGE: Final = 6


def value(number: int) -> bytes:
    return bytes([number % 251]) * SIZES[number % len(SIZES)]


def opened(disk: SimulatedDisk, clock: TimeMachine, durability: str = "each") -> Journal[bytes]:
    return Journal.open(
        FOLDER, codec=BYTES, disk=disk, clock=clock, page_size=PAGE, durability=durability, batch_records=3
    )


def written(disk: SimulatedDisk, clock: TimeMachine, durability: str, last: int) -> int:
    """Append up to this number, and note on the disk what has been acknowledged; the journal is not closed.

    Returns the change with which writing the last one begins.
    """
    journal = opened(disk, clock, durability)
    first = 0
    for number in range(last + 1):
        first = len(disk.changes)
        journal.append(value(number))
        clock.advance("1ms")
        if durability == "none" and number % 4 == 3:
            journal.sync()
        disk.acknowledged(journal.stat().synced_sequence)
    journal.sync()
    disk.acknowledged(journal.stat().synced_sequence)
    return first


def check(crash: Crash, clock: TimeMachine) -> None:
    with opened(crash.disk, clock) as journal:
        records = list(journal.read())
        found = {record.sequence: record.value for record in records}
        assert [record.sequence for record in records] == sorted(found), crash.what
        assert found == {sequence: value(sequence - 1) for sequence in found}, crash.what
        assert set(range(1, crash.acknowledged + 1)) <= set(found), crash.what
        assert journal.append(b"after").sequence > max(found, default=0), crash.what
    other = ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=crash.disk, clock=clock)
    assert [record.value for record in other.read()] == [*found.values(), b"after"], crash.what


@pytest.mark.parametrize(("durability", "step"), [("each", 1), ("batch", 7), ("none", 7)])
def test_a_crash_at_any_byte_of_a_record_in_several_pages_loses_nothing_acknowledged_and_serves_nothing_torn(
    durability: str, step: int, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    first = written(disk, clock, durability, LARGE)
    journal = opened(disk.rebooted(keep_unsynced=True), clock)
    assert [record.value for record in journal.read()] == [value(number) for number in range(LARGE + 1)]
    found = list(crashes(disk, first=first, step=step))
    assert len(found) > SIZES[LARGE] // step
    for crash in found:
        check(crash, clock)


@pytest.mark.full
@pytest.mark.parametrize("durability", LEVELS)
def test_a_crash_at_any_byte_of_any_write_loses_nothing_acknowledged_and_serves_nothing_torn(
    durability: str, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    written(disk, clock, durability, len(SIZES) + 1)
    for crash in crashes(disk):
        check(crash, clock)


def managed(disk: SimulatedDisk, clock: TimeMachine) -> int:
    """Append under a cap with a cursor that is committed, until pages were reclaimed and dropped.

    Returns the change with which reclaiming begins; the last sequence that the cursor passed is acknowledged.
    """
    journal = Journal.open(
        FOLDER,
        codec=BYTES,
        disk=disk,
        clock=clock,
        page_size=PAGE,
        durability="each",
        cap=4 * PAGE,
        when_full="drop_oldest",
    )
    cursor = journal.cursor("mail")
    for number in range(5):
        cursor.commit(journal.append(value(number)))
        disk.acknowledged(number + 1)
    first = len(disk.changes)
    assert journal.reclaim() > 0
    for number in range(5, 10):
        journal.append(value(number))
    cursor.commit(journal.append(value(10)))
    disk.acknowledged(11)
    assert journal.stat().dropped_records > 0
    return first


@pytest.mark.parametrize("step", [31, pytest.param(1, marks=pytest.mark.full)])
def test_a_crash_among_commits_reclaims_and_drops_leaves_a_cursor_where_it_was_or_where_it_was_to_be(
    step: int, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    first = managed(disk, clock)
    for crash in crashes(disk, first=first, step=step):
        with opened(crash.disk, clock) as journal:
            committed = journal.cursor("mail").position
            assert committed is not None, crash.what
            # A commit may be on the disk before it returned.
            assert committed.sequence in {max(5, crash.acknowledged), 11}, crash.what
            last = journal.append(b"after")
            assert last.sequence > committed.sequence, crash.what
            found = [(record.sequence, record.value) for record in journal.read()]
            expected = [(sequence, value(sequence - 1)) for sequence, _ in found[:-1]]
            assert found == [*expected, (last.sequence, b"after")], crash.what
            assert [record.value for record in journal.read(cursor="mail")][-1] == b"after", crash.what


@pytest.mark.parametrize("step", [97, pytest.param(7, marks=pytest.mark.full)])
def test_a_crash_while_it_is_opened_after_a_crash_loses_nothing_acknowledged(
    step: int, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    first = written(disk, clock, "each", LARGE)
    for crash in list(crashes(disk, first=first, step=step)):
        seen = crash.disk.copied()
        opened(seen, clock).abandon()
        for again in crashes(seen, step=step):
            check(Crash(f"{crash.what}, then {again.what}", again.disk, crash.acknowledged), clock)


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("synced", range(4))
def test_a_folder_that_a_killed_process_made_is_on_the_disk_once_the_next_one_has_opened_it(
    synced: int, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(range(synced))

    def sync_directory(directory: Path) -> None:
        if next(left, None) is None:
            raise Killed
        SimulatedDisk.sync_directory(disk, directory)

    folder = Path("/spool/queue-emails/1")
    monkeypatch.setattr(disk, "sync_directory", sync_directory)
    with pytest.raises(Killed), Journal.open(folder, codec=BYTES, durability="each", disk=disk) as journal:
        journal.append(b"its page is not on the disk")
    after = disk.rebooted(keep_unsynced=True)
    after.folders_durable = set(disk.folders_durable)
    with Journal.open(folder, codec=BYTES, durability="each", disk=after) as journal:
        journal.append(b"acknowledged")
        machine_died = after.rebooted(keep_unsynced=False)
    with Journal.open(folder, codec=BYTES, disk=machine_died) as journal:
        assert [record.value for record in journal.read()][-1:] == [b"acknowledged"]
