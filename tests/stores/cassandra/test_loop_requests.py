"""Requests that tasks await.

A stand-in for the driver's future is answered when a test says so, by another thread as the driver does it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from astyqueue.clock import SystemClock
from astyqueue.stores.cassandra.requests.attempt import Pause, RequestSteps
from astyqueue.stores.cassandra.requests.loop_requests import IN_FLIGHT, LoopRequests
from astyqueue.units import SECOND

CLOCK = SystemClock()


class Asked:
    """A future of the driver: calls its callbacks at each answer, and at once if there was one before."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self._calls: list[Callable[[], None]] = []

    def add_callbacks(
        self,
        callback: Callable[..., None],
        errback: Callable[..., None],
        *,
        callback_args: tuple[object, ...],
        errback_args: tuple[object, ...],
    ) -> None:
        assert (callback, callback_args) == (errback, errback_args)
        self._calls.append(lambda: callback(None, *callback_args))
        if self.answers:
            self._calls[-1]()

    def answer_here(self, answer: str) -> None:
        """Answer in this thread, as the driver does in one that closes the session."""
        self.answers.append(answer)
        for one in self._calls:
            one()

    def answer(self, answer: str) -> None:
        """Answer in a thread of the driver."""
        thread = threading.Thread(target=self.answer_here, args=(answer,))
        thread.start()
        thread.join()

    def result(self) -> str:
        assert self.answers, "the steps would have blocked the event loop"
        return self.answers[0]


def steps(*asked: Asked) -> RequestSteps[list[str]]:
    answers = []
    for one in asked:
        yield one
        answers.append(one.result())
    return answers


def play(scene: Callable[[LoopRequests], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(30):
            await scene(LoopRequests(asyncio.get_running_loop()))

    asyncio.run(whole())


async def turns(count: int = 3) -> None:
    """Let the event loop go round."""
    for _ in range(count):
        over = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(over.set_result, None)
        await over


def test_steps_go_on_with_each_answer_and_with_those_that_came_before() -> None:
    async def scene(requests: LoopRequests) -> None:
        first, second, third = asked = Asked(), Asked(), Asked()
        outcome = requests.begin(steps(*asked))
        second.answer("b")
        await turns()
        assert not outcome.done()
        first.answer("a")
        await turns()
        third.answer("c")
        assert await outcome == ["a", "b", "c"]

    play(scene)


def test_steps_go_on_with_an_answer_in_the_thread_of_the_loop_as_when_a_call_there_closes_the_session() -> None:
    async def scene(requests: LoopRequests) -> None:
        first, second = Asked(), Asked()
        outcome = requests.begin(steps(first, second))
        first.answer_here("a")
        await turns()
        second.answer_here("b")
        await turns()
        assert outcome.done()
        assert await outcome == ["a", "b"]

    play(scene)


def test_a_second_node_that_answers_too_does_not_carry_on_steps_that_wait_for_something_else() -> None:
    async def scene(requests: LoopRequests) -> None:
        first, second = Asked(), Asked()
        outcome = requests.begin(steps(first, second))
        first.answer("a")
        first.answer("a, from another node")
        await turns()
        first.answer("a, from a third")
        await turns()
        assert not outcome.done()
        second.answer("b")
        assert await outcome == ["a", "b"]

    play(scene)


def test_what_steps_raise_reaches_the_task() -> None:
    async def scene(requests: LoopRequests) -> None:
        def failing() -> RequestSteps[None]:
            yield from steps(answered)
            raise ZeroDivisionError

        answered = Asked()
        answered.answer("a")
        with pytest.raises(ZeroDivisionError):
            await requests.begin(failing())

    play(scene)


def test_a_pause_does_not_stop_the_loop() -> None:
    async def scene(requests: LoopRequests) -> None:
        def pausing() -> RequestSteps[bool]:
            until = CLOCK.monotonic() + SECOND // 50
            yield Pause(until)
            return CLOCK.monotonic() >= until - SECOND // 1000  # the resolution of the loop's clock

        outcome = requests.begin(pausing())
        await turns()
        assert not outcome.done()
        assert await outcome

    play(scene)


def test_a_bounded_number_is_in_flight_and_the_others_follow_in_their_order() -> None:
    async def scene(requests: LoopRequests) -> None:
        begun: list[int] = []

        def counted(number: int) -> RequestSteps[int]:
            begun.append(number)
            yield from steps(asked[number])
            return number

        asked = [Asked() for _ in range(IN_FLIGHT + 3)]
        outcomes = [requests.begin(counted(number)) for number in range(len(asked))]
        assert begun == list(range(IN_FLIGHT))
        outcomes[IN_FLIGHT].cancel()
        asked[5].answer("a")
        await turns()
        assert begun[IN_FLIGHT:] == [IN_FLIGHT + 1]
        for one in asked:
            one.answer("a")
        await asyncio.wait(outcomes)
        assert begun[IN_FLIGHT:] == [IN_FLIGHT + 1, IN_FLIGHT + 2]
        assert [one.result() for one in outcomes if not one.cancelled()] == [*range(IN_FLIGHT), *begun[IN_FLIGHT:]]

    play(scene)


def test_thousands_that_end_as_they_begin_do_not_nest() -> None:
    async def scene(requests: LoopRequests) -> None:
        def invalid() -> RequestSteps[None]:
            raise ZeroDivisionError
            yield

        asked = [Asked() for _ in range(IN_FLIGHT)]
        first = [requests.begin(steps(one)) for one in asked]
        outcomes = [requests.begin(invalid()) for _ in range(10_000)]
        asked[0].answer("a")
        await asyncio.wait(outcomes)
        assert all(isinstance(one.exception(), ZeroDivisionError) for one in outcomes)
        for one in asked[1:]:
            one.answer("a")
        await asyncio.wait(first)

    play(scene)


def test_a_request_whose_task_was_cancelled_is_carried_on_to_its_end() -> None:
    async def scene(requests: LoopRequests) -> None:
        ended: list[str] = []

        def noted() -> RequestSteps[None]:
            yield from steps(first, second)
            ended.append("the whole of it")

        first, second = Asked(), Asked()
        outcome = requests.begin(noted())
        outcome.cancel()
        first.answer("a")
        await turns()
        second.answer("b")
        await turns()
        assert ended == ["the whole of it"]
        assert outcome.cancelled()

    play(scene)


def test_an_answer_for_a_loop_that_was_closed_is_dropped() -> None:
    asked = Asked()

    async def scene(requests: LoopRequests) -> None:
        requests.begin(steps(asked))

    play(scene)
    asked.answer("too late")
