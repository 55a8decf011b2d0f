"""Cursors, reclaim, caps and full disks: what goes, what stays, and who waits."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from astyqueue.errors import BadInput, BadSetting, Closed
from astyqueue.journal import BYTES, Journal, ReadOnlyJournal
from astyqueue.journal_errors import JournalFull, JournalInUse
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening, until_true

DEADLINE: Final = 20
#: One record in each page of a test.
LARGE: Final = b"x" * 90


def values(journal: Journal[bytes] | ReadOnlyJournal[bytes], **span: object) -> list[bytes]:
    return [record.value for record in journal.read(**span)]  # type: ignore[arg-type]  # options of read


def test_a_cursor_survives_and_what_was_not_committed_comes_again(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened()
    journal.append_many([b"a", b"b", b"c"])
    cursor = journal.cursor("mail")
    assert cursor.position is None
    reader = journal.read(cursor=cursor)
    assert next(reader).value == b"a"
    cursor.commit(next(reader))
    assert next(reader).value == b"c"
    seen = disk.rebooted(keep_unsynced=False)
    assert values(opened(disk=seen), cursor="mail") == [b"c"]
    assert journal.stat().cursors == {"mail": 2}


def test_a_cursor_goes_forward_only_unless_it_is_rewound(opened: Opening) -> None:
    journal = opened()
    journal.append_many([b"a", b"b", b"c"])
    records = list(journal.read())
    cursor = journal.cursor("mail")
    for committed, sequence in ((records[1], 2), (records[0], 2), (records[2], 3)):
        cursor.commit(committed)
        assert cursor.position is not None
        assert cursor.position.sequence == sequence
    cursor.rewind(records[0])
    assert values(journal, cursor=cursor) == [b"b", b"c"]
    cursor.rewind()
    assert values(journal, cursor="mail") == [b"a", b"b", b"c"]


def test_a_cursor_torn_at_any_byte_of_a_commit_is_at_the_one_or_the_other_place(
    opened: Opening, disk: SimulatedDisk
) -> None:
    journal = opened()
    journal.append_many([b"a", b"b", b"c"])
    records = list(journal.read())
    cursor = journal.cursor("mail")
    cursor.commit(records[0])
    before = len(disk.changes)
    cursor.commit(records[1])
    [write] = [change for change in disk.changes[before:] if change.kind == "write"]
    for size in range(len(write.data) + 1):
        seen = disk.replayed(disk.changes[:before]).rebooted(keep_unsynced=False)
        content = seen.names_seen[write.path].seen
        content.extend(bytes(max(0, write.offset + size - len(content))))
        content[write.offset : write.offset + size] = write.data[:size]
        found = values(opened(disk=seen), cursor="mail")
        assert found in ([b"b", b"c"], [b"c"])
        assert (found == [b"c"]) == (size == len(write.data))


def test_a_cursor_never_points_behind_what_survives(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened(durability="none")
    journal.append_many([LARGE, LARGE, b"c"])
    *_, last = journal.read()
    with ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk) as other:
        other.cursor("elsewhere").commit(last)
    seen = disk.rebooted(keep_unsynced=False)
    assert values(opened(disk=seen)) == [LARGE, LARGE, b"c"]


def test_a_cursor_waits_for_records_that_an_earlier_writer_left_to_the_system(
    opened: Opening, disk: SimulatedDisk
) -> None:
    journal = opened(durability="none")
    journal.append_many([LARGE, LARGE, b"c"])
    journal.close()
    journal = opened(durability="each")
    *_, last = journal.read()
    journal.cursor("mail").commit(last)
    assert values(opened(disk=disk.rebooted(keep_unsynced=False))) == [LARGE, LARGE, b"c"]


def test_a_sequence_that_a_cursor_has_passed_is_not_given_again(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened()
    journal.append_many([b"a", b"b", b"c"])
    *_, last = journal.read()
    journal.cursor("mail").commit(last)
    seen = disk.rebooted(keep_unsynced=True)
    seen.flip_bit(FOLDER / "journal-1.page", len(seen.names_seen[FOLDER / "journal-1.page"].seen) - 1)
    journal = opened(disk=seen)
    assert journal.append(b"new").sequence == 4
    assert values(journal, cursor="mail") == [b"new"]


def test_a_damaged_cursor_starts_again_from_the_first_record(
    opened: Opening, disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened()
    *_, last = [journal.append(b"a"), journal.append(b"b")]
    journal.cursor("mail").commit(last)
    seen = disk.rebooted(keep_unsynced=True)
    seen.names_seen[FOLDER / "journal.mail.cursor"].seen[:] = b"?" * 60
    assert values(opened(disk=seen), cursor="mail") == [b"a", b"b"]
    assert "journal_cursor_unreadable" in caplog.text


def test_a_cursor_belongs_to_one_reader_at_a_time(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal, ReadOnlyJournal.open(tmp_path) as other:
        cursor = journal.cursor("mail")
        assert journal.cursor("mail") is cursor
        with pytest.raises(JournalInUse, match="cursor 'mail'"):
            other.cursor("mail")
        cursor.close()
        other.cursor("mail").commit(journal.append(1))
        with pytest.raises(Closed):
            cursor.commit(journal.append(2))
        with pytest.raises(BadSetting, match="is not a name"):
            journal.cursor("../mail")


def test_pages_go_when_all_their_records_are_older_than_retain(opened: Opening, clock: TimeMachine) -> None:
    journal = opened(retain="1h")
    for _ in range(5):
        journal.append(LARGE)
        clock.advance("25m")
    assert journal.stat().first_sequence == 3  # two went when the last page was begun, after 100 minutes
    assert journal.reclaim() == 1
    clock.advance("10m")
    assert journal.reclaim() == 0
    clock.advance(0.000001)
    assert journal.reclaim() == 1
    assert values(journal) == [LARGE]


def test_without_a_cursor_and_retain_nothing_is_reclaimed(opened: Opening, clock: TimeMachine) -> None:
    journal = opened()
    journal.append_many([LARGE] * 5)
    clock.advance("1000d")
    assert journal.reclaim() == 0


def test_a_page_waits_for_the_slowest_cursor(opened: Opening, clock: TimeMachine) -> None:
    journal = opened(retain="1h")
    journal.append_many([LARGE] * 5)
    records = list(journal.read())
    fast, slow = journal.cursor("fast"), journal.cursor("slow")
    clock.advance("1d")
    fast.commit(records[4])
    assert journal.reclaim() == 0
    slow.commit(records[1])
    assert journal.reclaim() == 2
    slow.remove()
    assert journal.reclaim() == 2
    assert values(journal) == [LARGE]
    journal.cursor("late")
    journal.append_many([LARGE] * 2)
    clock.advance("1d")
    assert journal.reclaim() == 0
    assert journal.reclaim(ignore_cursors=True) == 2


def test_a_record_in_several_pages_is_not_reclaimed_before_a_cursor_has_passed_it(opened: Opening) -> None:
    journal = opened()
    journal.append_many([b"a", b"x" * 900, b"b"])
    records = list(journal.read())
    cursor = journal.cursor("mail")
    cursor.commit(records[0])
    assert journal.reclaim() == 1
    assert values(journal) == [b"x" * 900, b"b"]
    cursor.commit(records[1])
    assert journal.reclaim() > 3
    assert values(journal) == [b"b"]


def test_a_reader_inside_a_page_keeps_it_and_those_behind_it(opened: Opening, clock: TimeMachine) -> None:
    journal = opened(retain="1h")
    journal.append_many([LARGE] * 5)
    reader, second = journal.read(), journal.read(after=2)
    assert next(reader).sequence == 1
    assert next(second).sequence == 3
    clock.advance("1d")
    assert journal.reclaim() == 0
    reader.close()
    assert journal.reclaim() == 2
    assert [record.sequence for record in second] == [4, 5]
    assert second.skipped == []
    assert journal.reclaim() == 2


def test_a_journal_that_was_reclaimed_goes_on_after_reopening(opened: Opening, clock: TimeMachine) -> None:
    journal = opened(retain="1h")
    journal.append_many([LARGE] * 5)
    clock.advance("1d")
    journal.reclaim()
    journal.close()
    journal = opened()
    assert journal.append(b"a").sequence == 6
    assert [record.sequence for record in journal.read()] == [5, 6]


def test_at_the_cap_an_append_raises_and_accepts_nothing_of_what_it_refuses(opened: Opening) -> None:
    journal = opened(cap=3 * 256, when_full="raise")
    with pytest.raises(JournalFull, match=r"its cap is 768 bytes.*reclaim") as full:
        journal.append_many([LARGE] * 9)
    assert full.value.appended == 3
    with pytest.raises(JournalFull) as full:
        journal.append(LARGE)
    assert full.value.appended == 0
    assert values(journal) == [LARGE] * 3
    journal.cursor("mail").commit(list(journal.read())[1])
    assert journal.append(b"y" * 90).sequence == 4
    assert values(journal) == [LARGE, b"y" * 90]


def test_the_error_of_a_full_journal_counts_all_values_of_the_call(opened: Opening) -> None:
    journal = opened(cap=3 * 256, when_full="raise", batch_records=2)
    with pytest.raises(JournalFull, match="3 values of this call were appended") as full:
        journal.append_many([LARGE] * 9)
    assert full.value.appended == 3
    assert values(journal) == [LARGE] * 3


def test_at_the_cap_the_oldest_page_is_dropped_and_counted(opened: Opening) -> None:
    journal = opened(cap=3 * 256, when_full="drop_oldest")
    journal.cursor("slow")
    reader = journal.read()
    for number in range(9):
        journal.append(b"%d" % number * 90)
        if number == 0:
            next(reader)
    assert values(journal) == [b"%d" % number * 90 for number in (6, 7, 8)]
    assert journal.stat().dropped_records == 6
    assert journal.stat().pages == 3
    assert [record.sequence for record in reader] == [7, 8, 9]
    assert "removed before they were read" in reader.skipped[0].reason


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
def test_at_the_cap_an_append_waits_until_a_cursor_lets_a_page_go(
    durability: str, opened: Opening, clock: TimeMachine
) -> None:
    journal = opened(cap=2 * 256, when_full="block", durability=durability)
    cursor = journal.cursor("mail")
    appending = threading.Thread(target=lambda: [journal.append(b"%02d" % n * 45) for n in range(12)], daemon=True)
    appending.start()
    reader = journal.read(cursor=cursor, follow=True)
    for number in range(12):
        record = next(reader)
        assert record.value == b"%02d" % number * 45
        cursor.commit(record)
    appending.join(DEADLINE)
    assert not appending.is_alive()
    assert journal.stat().pages <= 2
    del clock


def test_an_append_that_waits_for_room_ends_when_the_journal_is_closed(opened: Opening, clock: TimeMachine) -> None:
    journal = opened(cap=2 * 256, when_full="block")
    ended: list[BaseException] = []

    def append() -> None:
        try:
            for _ in range(3):
                journal.append(LARGE)
        except Closed as closed:
            ended.append(closed)

    appending = threading.Thread(target=append, daemon=True)
    appending.start()
    clock.when_waiting(1, DEADLINE)
    journal.close()
    appending.join(DEADLINE)
    assert len(ended) == 1


def test_a_record_that_never_fits_under_the_cap_is_refused_at_once(opened: Opening) -> None:
    journal = opened(cap=3 * 256, when_full="block")
    with pytest.raises(BadInput, match="raise the cap"):
        journal.append(b"x" * 1000)
    journal.append(b"x" * 150)
    assert len(values(journal)) == 1


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
def test_a_disk_that_is_full_at_any_byte_costs_nothing_that_was_accepted(
    durability: str, opened: Opening, clock: TimeMachine
) -> None:
    sizes = (3, 90, 0, 700, 12, 40, 1)
    payloads = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    for room in range(0, 2400, 7):
        disk = SimulatedDisk()
        journal = opened(disk=disk, durability=durability, when_full="raise", batch_records=2)
        disk.room = room
        accepted = []
        for payload in payloads:
            try:
                journal.append(payload)
                accepted.append(payload)
            except JournalFull as full:
                assert full.appended == 0  # noqa: PT017 - whether it is raised depends on the room
        disk.room = None
        journal.append(b"after")
        assert values(journal) == [*accepted, b"after"]
        journal.close()
        with Journal.open(FOLDER, codec=BYTES, disk=disk, clock=clock) as reopened:
            assert values(reopened) == [*accepted, b"after"]


def test_a_full_disk_makes_an_append_wait_until_there_is_space_and_both_are_logged(
    opened: Opening, disk: SimulatedDisk, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened(when_full="block")
    journal.append(LARGE)
    disk.room = 0
    appending = threading.Thread(target=lambda: journal.append(b"b"), daemon=True)
    appending.start()
    clock.when_waiting(1, DEADLINE)
    assert caplog.messages == []
    for _ in range(3):
        clock.advance("1s")
        clock.when_waiting(1, DEADLINE)
    [full] = caplog.messages
    assert "journal_full" in full
    assert "No space left" in full
    assert 'effect="appends wait"' in full
    disk.room = 1000
    clock.advance("1s")
    appending.join(DEADLINE)
    assert values(journal) == [LARGE, b"b"]
    assert "journal_has_room" in caplog.messages[1]


def test_a_batch_for_which_the_disk_had_no_space_is_synced_once_it_has(
    opened: Opening, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    journal = opened(durability="batch", batch_records=2, batch_delay="10ms", page_size="1MiB")
    disk.room = 0
    journal.append_many([b"a", b"b"])
    clock.when_waiting(1, DEADLINE)
    disk.room = None
    clock.advance("10ms")
    until_true(lambda: journal.stat().synced_sequence == 2)


def test_an_append_at_the_cap_goes_on_where_a_page_was_removed_by_hand(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened(cap=3 * 256, when_full="raise")
    cursor = journal.cursor("mail")
    journal.append_many([LARGE] * 3)
    cursor.commit(next(journal.read()))
    disk.remove(FOLDER / "journal-1.page")
    appending = threading.Thread(target=journal.append, args=(LARGE,), daemon=True)
    appending.start()
    appending.join(DEADLINE)
    assert not appending.is_alive()
    assert values(journal, after=1) == [LARGE] * 3
    assert journal.stat().pages == 3


def test_a_full_disk_has_the_oldest_page_dropped(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened(when_full="drop_oldest")
    journal.append_many([LARGE] * 4)
    disk.room = 100
    for _ in range(6):
        journal.append(b"y" * 90)
    assert values(journal)[-2:] == [b"y" * 90] * 2
    assert journal.stat().dropped_records >= 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    place = tmp_path / "mounted"
    place.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("this system cannot mount")
    command = [mount, "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mount: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run([umount, "--lazy", str(place)], check=True)


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
def test_a_real_disk_that_is_full_loses_nothing_and_goes_on_when_pages_are_reclaimed(
    durability: str, small_disk: Path
) -> None:
    options = {"codec": BYTES, "page_size": "64KiB", "durability": durability, "when_full": "raise"}
    accepted = 0
    with Journal.open(small_disk / "journal", **options) as journal:  # type: ignore[call-overload]  # options
        cursor = journal.cursor("mail")
        with contextlib.suppress(JournalFull):
            for _ in range(5000):
                journal.append(b"x" * 1000)
                accepted += 1
        with pytest.raises(JournalFull, match="No space left") as full:
            journal.append_many([b"x" * 1000] * 300)
        accepted += full.value.appended
        assert 300 < accepted < 600
        records = list(journal.read())
        cursor.commit(records[-1])
        assert journal.reclaim() > 3
        for _ in range(100):
            journal.append(b"x" * 1000)
            accepted += 1
    with Journal.open(small_disk / "journal", codec=BYTES) as journal:
        assert journal.stat().last_sequence >= accepted
        assert len(records) + len(list(journal.read(cursor="mail"))) == accepted
        assert [finding.severity.word for finding in journal.verify()] == ["ok"]
