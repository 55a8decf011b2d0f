"""Followers while the writer dies, runs out of space, waits for room or is replaced: they miss no record."""

from __future__ import annotations

import itertools
import threading
from typing import Final

import pytest

from astyqueue.findings import Severity, worst
from astyqueue.journal import BYTES, Reader, ReadOnlyJournal, Record
from astyqueue.journal_errors import JournalFull
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening, until_true

#: It needs six pages of 256 bytes.
LARGE: Final = b"x" * 500
#: One record in each page.
PAGE: Final = b"x" * 90
DEADLINE: Final = 20


class Killed(BaseException):
    """The process of the writer ends here."""


def follower(disk: SimulatedDisk, clock: TimeMachine) -> Reader[bytes]:
    return ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk, clock=clock).read(follow=True)


def taken(reader: Reader[bytes]) -> list[bytes]:
    return [record.value for record in reader.take(100)]


def kill_at_write(disk: SimulatedDisk, number: int) -> None:
    """Have the process that writes end before its write of this number, counted from now."""
    count = itertools.count()

    def kill() -> None:
        if next(count) == number:
            raise Killed

    disk.before_write = kill


@pytest.mark.parametrize("before", [[], [b"a", b"b"]], ids=["first record", "third record"])
@pytest.mark.parametrize("write", range(6))
def test_a_follower_in_a_record_that_a_killed_writer_did_not_finish_gets_all_that_its_successor_appends(
    write: int, before: list[bytes], opened: Opening, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    journal = opened()
    journal.append_many(before)
    reader = follower(disk, clock)
    assert taken(reader) == before
    kill_at_write(disk, write)
    try:
        journal.append(LARGE)
    except Killed:
        before = [*before]
    else:
        before = [*before, LARGE]
    disk.before_write = lambda: None
    journal.abandon()
    got = taken(reader)
    for _ in range(2):
        journal = opened()
        after = [b"%d" % number * 40 for number in range(6)]
        journal.append_many([*after, LARGE[::-1]])
        journal.abandon()
        got += taken(reader)
        before = [*before, *after, LARGE[::-1]]
    assert [value for value in got if value in before] == before[len(before) - len(got) :]
    assert reader.skipped == []
    assert [record.value for record in opened().read()] == before


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("room", range(0, 800, 37))
def test_a_follower_in_a_record_for_which_the_disk_has_no_space_gets_all_that_is_appended_later(
    room: int,
    reopened: bool,  # noqa: FBT001 - a parameter
    opened: Opening,
    disk: SimulatedDisk,
    clock: TimeMachine,
) -> None:
    journal = opened(when_full="raise")
    journal.append(b"a")
    reader = follower(disk, clock)
    assert taken(reader) == [b"a"]
    seen: list[bytes] = []
    disk.before_write = lambda: seen.extend(taken(reader))
    disk.room = room
    expected = [b"%d" % number * 40 for number in range(6)]
    try:
        journal.append(LARGE)
    except JournalFull:
        disk.room = None
    else:
        expected = [LARGE, *expected]
    if reopened:
        journal.close()
        journal = opened()
    journal.append_many(expected[-6:])
    assert [*seen, *taken(reader)] == expected
    assert reader.skipped == []


@pytest.mark.parametrize("room", [59, 60, 117, 130, 187, 200])
@pytest.mark.parametrize("before", [[], [b"a"]], ids=["new page", "page with a record"])
def test_a_follower_that_saw_a_part_of_what_was_taken_back_gets_all_that_is_appended_instead(
    before: list[bytes], room: int, opened: Opening, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    journal = opened(when_full="raise", page_size=4096)
    journal.append_many(before)
    reader = follower(disk, clock)
    assert taken(reader) == before
    seen: list[Record[bytes]] = []
    disk.before_truncate = lambda: seen.extend(reader.take(100))
    disk.room = room
    with pytest.raises(JournalFull) as full:
        journal.append_many([b"taken back" * 3] * 4)
    assert full.value.appended == 0
    disk.room, disk.before_truncate = None, lambda: None
    values = [b"%d" % number * 20 for number in range(6)]
    places = [journal.append(value) for value in values]
    got = reader.take(100)
    assert [record.value for record in got] == values
    assert [record.sequence for record in got] == [place.sequence for place in places]
    assert not {record.sequence for record in got} & {record.sequence for record in seen}
    assert reader.skipped == []
    again = journal.read()
    assert [record.value for record in again] == [*before, *values]
    assert again.skipped == []
    assert worst(journal.verify()) <= Severity.NOTE  # the disk had no space for the index of the page either


def test_a_follower_gets_what_an_append_of_many_has_written_when_it_waits_for_room(opened: Opening) -> None:
    journal = opened(cap=2 * 256, when_full="block")
    cursor = journal.cursor("mail")
    got: list[bytes] = []

    def follow() -> None:
        for record in journal.read(cursor=cursor, follow=True):
            got.append(record.value)
            cursor.commit(record)

    following = threading.Thread(target=follow, daemon=True)
    following.start()
    appending = threading.Thread(target=journal.append_many, args=([PAGE] * 12,), daemon=True)
    appending.start()
    appending.join(DEADLINE)
    assert not appending.is_alive()
    until_true(lambda: journal.stat().cursors == {"mail": 12})
    journal.close()
    following.join(DEADLINE)
    assert got == [PAGE] * 12
