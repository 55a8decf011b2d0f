"""Reclaiming the last page too, so that no record is left: no sequence is given twice."""

from __future__ import annotations

import pytest

from astyqueue.journal import BYTES, Journal, ReadOnlyJournal
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
def test_all_records_may_go_and_the_next_one_has_the_next_number(
    durability: str, opened: Opening, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    journal = opened(durability=durability, retain="1s")
    journal.append_many([b"x" * 50] * 5)
    assert journal.reclaim(last_page=True) == 0
    clock.advance("2s")
    journal.reclaim()
    assert journal.stat().last_sequence == 5
    assert journal.stat().pages == 1
    assert journal.reclaim(last_page=True) == 1
    assert journal.reclaim(last_page=True) == 0
    assert (journal.stat().first_sequence, journal.stat().last_sequence) == (0, 5)
    with ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk, clock=clock) as other:
        assert (other.stat().first_sequence, other.stat().last_sequence) == (0, 5)
        assert [finding.severity.word for finding in other.verify()] == ["ok"]
    journal.close()
    again = opened(durability=durability)
    assert again.append(b"next").sequence == 6
    assert [record.value for record in again.read()] == [b"next"]


def test_a_page_with_a_record_that_is_younger_or_not_passed_stays(opened: Opening, clock: TimeMachine) -> None:
    journal = opened(retain="1s", page_size="4KiB", durability="batch")
    journal.append(b"old")
    clock.advance("2s")
    journal.append(b"young")
    assert journal.reclaim(last_page=True) == 0
    clock.advance("2s")
    cursor = journal.cursor("mail")
    first, last = journal.read()
    cursor.commit(first)
    assert journal.reclaim(last_page=True) == 0
    cursor.commit(last)
    with journal.read() as reader:
        next(reader)
        assert journal.reclaim(last_page=True) == 0
    assert journal.reclaim(last_page=True) >= 1
    assert list(journal.read()) == []


@pytest.mark.parametrize("keep_unsynced", [False, True])
def test_a_crash_at_any_change_gives_no_sequence_twice(
    keep_unsynced: bool,  # noqa: FBT001 - a parameter
    opened: Opening,
    disk: SimulatedDisk,
    clock: TimeMachine,
) -> None:
    journal = opened(retain="1s")
    journal.append_many([b"x" * 50] * 5)
    clock.advance("2s")
    before = len(disk.changes)
    journal.reclaim(last_page=True)
    for count in range(before, len(disk.changes) + 1):
        seen = disk.replayed(disk.changes[:count]).rebooted(keep_unsynced=keep_unsynced)
        with Journal.open(FOLDER, codec=BYTES, disk=seen, clock=clock) as crashed:
            assert crashed.append(b"next").sequence == 6


def test_a_follower_goes_on_behind_what_was_removed(opened: Opening, disk: SimulatedDisk, clock: TimeMachine) -> None:
    journal = opened(retain="1s")
    journal.append(b"a")
    with ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk, clock=clock) as other, other.read(follow=True) as reader:
        assert next(reader).value == b"a"
        clock.advance("2s")
        journal.reclaim(last_page=True)
        journal.append(b"b")
        assert next(reader).value == b"b"
        assert reader.skipped == []
