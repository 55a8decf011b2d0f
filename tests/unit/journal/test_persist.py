"""A stream through a journal: order, ends, errors, restarts, and consumers that stop early."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final

import pytest

from astyqueue.errors import BadInput
from astyqueue.journal import Codec, Journal
from astyqueue.journal_errors import JournalFull, JournalInUse, UndecodableRecord
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening, until_true

DEADLINE: Final = 20
Through = Callable[[Journal[Any], Iterable[Any]], list[Any]]


async def awaited(items: Iterable[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


def as_thread(journal: Journal[Any], items: Iterable[Any]) -> list[Any]:
    return list(journal.persist(items))


def as_task(journal: Journal[Any], items: Iterable[Any]) -> list[Any]:
    async def main() -> list[Any]:
        return [item async for item in journal.persist_async(awaited(items))]

    return asyncio.run(main())


@pytest.fixture(params=[as_thread, as_task])
def through(request: pytest.FixtureRequest) -> Through:
    chosen: Through = request.param
    return chosen


@pytest.fixture(params=[False, True], ids=["thread", "task"])
def through_async(request: pytest.FixtureRequest) -> bool:
    chosen: bool = request.param
    return chosen


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_every_item_comes_out_in_order_and_the_stream_ends(
    count: int, durability: str, through: Through, opened: Opening
) -> None:
    items = [b"%d" % number for number in range(count)]
    assert through(opened(durability=durability, page_size="4KiB"), items) == items


@pytest.mark.parametrize(
    ("size", "count"), [(81, 20), (100, 20), (200, 9), (1000, 5)], ids=["one a page", "full", "two pages", "ten pages"]
)
def test_items_as_large_as_pages_and_larger_come_out_whole(
    size: int, count: int, through: Through, opened: Opening
) -> None:
    items = [bytes([number]) * size for number in range(count)]
    assert through(opened(), items) == items


def failing(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield b"%d" % number
    message = "the source broke"
    raise ArithmeticError(message)


@pytest.mark.parametrize("count", [0, 3])
def test_an_error_of_the_source_comes_after_the_items_before_it(count: int, through: Through, opened: Opening) -> None:
    journal = opened()
    with pytest.raises(ArithmeticError, match="the source broke"):
        through(journal, failing(count))
    assert journal.stat().last_sequence == count


class Wrong(Codec[object]):
    def encode(self, value: object) -> bytes:
        return None if value == "write" else b"x"  # type: ignore[return-value]  # a defect of a user's codec

    def decode(self, data: bytes) -> object:
        raise LookupError(data)


@pytest.mark.parametrize(("item", "error"), [("write", BadInput), ("read", UndecodableRecord)])
def test_a_codec_that_fails_ends_the_stream_with_an_error_and_emits_nothing(
    item: str, error: type[Exception], through: Through
) -> None:
    with Journal.open(FOLDER, codec=Wrong(), disk=SimulatedDisk()) as journal, pytest.raises(error):
        through(journal, [item])


def test_what_an_earlier_run_left_comes_first(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened()
    stream = journal.persist([b"a", b"b", b"c"])
    assert [next(stream), next(stream)] == [b"a", b"b"]
    while journal.stat().last_sequence < 3:
        journal.sync()
    seen = disk.rebooted(keep_unsynced=False)
    stream.close()
    assert as_thread(journal, [b"d"]) == [b"b", b"c", b"d"]
    assert as_thread(opened(disk=seen), [b"d"]) == [b"a", b"b", b"c", b"d"]


def test_a_slow_consumer_stops_no_source(opened: Opening) -> None:
    journal = opened(durability="batch", page_size="4KiB")
    given = threading.Event()

    def source() -> Iterator[bytes]:
        yield from (b"%d" % number for number in range(1000))
        given.set()

    stream = journal.persist(source())
    assert next(stream) == b"0"
    assert given.wait(DEADLINE)
    assert list(stream) == [b"%d" % number for number in range(1, 1000)]


def test_a_source_waits_at_the_cap_until_the_consumer_goes_on(opened: Opening) -> None:
    journal = opened(cap=4 * 256, when_full="block")
    items = [b"%03d" % number * 30 for number in range(60)]
    assert list(journal.persist(items)) == items
    assert journal.stat().pages <= 4


@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=pytest.mark.full)])
def test_a_consumer_that_stops_early_closes_the_source_and_the_reader(rounds: int, opened: Opening) -> None:
    journal = opened(durability="none", cap=8 * 256, when_full="block")
    for _ in range(rounds):
        closed = threading.Event()

        def source(closed: threading.Event = closed) -> Iterator[bytes]:
            try:
                yield from [b"x" * 50] * 5000
            finally:
                closed.set()

        stream = journal.persist(source())
        for _ in range(5):
            next(stream)
        stream.close()
        assert closed.wait(DEADLINE)
        journal.cursor("persist").remove()
        journal.reclaim(ignore_cursors=True)
        journal.cursor("persist").commit(next(iter([*journal.read()][-1:])))
        journal.cursor("persist").close()


def test_a_task_that_stops_early_leaves_no_task_behind(opened: Opening) -> None:
    journal = opened()

    async def main() -> int:
        stream = journal.persist_async(awaited([b"a"] * 500))
        assert [await anext(stream) for _ in range(3)] == [b"a"] * 3
        await stream.aclose()
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1


def test_what_a_thread_took_from_the_source_is_kept_when_the_consumer_leaves(opened: Opening) -> None:
    journal = opened()
    taken: list[bytes] = []
    left = threading.Event()

    def source() -> Iterator[bytes]:
        for number in range(3):
            taken.append(b"%d" % number)
            yield taken[-1]
        assert left.wait(DEADLINE)
        taken.append(b"last")
        yield taken[-1]
        taken.append(b"too late")
        yield taken[-1]

    stream = journal.persist(source())
    assert next(stream) == b"0"
    stream.close()
    left.set()
    until_true(lambda: not any(thread.name == "astyqueue-persist" for thread in threading.enumerate()))
    assert b"too late" not in taken
    assert [record.value for record in journal.read()] == taken


@pytest.mark.parametrize("count", [1, 500, 3000])
def test_what_a_task_took_from_the_source_is_kept_when_the_consumer_leaves(count: int, opened: Opening) -> None:
    journal = opened(page_size="4KiB")
    taken: list[bytes] = []

    async def source() -> AsyncIterator[bytes]:
        for number in range(count):
            taken.append(b"%d" % number)
            yield taken[-1]

    async def main() -> None:
        stream = journal.persist_async(source())
        assert await anext(stream) == b"0"
        await stream.aclose()

    asyncio.run(main())
    assert [record.value for record in journal.read()] == taken


def test_a_full_journal_does_not_keep_a_consumer_that_leaves(through_async: bool, opened: Opening) -> None:  # noqa: FBT001 - a parameter
    journal = opened(cap=2 * 256, when_full="block")
    items, before = [b"x" * 90] * 50, set(threading.enumerate())

    async def main() -> None:
        stream = journal.persist_async(awaited(items))
        assert await anext(stream) == items[0]
        await stream.aclose()

    if through_async:
        asyncio.run(asyncio.wait_for(main(), DEADLINE))
    else:
        stream = journal.persist(items)
        assert next(stream) == items[0]
        stream.close()
        # Its thread logs the item that it could not append, which is not to come in the log of the next test.
        until_true(lambda: all(thread.name != "astyqueue-persist" for thread in set(threading.enumerate()) - before))
    assert 1 <= len(list(journal.read())) <= 2


def lost(caplog: pytest.LogCaptureFixture) -> int:
    """How many items the log reports as lost."""
    return sum(int(count) for count in re.findall(r"journal_persist_lost_items items=(\d+)", caplog.text))


@pytest.mark.parametrize("count", [3, 60, 3_000])
def test_all_that_a_full_journal_does_not_take_when_a_task_leaves_is_logged(
    count: int, opened: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened(cap=2 * 256, when_full="block")
    taken: list[int] = []

    async def source() -> AsyncIterator[bytes]:
        for number in range(count):
            taken.append(number)
            yield b"%04d" % number + b"x" * 86

    async def main() -> None:
        stream = journal.persist_async(source())
        assert await anext(stream)
        await stream.aclose()

    asyncio.run(asyncio.wait_for(main(), DEADLINE))
    assert lost(caplog) == len(taken) - len(list(journal.read())) > 0


class SetOnceLooked(threading.Event):
    """Is set, by another thread, right after an append has found that it is not set."""

    def is_set(self) -> bool:
        was_set = super().is_set()
        self.set()
        return was_set


def test_an_append_hears_of_a_stop_between_its_look_and_its_wait_for_room(opened: Opening) -> None:
    journal = opened(cap=2 * 256, when_full="block")
    raised: list[JournalFull] = []

    def append() -> None:
        try:
            journal._writer.append([b"x" * 90] * 20, stop=SetOnceLooked())  # noqa: SLF001 - only `persist` stops appends
        except JournalFull as full:
            raised.append(full)

    thread = threading.Thread(target=append, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert len(raised) == 1


class Stuck:
    """A codec that encodes b"b" only once it may."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.released = threading.Event()

    def encode(self, value: bytes) -> bytes:
        if value == b"b":
            self.entered.set()
            assert self.released.wait(DEADLINE)
        return value

    def decode(self, data: bytes) -> bytes:
        return data


def test_what_waits_for_the_journal_when_a_task_is_cancelled_twice_is_kept(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    codec = Stuck()
    journal = Journal.open(FOLDER, codec=codec, disk=disk)

    async def main() -> bool:
        is_full, left = asyncio.Event(), asyncio.Event()

        async def source() -> AsyncIterator[bytes]:
            try:
                yield b"b"
                assert await asyncio.to_thread(codec.entered.wait, DEADLINE)
                yield b"c"
                is_full.set()
                await asyncio.Event().wait()
            finally:
                left.set()

        async def consume() -> None:
            async for _ in journal.persist_async(source()):
                pass

        consumer = asyncio.create_task(consume())
        for reached in (is_full, left):
            await reached.wait()
            consumer.cancel()
        codec.released.set()
        await asyncio.wait({consumer})
        return consumer.cancelled()

    assert asyncio.run(asyncio.wait_for(main(), DEADLINE))
    assert lost(caplog) == 0
    assert [record.value for record in journal.read()] == [b"b", b"c"]
    journal.close()


def test_what_was_taken_is_kept_when_the_loop_ends_before_the_stream_that_was_left(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    codec = Stuck()
    journal = Journal.open(FOLDER, codec=codec, disk=disk)

    async def main() -> None:
        is_begun, is_full = asyncio.Event(), asyncio.Event()

        async def source() -> AsyncIterator[bytes]:
            try:
                yield b"a"
                await is_begun.wait()
                yield b"b"
                assert await asyncio.to_thread(codec.entered.wait, DEADLINE)
                yield b"c"
                is_full.set()
                await asyncio.Event().wait()
            finally:
                codec.released.set()

        async for item in journal.persist_async(source()):
            assert item == b"a"
            is_begun.set()
            await is_full.wait()
            break

    asyncio.run(asyncio.wait_for(main(), DEADLINE))
    assert lost(caplog) == 0
    assert [record.value for record in journal.read()] == [b"a", b"b", b"c"]
    journal.close()


def test_a_source_that_is_cancelled_ends_its_stream_with_an_error(opened: Opening) -> None:
    journal = opened()

    async def source() -> AsyncIterator[bytes]:
        yield b"a"
        raise asyncio.CancelledError

    async def main() -> None:
        stream = journal.persist_async(source())
        assert await anext(stream) == b"a"
        with pytest.raises(asyncio.CancelledError):
            await anext(stream)

    asyncio.run(asyncio.wait_for(main(), DEADLINE))


def test_an_item_that_comes_after_its_journal_was_closed_is_logged(
    opened: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    closed, waits = threading.Event(), threading.Event()

    def source() -> Iterator[bytes]:
        yield b"a"
        waits.set()
        assert closed.wait(DEADLINE)
        yield b"taken from a broker"

    journal = opened()
    stream = journal.persist(source())
    assert next(stream) == b"a"
    assert waits.wait(DEADLINE)
    stream.close()
    journal.close()
    closed.set()
    until_true(lambda: lost(caplog) == 1)
    assert [record.value for record in opened().read()] == [b"a"]


def test_a_value_that_cannot_be_encoded_is_not_in_the_log(
    through: Through, disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    with Journal.open(FOLDER, disk=disk) as journal, pytest.raises(BadInput):
        through(journal, [{"password": b"hunter2"}])
    assert "reason=BadInput" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_second_stream_on_a_cursor_is_refused_and_leaves_the_first_alone(through: Through, opened: Opening) -> None:
    journal = opened()
    stream = journal.persist([b"a", b"b"])
    assert next(stream) == b"a"
    with pytest.raises(JournalInUse, match="cursor 'persist'"):
        through(journal, [b"c"])
    assert list(stream) == [b"b"]
    assert through(journal, [b"d"]) == [b"d"]
    other = journal.persist([b"e"], cursor="other")
    assert next(other) == b"a"
    other.close()


def test_a_stream_that_was_never_begun_keeps_no_cursor(through: Through, opened: Opening) -> None:
    journal = opened()
    journal.persist([b"a"])
    assert through(journal, [b"b"]) == [b"b"]
