"""What a journal lost: flipped bits, lost files, lost hints, dropped pages. A loss costs what was hit, and is told."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import pytest

from astyqueue.findings import Severity
from astyqueue.journal import BYTES, Journal, ReadOnlyJournal
from astyqueue.journal.format import OVERHEAD, RECORDS_AT, Kind, PageHeader, packed
from astyqueue.journal_errors import JournalFull
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.support.simulated_disk import Node, SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening

PAGE_1: Final = FOLDER / "journal-1.page"
#: Records of 50 bytes, three of which fit into the default page of a test.
SIZE: Final = 50 - OVERHEAD


def value(number: int) -> bytes:
    return b"%02d" % number * (SIZE // 2)


@pytest.fixture
def filled(opened: Opening, disk: SimulatedDisk) -> SimulatedDisk:
    """Eight records in four pages, left by a process that was killed."""
    journal = opened()
    journal.append_many(map(value, range(8)))
    assert journal.stat().pages == 4
    return disk.rebooted(keep_unsynced=True)


def damage(journal: Journal[bytes]) -> list[str]:
    return [finding.fact for finding in journal.verify() if finding.severity is not Severity.OK]


def test_a_flipped_bit_costs_exactly_its_record_and_is_reported(filled: SimulatedDisk, opened: Opening) -> None:
    pages = [path for path in filled.names_seen if path.suffix == ".page"]
    for path in pages:
        for offset in range(RECORDS_AT, len(filled.names_seen[path].seen)):
            disk = filled.rebooted(keep_unsynced=True)
            disk.flip_bit(path, offset, offset % 8)
            other = ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk)
            reader = other.read()
            found = [record.value for record in reader]
            lost = 2 * (int(path.stem.rpartition("-")[2]) - 1) + (offset - RECORDS_AT) // 50
            assert found == [value(number) for number in range(8) if number != lost]
            assert len(reader.skipped) == 1
            assert reader.skipped[0].size == 50
    del opened


def test_a_flipped_bit_in_a_header_costs_nothing(filled: SimulatedDisk, opened: Opening) -> None:
    for offset in range(RECORDS_AT):
        disk = filled.rebooted(keep_unsynced=True)
        disk.flip_bit(PAGE_1, offset)
        journal = opened(disk=disk)
        assert len(list(journal.read())) == 8
        journal.close()


def test_a_writer_goes_on_behind_damage_in_the_last_page(filled: SimulatedDisk, opened: Opening) -> None:
    for path, offset, lost in ((FOLDER / "journal-4.page", RECORDS_AT + 9, 6), (FOLDER / "journal-4.page", 220, 7)):
        disk = filled.rebooted(keep_unsynced=True)
        disk.flip_bit(path, offset)
        journal = opened(disk=disk)
        assert journal.append(b"after").sequence == 9  # also where record 8 is the one that is lost
        assert [record.value for record in journal.read(after=8)] == [b"after"]
        expected = [value(number) for number in range(8) if number != lost]
        assert [record.value for record in journal.read()] == [*expected, b"after"]
        journal.close()


def test_damage_is_found_by_verify_with_its_page_and_the_records_around_it(
    filled: SimulatedDisk, opened: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    filled.flip_bit(PAGE_1, RECORDS_AT + 10)
    journal = opened(disk=filled)
    [fact] = damage(journal)
    assert "page 1, 50 bytes at offset 128, before all readable records and before record 2" in fact
    assert list(journal.read(after=5))
    assert caplog.messages == []
    assert len(list(journal.read())) == 7
    assert "journal_records_unreadable" in caplog.messages[0]
    assert damage(opened(disk=filled.rebooted(keep_unsynced=True))) == [fact]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_lost_page_or_header_costs_its_records_and_is_reported(
    number: int, filled: SimulatedDisk, opened: Opening
) -> None:
    expected = [value(n) for n in range(8) if n // 2 != number - 1]
    path = FOLDER / f"journal-{number}.page"
    headless = filled.rebooted(keep_unsynced=True)
    for offset in (0, 64):
        headless.flip_bit(path, offset)
    filled.remove(path)
    for disk in (filled, headless):
        journal = opened(disk=disk)
        reader = journal.read()
        assert [record.value for record in reader] == expected
        assert [record.value for record in journal.read(after=2 * number)] == expected[2 * number - 2 :]
        if number > 1:
            assert len(reader.skipped) == 1
        if number > 1 or disk is headless:
            assert len(damage(journal)) == 1
        assert journal.append(b"after").sequence == 9
        journal.close()


def test_a_last_page_whose_header_is_lost_stays_and_the_journal_goes_on_behind_it(
    filled: SimulatedDisk, opened: Opening
) -> None:
    for offset in (0, 64):
        filled.flip_bit(FOLDER / "journal-4.page", offset)
    journal = opened(disk=filled)
    assert journal.append(b"after").sequence > 8
    assert [record.value for record in journal.read(after=8)] == [b"after"]
    reader = journal.read()
    assert [record.value for record in reader] == [*map(value, range(6)), b"after"]
    assert "its header cannot be read" in reader.skipped[0].reason
    assert FOLDER / "journal-4.page" in filled.names_seen


def test_a_reader_reports_the_records_that_were_removed_before_it_began(
    opened: Opening, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    journal = opened(cap=4 * 256, when_full="drop_oldest")
    cursor = journal.cursor("mail")
    cursor.commit(journal.append(value(0)))
    cursor.close()
    journal.append_many(map(value, range(1, 20)))
    first = journal.stat().first_sequence
    assert first > 3
    for reader in (
        journal.read(cursor="mail"),
        journal.read(after=1),
        ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk, clock=clock).read(after=1),
    ):
        assert next(reader).sequence == first
        [loss] = reader.skipped
        assert (loss.after, loss.before) == (1, first)
        assert "removed or lost" in loss.reason
    for reader in (journal.read(), journal.read(after=first - 1), journal.read(after=first), journal.read(after=99)):
        assert list(reader) or reader.position is None
        assert reader.skipped == []
    [fact] = damage(journal)
    assert f"cursor 'mail' is at record 1, the first record is {first}" in fact


@pytest.mark.parametrize("records", [0, 1])
def test_a_page_that_lost_records_at_its_end_is_reported(records: int, filled: SimulatedDisk, opened: Opening) -> None:
    del filled.names_seen[FOLDER / "journal-2.page"].seen[RECORDS_AT + 50 * records :]
    journal = opened(disk=filled)
    for reader in (
        journal.read(),
        ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=filled).read(after=1),
    ):
        assert [record.sequence for record in reader][-4:] == [5, 6, 7, 8]
        [loss] = reader.skipped
        assert (loss.page, loss.after, loss.before) == (2, 2 + records, 5)
    assert len(damage(journal)) == 1


@pytest.mark.parametrize("lost", [[4], [3, 4], [1, 2, 3, 4]])
def test_no_sequence_is_given_again_where_the_last_pages_are_gone(
    lost: list[int], opened: Opening, disk: SimulatedDisk
) -> None:
    journal = opened()
    journal.append_many(map(value, range(8)))
    journal.close()
    for number in lost:
        disk.remove(FOLDER / f"journal-{number}.page")
    journal = opened()
    assert journal.append(b"after").sequence == 9
    reader = journal.read(after=2 * (lost[0] - 1))
    assert [record.value for record in reader] == [b"after"]
    assert bool(reader.skipped) == (lost[0] > 1)
    assert FOLDER / "journal-5.page" in disk.names_seen


def test_parts_of_a_record_are_not_joined_over_a_lost_one(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened()
    journal.append_many([b"a", b"x" * 900, b"b"])
    pages = journal.stat().pages
    assert pages >= 6
    for lost in range(2, pages):
        seen = disk.rebooted(keep_unsynced=True)
        seen.remove(FOLDER / f"journal-{lost}.page")
        reader = ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=seen).read()
        assert [record.value for record in reader] == [b"a", b"b"]
        assert reader.skipped


@pytest.mark.parametrize("hints", [{".index"}, {".meta"}, {".index", ".meta"}])
def test_indexes_and_hints_may_be_deleted_damaged_or_cut_at_any_byte(hints: set[str], opened: Opening) -> None:
    disk = SimulatedDisk()
    journal = opened(disk=disk, page_size="256KiB", durability="batch")
    journal.append_many(b"%08d" % number * 100 for number in range(700))
    journal.close()
    files = [path for path in disk.names_seen if path.suffix in hints]
    assert files
    for size in (None, 0, 1, 20, 60, -1):
        seen = disk.rebooted(keep_unsynced=True)
        for path in files:
            content = seen.names_seen[path].seen
            if size is None:
                seen.remove(path)
            elif size < 0:
                content[len(content) // 2] ^= 1
            else:
                del content[size:]
        with Journal.open(FOLDER, codec=BYTES, disk=seen) as reopened:
            assert reopened.append(b"after").sequence == 701
            for after in (0, 350, 698):
                first = next(reopened.read(after=after))
                assert first.value == b"%08d" % after * 100
            assert not [one for one in reopened.verify() if one.severity is Severity.PROBLEM]


def test_an_index_of_another_page_hides_nothing(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened()
    journal.append_many(map(value, range(8)))
    journal.close()
    indexes = sorted(path for path in disk.names_seen if path.suffix == ".index")
    for path, other in zip(indexes, reversed(indexes), strict=True):
        disk.names_seen[path].seen[:] = disk.names_seen[other].durable or disk.names_seen[other].seen
    reopened = opened()
    for after in range(8):
        assert next(reopened.read(after=after)).value == value(after)


def test_an_index_that_a_killed_process_had_only_created_is_no_damage(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened()
    journal.append_many(map(value, range(8)))
    journal.close()
    for index in [path for path in disk.names_seen if path.suffix == ".index"]:
        disk.names_seen[index].seen.clear()
    reopened = opened()
    assert damage(reopened) == []
    assert next(reopened.read(after=5)).value == value(5)


def test_a_copy_of_a_page_inside_a_record_is_never_served_as_records(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened(page_size=4096)
    journal.append_many(map(value, range(8)))
    journal.append(bytes(disk.names_seen[PAGE_1].seen))
    journal.append(b"end")
    seen = disk.rebooted(keep_unsynced=True)
    seen.flip_bit(PAGE_1, RECORDS_AT + 8 * 50 + 30)
    assert [record.value for record in ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=seen).read()] == [
        *map(value, range(8)),
        b"end",
    ]


def test_what_a_killed_process_left_behind_the_last_record_is_cut_and_logged(
    filled: SimulatedDisk, opened: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    last = FOLDER / "journal-4.page"
    filled.names_seen[last].seen.extend(b"torn")
    other = ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=filled)
    assert [finding.severity for finding in other.verify()] == [Severity.NOTE]
    reader = other.read()
    assert len(list(reader)) == 8
    assert reader.skipped[0].size == 4
    journal = opened(disk=filled)
    assert len(filled.names_seen[last].seen) == RECORDS_AT + 100
    assert any("journal_tail_cut" in message and "bytes=4" in message for message in caplog.messages)
    assert damage(journal) == []


def test_a_page_that_a_killed_process_had_only_begun_is_no_damage(filled: SimulatedDisk, opened: Opening) -> None:
    begun = bytearray(filled.names_seen[PAGE_1].seen[:40])
    filled.names_seen[FOLDER / "journal-5.page"] = Node(begun)
    [finding] = ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=filled).verify()
    assert (finding.severity, finding.subject, finding.fact) == (
        Severity.NOTE,
        "page 5",
        "40 bytes behind the last whole record are not one",
    )
    journal = opened(disk=filled)
    assert damage(journal) == []
    assert journal.append(b"after").sequence == 9


def test_a_record_that_lies_behind_later_ones_is_found_by_verify(filled: SimulatedDisk) -> None:
    content = filled.names_seen[FOLDER / "journal-4.page"].seen
    header = PageHeader.parse(bytes(content[:RECORDS_AT]))
    assert header is not None
    content += packed(Kind.WHOLE, 3, header.first_arrival, b"again", header.salt + len(content))
    [fact] = [finding.fact for finding in ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=filled).verify()]
    assert fact == "record 3 follows record 8: they are out of order"


def test_the_log_names_the_last_record_before_what_was_cut_also_if_that_may_have_been_several(
    filled: SimulatedDisk, opened: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    filled.names_seen[FOLDER / "journal-4.page"].seen.extend(b"t" * 300)
    opened(disk=filled)
    assert [message.partition(" bytes=")[2] for message in caplog.messages] == ["300 after_record=8"]


def test_a_folder_that_is_missing_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ReadOnlyJournal.open(tmp_path / "missing")


@pytest.mark.parametrize("dropped", [1, 2, 3, 4])
def test_a_record_of_which_a_page_was_dropped_is_reported_once_behind_a_cursor_also_where_its_last_page_is_the_first(
    opened: Opening, dropped: int
) -> None:
    journal = opened(cap=6 * 256, when_full="drop_oldest")
    first, _ = journal.append(b"before"), journal.append(b"x" * 300)
    journal.cursor("slow").commit(first)
    for _ in range(dropped + 1):  # the record has four parts, each in a page of its own
        journal.append(b"y" * 90)
    reader = journal.read(cursor="slow")
    found = [record.sequence for record in reader]
    assert found == list(range(2 if dropped == 1 else 3, dropped + 4))
    assert [str(one) for one in reader.skipped] == (
        [] if dropped == 1 else [f"page {dropped}, 0 bytes at offset 0, after record 1: record 2 has gaps"]
    )
    assert [record.sequence for record in journal.read()] == found


@pytest.mark.parametrize(("room", "left"), [(100, [3]), (300, [3]), (600, [3, 4]), (900, [2, 3, 4])])
def test_a_record_in_several_pages_never_takes_the_room_of_the_last_page_before_it(
    opened: Opening, disk: SimulatedDisk, clock: TimeMachine, room: int, left: list[int]
) -> None:
    journal = opened(when_full="drop_oldest")
    journal.append_many([b"a" * 90] * 3)
    [*_, before] = journal.read()
    disk.room = room
    with contextlib.suppress(JournalFull) if left == [3] else contextlib.nullcontext():
        journal.append(b"x" * 300)
    assert [record.sequence for record in journal.read()] == left
    assert journal.stat().dropped_records == left[0] - 1
    journal.close()
    disk.room = None
    clock.set(clock.now() - SECOND)
    after = opened().append(b"b")
    assert (after.sequence, after.arrived_us) == (left[-1] + 1, before.arrived_us)
