"""Reads that show less than there is: of a record that is being written, and in front of blocks that cannot be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from astyqueue.findings import Severity, worst
from astyqueue.journal import BYTES, Journal, ReadOnlyJournal
from astyqueue.journal.disk import LocalDisk
from astyqueue.journal.format import OVERHEAD, RECORDS_AT
from astyqueue.journal.page_walk import PageWalk
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import OpenedFile, SimulatedDisk
from tests.unit.journal.conftest import FOLDER

BLOCK: Final = 4096
PAGE_SIZE: Final = 16 * BLOCK
#: Records of 1000 bytes, so that each lies in one or two blocks.
SIZE: Final = 1000
IN_A_PAGE: Final = (PAGE_SIZE - RECORDS_AT) // SIZE


def page(number: int) -> Path:
    return FOLDER / f"journal-{number}.page"


def value(number: int) -> bytes:
    return b"%04d" % number * ((SIZE - OVERHEAD) // 4)


class PartFile(OpenedFile):
    """A file of which reads show a part."""

    def __init__(self, disk: PartDisk, path: Path) -> None:
        super().__init__(disk, path, disk.names_seen[path])
        self._parts = disk
        self._bad = disk.bad.get(path, range(0))

    def read_at(self, offset: int, size: int) -> bytes:
        if self._parts.has_failed:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        end = min(offset + size, self._visible(offset))
        bad = range(max(offset, self._bad.start), min(end, self._bad.stop))
        if bad and (bad.start == offset or (self._parts.fails_as_a_whole and size > BLOCK)):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read_at(offset, max(0, min(end, bad.start if bad else end) - offset))

    def _visible(self, offset: int) -> int:
        if offset < RECORDS_AT or not self._parts.looks:
            return super().size()
        self._parts.looks -= 1
        return self._parts.visible

    def size(self) -> int:
        self._parts.before_size()
        return super().size()


class PartDisk(SimulatedDisk):
    """The first `looks` reads of records see files up to `visible`; ranges of files in `bad` cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = self.visible = 0
        self.before_size: Callable[[], object] = lambda: None
        self.bad: dict[Path, range] = {}
        self.fails_as_a_whole = self.has_failed = False

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> OpenedFile:
        super().open(path, write=write, create=create)
        return PartFile(self, path)


@pytest.fixture
def disk() -> PartDisk:
    return PartDisk()


@pytest.fixture(params=["short", "failed"])
def bad_disk(request: pytest.FixtureRequest, disk: PartDisk) -> PartDisk:
    """A disk that answers a read with a bad block behind its start with what is before it, or not at all."""
    disk.fails_as_a_whole = request.param == "failed"
    return disk


def opened(disk: SimulatedDisk, clock: TimeMachine) -> Journal[bytes]:
    return Journal.open(FOLDER, codec=BYTES, disk=disk, clock=clock, page_size=PAGE_SIZE, durability="each")


def other(disk: SimulatedDisk, clock: TimeMachine) -> ReadOnlyJournal[bytes]:
    return ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk, clock=clock)


def filled(disk: SimulatedDisk, clock: TimeMachine, pages: float) -> list[bytes]:
    """Append that many pages of records; the process is killed then."""
    journal = opened(disk, clock)
    values = [value(number) for number in range(int(pages * IN_A_PAGE))]
    journal.append_many(values)
    journal.abandon()
    return values


def touched(bad: range, number: int = 1) -> Iterator[int]:
    """The records in this page, counted from 0, that have bytes in this range."""
    for position in range(IN_A_PAGE):
        start = RECORDS_AT + position * SIZE
        if start < bad.stop and bad.start < start + SIZE:
            yield (number - 1) * IN_A_PAGE + position


@pytest.mark.parametrize("looks", [1, 2, 3])
@pytest.mark.parametrize("part", [1, OVERHEAD, 500, SIZE - 1])
def test_a_record_that_becomes_whole_between_two_looks_is_read_and_no_damage(
    part: int, looks: int, disk: PartDisk, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    values = filled(disk, clock, 4 / IN_A_PAGE)
    seen = other(disk, clock)
    disk.visible = RECORDS_AT + 2 * SIZE + part
    disk.looks = looks
    reader = seen.read(follow=True)
    got: list[bytes] = []
    while len(got) < len(values):
        got += [record.value for record in reader.take(100)]
    assert got == values
    assert reader.skipped == []
    assert caplog.messages == []
    disk.looks = looks
    assert worst(seen.verify()) <= Severity.NOTE


@pytest.mark.parametrize("part", [0, 1, OVERHEAD, 500, SIZE - 1])
def test_records_that_come_while_a_reader_ends_are_no_damage(
    part: int, disk: PartDisk, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    def write_the_rest() -> None:
        disk.looks = 0

    values = filled(disk, clock, 4 / IN_A_PAGE)
    disk.visible, disk.looks, disk.before_size = RECORDS_AT + 2 * SIZE + part, 1000, write_the_rest
    reader = other(disk, clock).read()
    assert [record.value for record in reader] == values[:2]
    assert reader.skipped == []
    assert caplog.messages == []


@pytest.mark.parametrize("pages", [1, 2])
def test_records_that_are_appended_while_a_reader_of_the_same_process_ends_are_no_damage(
    pages: int, disk: PartDisk, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append_before(walk: PageWalk) -> None:
        journal.append_many(map(value, range(1, pages * IN_A_PAGE)))
        note_rest(walk)

    note_rest = PageWalk.note_rest
    monkeypatch.setattr(PageWalk, "note_rest", append_before)
    journal = opened(disk, clock)
    journal.append(value(0))
    reader = journal.read()
    assert [record.value for record in reader] == [value(0)]
    assert reader.skipped == []


@pytest.mark.parametrize("part", [1, OVERHEAD - 1, OVERHEAD, 500, SIZE - 1])
def test_a_part_of_a_record_at_the_end_is_damage_once_no_process_has_the_journal_open_for_writing(
    part: int, disk: PartDisk, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    journal, seen = opened(disk, clock), other(disk, clock)
    journal.append_many(map(value, range(3)))
    content = disk.names_seen[page(1)].seen
    del content[RECORDS_AT + 2 * SIZE + part :]
    with seen.read() as reader:
        assert [record.value for record in reader] == [value(0), value(1)]
        assert reader.skipped == []
        assert caplog.messages == []
    journal.abandon()
    reader = seen.read()
    assert [record.value for record in reader] == [value(0), value(1)]
    assert [(damage.offset, damage.size) for damage in reader.skipped] == [(RECORDS_AT + 2 * SIZE, part)]


@pytest.mark.parametrize("offset", [0, 4, OVERHEAD, SIZE - 1], ids=["length", "checksum", "first byte", "last byte"])
def test_a_last_record_that_is_all_there_and_does_not_match_its_checksum_is_damage_also_beside_its_writer(
    offset: int, disk: PartDisk, clock: TimeMachine
) -> None:
    journal, seen = opened(disk, clock), other(disk, clock)
    journal.append_many(map(value, range(3)))
    disk.flip_bit(page(1), RECORDS_AT + 2 * SIZE + offset, bit=3)
    for one in (journal, seen):
        reader = one.read()
        assert [record.value for record in reader] == [value(0), value(1)]
        assert [(damage.offset, damage.size) for damage in reader.skipped] == [(RECORDS_AT + 2 * SIZE, SIZE)]


@pytest.mark.parametrize("blocks", [range(3, 4), range(5, 9)], ids=["one block", "four blocks"])
def test_bad_blocks_in_a_finished_page_cost_the_records_in_them(
    blocks: range, bad_disk: PartDisk, clock: TimeMachine
) -> None:
    values = filled(bad_disk, clock, 3.5)
    bad = bad_disk.bad[page(2)] = range(blocks.start * BLOCK, blocks.stop * BLOCK)
    lost = set(touched(bad, 2))
    journal = opened(bad_disk, clock)
    for one in (journal, other(bad_disk, clock)):
        reader = one.read()
        assert [record.value for record in reader] == [value for at, value in enumerate(values) if at not in lost]
        [damage] = reader.skipped
        assert (damage.page, damage.size, damage.after) == (2, len(lost) * SIZE, min(lost))
        assert damage.reason == "the disk cannot read all of its blocks"
        [finding] = one.verify()
        assert (finding.severity, finding.fact) == (Severity.PROBLEM, str(damage))


@pytest.mark.parametrize("end", ["closed", "killed", "without hints"])
def test_bad_blocks_in_the_last_page_cost_the_records_in_them_and_nothing_is_cut(
    end: str, bad_disk: PartDisk, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    values = filled(bad_disk, clock, 1.8)
    if end != "killed":
        opened(bad_disk, clock).close()
    if end == "without hints":
        for path in [path for path in bad_disk.names_seen if path.suffix in {".index", ".meta"}]:
            bad_disk.remove(path)
    bad = bad_disk.bad[page(2)] = range(2 * BLOCK, 3 * BLOCK)
    lost = set(touched(bad, 2))
    with opened(bad_disk, clock) as journal:
        assert journal.append(b"after").sequence == len(values) + 1
        reader = journal.read()
        assert [record.value for record in reader] == [
            *(value for at, value in enumerate(values) if at not in lost),
            b"after",
        ]
        [damage] = reader.skipped
        assert [finding.fact for finding in journal.verify()] == [str(damage)]
    assert not any("journal_tail_cut" in message for message in caplog.messages)


@pytest.mark.parametrize("torn", [0, 5000])
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_bad_blocks_at_the_end_are_not_cut_and_the_journal_goes_on_in_a_new_page(
    end: str, torn: int, bad_disk: PartDisk, clock: TimeMachine
) -> None:
    values = filled(bad_disk, clock, 1.8)
    if end == "closed":
        opened(bad_disk, clock).close()
    bad_disk.names_seen[page(2)].seen.extend(bytes(torn))
    size = len(bad_disk.names_seen[page(2)].seen)
    start = (RECORDS_AT + int(0.8 * IN_A_PAGE) * SIZE) // BLOCK * BLOCK
    bad = bad_disk.bad[page(2)] = range(start, start + BLOCK)
    left = [value for at, value in enumerate(values) if at not in set(touched(bad, 2))]
    found = other(bad_disk, clock).verify()
    assert [finding.severity for finding in found] == [Severity.PROBLEM]
    for number in range(2):
        with opened(bad_disk, clock) as journal:
            assert journal.append(b"after").sequence > len(values)
            reader = journal.read()
            assert [record.value for record in reader] == left + [b"after"] * (number + 1)
            [damage] = reader.skipped
            assert (damage.page, damage.offset + damage.size) == (2, size)
            assert (
                [finding.fact for finding in journal.verify()] == [finding.fact for finding in found] == [str(damage)]
            )
    bad_disk.bad.clear()
    assert [record.value for record in opened(bad_disk, clock).read()] == [*values, b"after", b"after"]


def test_a_disk_that_cannot_be_read_at_all_is_an_error_and_costs_no_record(disk: PartDisk, clock: TimeMachine) -> None:
    values = filled(disk, clock, 2.5)
    journal = opened(disk, clock)
    reader = journal.read()
    got = [record.value for record in reader.take(10)]
    disk.has_failed = True
    with pytest.raises(OSError, match="Input/output error"):
        got += [record.value for record in reader.take(1000)]
    disk.has_failed = False
    got += [record.value for record in reader.take(1000)]
    assert got == values
    journal.abandon()
    disk.has_failed = True
    with pytest.raises(OSError, match="Input/output error"):
        opened(disk, clock)
    disk.has_failed = False
    assert [record.value for record in opened(disk, clock).read()] == values


def test_an_index_that_the_disk_cannot_read_hides_nothing(bad_disk: PartDisk, clock: TimeMachine) -> None:
    values = filled(bad_disk, clock, 2.5)
    bad_disk.bad[FOLDER / "journal-1.index"] = range(BLOCK)
    journal = opened(bad_disk, clock)
    assert [record.value for record in journal.read(after=3)] == values[3:]
    [finding] = journal.verify()
    assert (finding.severity, finding.fact) == (Severity.NOTE, "its index is damaged or of another page")


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system cannot be advised to forget a file")
def test_after_an_error_the_system_forgets_a_file_so_that_no_copy_in_memory_hides_a_disk_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int, _size: int, _offset: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    forgotten: list[tuple[int, int, int]] = []
    (tmp_path / "page").touch()
    file = LocalDisk().open(tmp_path / "page")
    monkeypatch.setattr(os, "pread", fail)
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *advice: forgotten.append(advice))
    with pytest.raises(OSError, match="Input/output error"):
        file.read_at(0, 10)
    assert forgotten == [(0, 0, os.POSIX_FADV_DONTNEED)]
    file.close()
