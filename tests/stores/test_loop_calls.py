"""Calls that threads have an event loop make."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from astyqueue.stores.threadsafe_calls import LoopCalls, PerLoop


def turn() -> asyncio.Future[None]:
    """Over when the loop has made the calls that are due now."""
    over = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(over.set_result, None)
    return over


def test_calls_that_are_added_while_a_loop_is_busy_wake_it_once_and_are_made_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    wakes: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def counted(call: object, *arguments: object) -> asyncio.Handle:
            wakes.append(call)
            return wake(call, *arguments)  # type: ignore[arg-type]  # passed on as it came

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        calls = LoopCalls(loop)

        def add() -> None:
            for number in range(20):
                calls.add(partial(made.append, number))

        for again in (1, 2):
            thread = threading.Thread(target=add)
            thread.start()
            thread.join()
            assert len(wakes) == again
            await turn()

    asyncio.run(main())
    assert made == [*range(20), *range(20)]


def test_other_tasks_have_their_turn_between_many_calls() -> None:
    made: list[str] = []

    async def main() -> None:
        calls = LoopCalls(asyncio.get_running_loop())
        for _ in range(100):
            calls.add(partial(made.append, "call"))
        await turn()
        made.append("task")
        while made.count("call") < 100:
            await turn()

    asyncio.run(main())
    assert 0 < made.index("task") < 100


def test_a_closed_loop_makes_no_call() -> None:
    loop = asyncio.new_event_loop()
    calls = LoopCalls(loop)
    loop.close()
    calls.add(partial(pytest.fail, "it was called"))


def test_each_loop_has_its_own_and_those_of_closed_ones_are_forgotten() -> None:
    per_loop = PerLoop(LoopCalls)

    async def twice() -> tuple[LoopCalls, LoopCalls]:
        return per_loop.here(), per_loop.here()

    first, again = asyncio.run(twice())
    other, _ = asyncio.run(twice())
    assert first is again is not other
    assert len(per_loop._made) == 1  # noqa: SLF001 - nothing else shows what is kept
