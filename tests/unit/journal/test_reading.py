"""Reading: since a moment, behind a place, up to an end, and live; by threads, tasks and other processes."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from astyqueue.clock import instant
from astyqueue.errors import BadInput
from astyqueue.journal import BYTES, Journal, Reader, ReadOnlyJournal, Record
from astyqueue.journal.format import RECORDS_AT, Entry
from astyqueue.journal.page_walk import PageWalk
from astyqueue.journal.read_only_journal import Since
from astyqueue.journal.records import BytesCodec, Position
from astyqueue.journal_errors import UndecodableRecord
from astyqueue.testing import TimeMachine
from astyqueue.testing.timemachine import START
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening

DEADLINE: Final = 20
SECOND: Final = 1_000_000


class Following(threading.Thread):
    """A thread that reads, and what it has got."""

    def __init__(self, records: Iterator[Record[bytes]]) -> None:
        super().__init__(daemon=True)
        self._records = records
        self._changed = threading.Condition()
        self.got: list[bytes] = []
        self.start()

    def run(self) -> None:
        for record in self._records:
            with self._changed:
                self.got.append(record.value)
                self._changed.notify_all()

    def until(self, count: int) -> list[bytes]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.got) >= count, DEADLINE)
            return list(self.got)

    def ended(self) -> list[bytes]:
        self.join(DEADLINE)
        assert not self.is_alive()
        return self.got


@pytest.fixture
def minutes(opened: Opening, clock: TimeMachine) -> Journal[bytes]:
    """Thirty records over several pages, three for each of ten minutes."""
    journal = opened()
    for number in range(30):
        journal.append(b"%02d" % number + bytes(40))
        if number % 3 == 2:
            clock.advance("1m")
    return journal


def numbers(records: Iterator[Record[bytes]]) -> list[int]:
    return [int(record.value[:2]) for record in records]


def minute(count: float) -> int:
    return START + round(count * 60 * SECOND)


@pytest.mark.parametrize(
    ("since", "first"),
    [(-1, 0), (0, 0), (0.5, 3), (1, 3), (4, 12), (4.9, 15), (9, 27), (9.1, 30), (100, 30)],
)
def test_since_a_moment_all_records_come_that_arrived_at_or_after_it(
    since: float, first: int, minutes: Journal[bytes]
) -> None:
    assert numbers(minutes.read(since=instant(minute(since)))) == list(range(first, 30))


def test_since_may_be_a_function_that_is_asked_once_when_reading_starts(
    minutes: Journal[bytes], clock: TimeMachine
) -> None:
    asked: list[int] = []

    def since() -> object:
        asked.append(clock.now())
        return instant(minute(8))

    reader = minutes.read(since=since)  # type: ignore[arg-type]  # an object of the right class
    assert asked == []
    clock.advance("1h")
    assert numbers(reader) == list(range(24, 30))
    assert asked == [clock.now()]


@pytest.mark.parametrize("ago", ["2m", timedelta(minutes=2)])
def test_since_may_be_a_time_before_reading_starts(ago: str | timedelta, minutes: Journal[bytes]) -> None:
    assert numbers(minutes.read(since=ago)) == list(range(24, 30))


def test_equal_moments_on_both_sides_of_a_page_border_are_all_found(opened: Opening, clock: TimeMachine) -> None:
    journal = opened()
    journal.append(b"early")
    clock.advance("1m")
    journal.append_many([b"same" + bytes(60)] * 9)
    clock.advance("1m")
    journal.append(b"late")
    assert journal.stat().pages >= 4
    assert len(list(journal.read(since=instant(minute(1))))) == 10
    assert len(list(journal.read(until=instant(minute(1))))) == 1


@pytest.mark.parametrize("reopened", [False, True])
def test_a_clock_that_steps_back_breaks_no_order(reopened: bool, opened: Opening, clock: TimeMachine) -> None:  # noqa: FBT001 - a parameter
    journal = opened()
    for back in (0, 3600, 5, -10, 60):
        clock.set(clock.now() - back * SECOND)
        journal.append(b"x" * 60)
        if reopened:
            journal.close()
            journal = opened()
    arrived = [record.arrived_us for record in journal.read()]
    assert arrived == sorted(arrived) == [START] * 5
    clock.set(START + 1)
    assert journal.append(b"y").arrived_us == START + 1
    assert [record.value for record in journal.read(since=instant(START + 1))] == [b"y"]


def test_behind_a_place_the_records_that_follow_it_come(minutes: Journal[bytes]) -> None:
    for after in (0, 1, 7, 29, 30):
        assert numbers(minutes.read(after=after)) == list(range(after, 30))
    third = list(minutes.read())[2]
    assert numbers(minutes.read(after=third)) == list(range(3, 30))


def test_reading_ends_before_a_moment_or_with_a_record(minutes: Journal[bytes]) -> None:
    records = list(minutes.read())
    assert numbers(minutes.read(until=instant(minute(2)))) == list(range(6))
    assert numbers(minutes.read(until=records[9])) == list(range(10))
    assert numbers(minutes.read(since=instant(minute(2)), until=records[9])) == [6, 7, 8, 9]
    assert numbers(minutes.read(after=5, until=records[9], follow=True)) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "until", ["8m", timedelta(minutes=8), lambda: instant(minute(2))], ids=["text", "timedelta", "function"]
)
def test_a_moment_to_end_before_is_given_as_one_to_begin_at(until: Since, minutes: Journal[bytes]) -> None:
    assert numbers(minutes.read(until=until)) == list(range(6))
    assert numbers(minutes.read(after=4, until=until)) == [4, 5]


@pytest.mark.parametrize(
    "wrong", [{"until": 3}, {"until": b"x"}, {"after": "x"}, {"after": None, "until": []}, {"until": "soon"}], ids=str
)
def test_a_place_that_is_none_is_refused_at_the_call(wrong: Any, minutes: Journal[bytes]) -> None:  # noqa: ANN401 - what is refused
    with pytest.raises(BadInput, match="give"):
        minutes.read(**wrong)


def test_a_cursor_takes_no_number(minutes: Journal[bytes]) -> None:
    cursor: Any = minutes.cursor("mail")
    with pytest.raises(BadInput, match="a commit is int: give a record"):
        cursor.commit(200)
    with pytest.raises(BadInput, match="a rewind is int: give a record"):
        cursor.rewind(10)
    with pytest.raises(BadInput, match="not a name of a cursor"):
        minutes.read(cursor=5)  # type: ignore[arg-type]  # what is refused


def test_two_starting_points_are_refused(minutes: Journal[bytes]) -> None:
    with pytest.raises(BadInput, match="exclude each other"):
        minutes.read(since="1h", after=3)


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
def test_a_follower_gets_what_is_there_and_then_each_record_at_once(
    durability: str, opened: Opening, clock: TimeMachine
) -> None:
    journal = opened(durability=durability)
    journal.append(b"a")
    following = Following(journal.read(follow=True))
    assert following.until(1) == [b"a"]
    for count, value in enumerate((b"b", b"c" * 600, b"", b"d" * 60), 2):
        journal.append(value)
        assert following.until(count)[-1] == value
    journal.close()
    assert len(following.ended()) == 5
    assert clock.now() == START


def test_followers_of_an_empty_journal_get_its_first_record(opened: Opening) -> None:
    journal = opened(durability="batch")
    followers = [Following(journal.read(follow=True)) for _ in range(3)]
    journal.append(b"a")
    assert [following.until(1) for following in followers] == [[b"a"]] * 3
    journal.close()


def test_a_follower_ends_when_its_reader_is_closed_and_when_its_moment_has_passed(
    opened: Opening, clock: TimeMachine
) -> None:
    journal = opened()
    closed, until = journal.read(follow=True), journal.read(follow=True, until=instant(START + SECOND))
    first, second = Following(closed), Following(until)
    journal.append(b"a")
    assert first.until(1) == second.until(1) == [b"a"]
    closed.close()
    first.ended()
    clock.when_waiting(1, DEADLINE)
    clock.advance("1s")
    assert second.ended() == [b"a"]


def test_a_reader_of_another_process_sees_what_was_written_and_looks_again_after_a_while(
    opened: Opening, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    journal = opened()
    with ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk, clock=clock) as other:
        following = Following(other.read(follow=True))
        for count in range(1, 8):
            journal.append(b"x" * 80)
            clock.when_waiting(1, DEADLINE)
            clock.advance("20ms")
            following.until(count)
        assert [record.value for record in other.read()] == following.got
        assert other.stat().last_sequence == 7
        assert [finding.severity.word for finding in other.verify()] == ["ok"]
    assert len(following.ended()) == 7


def test_a_reader_of_another_process_shows_no_record_in_parts_until_it_is_whole(
    disk: SimulatedDisk, opened: Opening, clock: TimeMachine
) -> None:
    journal = opened()
    journal.append(b"a")
    journal.append(b"b" * 900)
    for count in range(1, len(disk.changes)):
        seen = disk.replayed(disk.changes[:count])
        other = ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=seen, clock=clock)
        found = [record.value for record in other.read()]
        assert found == [b"a", b"b" * 900][: len(found)]


def test_the_last_sequence_is_known_where_the_last_page_has_no_record(
    disk: SimulatedDisk, opened: Opening, clock: TimeMachine
) -> None:
    opened().append_many([b"x" * 90] * 3)
    for size in (RECORDS_AT, RECORDS_AT + 5, 0, 60):
        seen = disk.rebooted(keep_unsynced=True)
        del seen.names_seen[FOLDER / "journal-3.page"].seen[size:]
        with ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=seen, clock=clock) as other:
            assert other.stat().last_sequence == 2


def test_records_taken_before_an_error_are_taken_again(
    minutes: Journal[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = minutes.read()
    first = reader.take(1)
    read, calls = PageWalk.next_entries, itertools.count(1)

    def failing(walk: PageWalk, start: int) -> list[Entry]:
        if next(calls) == 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(walk, start)

    monkeypatch.setattr(PageWalk, "next_entries", failing)
    with pytest.raises(OSError, match="Input/output error"):
        reader.take(30)
    assert reader.position == Position(first[0].sequence, first[0].arrived_us)
    assert numbers(iter([*first, *reader.take(30)])) == list(range(30))


async def collected(records: object, count: int) -> list[bytes]:
    found = []
    async for record in records:  # type: ignore[attr-defined]  # a reader
        found.append(record.value)
        if len(found) == count:
            break
    return found


def test_a_task_reads_and_follows_while_the_event_loop_runs(opened: Opening) -> None:
    journal = opened()
    journal.append_many([b"a", b"b"])

    async def main() -> list[bytes]:
        following = asyncio.create_task(collected(journal.read(follow=True), 3))
        assert await collected(journal.read(), 9) == [b"a", b"b"]
        await asyncio.to_thread(journal.append, b"c")
        return await asyncio.wait_for(following, DEADLINE)

    assert asyncio.run(main()) == [b"a", b"b", b"c"]


def test_a_task_that_waits_for_records_gets_the_next_one_and_ends_with_its_journal(
    opened: Opening, clock: TimeMachine
) -> None:
    journal = opened()

    async def main() -> list[bytes]:
        records = aiter(journal.read(follow=True))
        first = asyncio.ensure_future(anext(records))
        await asyncio.to_thread(clock.when_waiting, 1, DEADLINE)
        await asyncio.to_thread(journal.append, b"a")
        found = [(await asyncio.wait_for(first, DEADLINE)).value]
        rest = asyncio.ensure_future(collected(records, 9))
        await asyncio.to_thread(clock.when_waiting, 1, DEADLINE)
        await asyncio.to_thread(journal.close)
        return found + await asyncio.wait_for(rest, DEADLINE)

    assert asyncio.run(main()) == [b"a"]


def test_a_task_waits_for_records_until_the_moment_at_which_reading_ends(opened: Opening, clock: TimeMachine) -> None:
    journal = opened()

    async def main() -> list[bytes]:
        until = instant(clock.now() + 60 * SECOND)
        following = asyncio.create_task(collected(journal.read(follow=True, until=until), 9))
        await asyncio.to_thread(clock.when_waiting, 1, DEADLINE)
        clock.advance("1m")
        return await asyncio.wait_for(following, DEADLINE)

    assert asyncio.run(main()) == []


@pytest.mark.parametrize("seen", [1, 3])
def test_the_position_of_a_task_is_that_of_the_record_it_got_last(seen: int, opened: Opening) -> None:
    journal = opened()
    journal.append_many([b"%d" % number for number in range(1, 11)])

    async def some() -> Position | None:
        reader = journal.read()
        async for record in reader:
            assert reader.position == Position(record.sequence, record.arrived_us)
            if record.sequence == seen:
                break
        return reader.position

    position = asyncio.run(some())
    assert position is not None
    assert [record.sequence for record in journal.read(after=position)] == list(range(seen + 1, 11))


def test_the_position_stays_where_it_was_at_a_record_that_cannot_be_decoded(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened()
    journal.append_many([b"a", b"b", b"c"])

    def decode(_: BytesCodec, data: bytes) -> bytes:
        if data == b"b":
            raise ValueError
        return data

    monkeypatch.setattr(BytesCodec, "decode", decode)

    async def read(reader: Reader[bytes]) -> None:
        async for _ in reader:
            assert reader.position == Position(1, START)

    reader = journal.read()
    assert reader.position is None
    with pytest.raises(UndecodableRecord):
        asyncio.run(read(reader))
    assert reader.position == Position(1, START)
    reader = journal.read()
    assert next(reader).value == b"a"
    with pytest.raises(UndecodableRecord):
        next(reader)
    assert reader.position == Position(1, START)
    assert next(reader).value == b"c"
    assert reader.position == Position(3, START)


def append_numbers(journal: Journal[bytes], name: int, count: int) -> None:
    for number in range(count):
        journal.append(b"%d %d" % (name, number))


def test_a_live_read_neither_skips_nor_repeats_while_threads_append(tmp_path: Path) -> None:
    with Journal.open(tmp_path, codec=BYTES, page_size="64KiB", durability="none") as journal:
        following = Following(journal.read(follow=True))
        count = 5000
        threads: list[threading.Thread] = []
        for name in range(3):
            threads.append(threading.Thread(target=append_numbers, args=(journal, name, count)))
            threads[-1].start()
        for thread in threads:
            thread.join(60)
        got = following.until(3 * count)
    for name in range(3):
        assert [int(v.split()[1]) for v in got if v.startswith(b"%d " % name)] == list(range(count))


@pytest.mark.full
@pytest.mark.parametrize(("count", "size"), [(200_000, 4), (65_536, 40), (65_536, 1024)])
def test_large_numbers_of_records_come_back(count: int, size: int, tmp_path: Path) -> None:
    with Journal.open(tmp_path, codec=BYTES) as journal:
        journal.append_many(n.to_bytes(4, "little") * (size // 4) for n in range(count))
        reader = journal.read()
        batches = iter(lambda: reader.take(8192), [])
        found = itertools.chain.from_iterable(batches)
        assert all(r.value == n.to_bytes(4, "little") * (size // 4) for n, r in enumerate(found))
        assert reader.position is not None
        assert reader.position.sequence == count
