"""What may be the source of a stream through a journal, and what happens when it cannot begin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from astyqueue.errors import BadInput
from tests.unit.journal.conftest import Opening, until_true
from tests.unit.journal.test_persist import lost

DEADLINE: Final = 20


def given() -> Iterator[bytes]:
    yield b"a"


async def awaited() -> AsyncIterator[bytes]:
    yield b"a"


class Unready:
    """A source that cannot even begin."""

    def __iter__(self) -> Iterator[bytes]:
        raise ArithmeticError

    def __aiter__(self) -> AsyncIterator[bytes]:
        raise ArithmeticError


def test_an_error_at_the_start_of_the_source_is_raised(opened: Opening) -> None:
    async def main() -> None:
        async for _ in opened_journal.persist_async(Unready()):
            pass

    opened_journal = opened()
    with pytest.raises(ArithmeticError):
        next(opened_journal.persist(Unready()))
    with pytest.raises(ArithmeticError):
        asyncio.run(asyncio.wait_for(main(), DEADLINE))


@pytest.mark.parametrize(
    ("verb", "source", "kind", "remedy"),
    [
        ("persist", 5, "int", "give a list, a generator"),
        ("persist", given, "function", "call it"),
        ("persist", awaited(), "async_generator", "persist_async"),
        ("persist_async", 5, "int", "give an async generator"),
        ("persist_async", awaited, "function", "call it"),
        ("persist_async", [1], "list", "persist, without"),
    ],
)
def test_what_cannot_be_iterated_is_refused_at_the_call(
    verb: str, source: object, kind: str, remedy: str, opened: Opening
) -> None:
    with pytest.raises(BadInput, match=f"{verb} reads .*, not one {kind}: .*{remedy}"):
        getattr(opened(), verb)(source)


def test_a_sequence_of_the_old_protocol_is_a_source(opened: Opening) -> None:
    class Indexed:
        def __getitem__(self, place: int) -> bytes:
            return [b"a", b"b"][place]

    source: Any = Indexed()
    assert list(opened().persist(source)) == [b"a", b"b"]


def test_an_item_that_a_task_gets_from_its_source_after_the_stream_was_left_is_logged(
    opened: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened()

    async def main() -> None:
        waits, stays, goes_on = (asyncio.Event() for _ in range(3))

        async def source() -> AsyncIterator[bytes]:
            yield b"a"
            try:
                waits.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stays.set()
            await goes_on.wait()
            yield b"taken from a broker"

        async def consume() -> None:
            async for _ in journal.persist_async(source()):
                pass

        consumer = asyncio.create_task(consume())
        for reached in (waits, stays):
            await reached.wait()
            consumer.cancel()
        await asyncio.wait({consumer})
        goes_on.set()
        await asyncio.to_thread(until_true, lambda: lost(caplog) == 1)

    asyncio.run(asyncio.wait_for(main(), DEADLINE))
    assert [record.value for record in journal.read()] == [b"a"]
