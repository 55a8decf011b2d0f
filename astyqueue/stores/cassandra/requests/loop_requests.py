"""Requests to Cassandra that tasks of an event loop await: the driver's threads wake the loop, and no thread waits."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from threading import get_ident
from typing import Any, Final, Generic, TypeVar

from cassandra.cluster import ResponseFuture

from astyqueue.stores.cassandra.requests.attempt import REAL_TIME, Pause, RequestSteps
from astyqueue.stores.threadsafe_calls import LoopCalls
from astyqueue.units import SECOND

T = TypeVar("T")

#: The requests of one event loop that are in flight at most; the others wait. It is far below the 32 768 that one
#: connection of the driver carries, beyond which a send blocks its thread, and many more than a node works on at once.
IN_FLIGHT: Final = 1_024


class LoopRequests:
    """The requests of the tasks of one event loop, begun in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is the one that runs the tasks."""
        self.loop = loop
        self.calls = LoopCalls(loop)
        self._waiting: deque[_LoopRequest[Any]] = deque()
        self._in_flight = 0
        self._beginning = False

    def begin(self, steps: RequestSteps[T]) -> asyncio.Future[T]:
        """Carry these steps out; the future gets their outcome.

        Cancelling the future changes nothing for steps that have begun: their outcome is dropped. Others do not begin.
        """
        request = _LoopRequest(self, steps)
        self._waiting.append(request)
        self._begin_waiting()
        return request.outcome

    def ended(self) -> None:
        """Begin another request in place of one that has ended."""
        self._in_flight -= 1
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        if self._beginning:  # a request ended as it began, as invalid ones do: the loop below goes on
            return
        self._beginning = True
        try:
            while self._waiting and self._in_flight < IN_FLIGHT:
                request = self._waiting.popleft()
                if not request.outcome.done():
                    self._in_flight += 1
                    request.advance()
        finally:
            self._beginning = False


class _LoopRequest(Generic[T]):
    """The steps of one request, carried on whenever what they wait for has come."""

    def __init__(self, requests: LoopRequests, steps: RequestSteps[T]) -> None:
        self.outcome: asyncio.Future[T] = requests.loop.create_future()
        self._requests = requests
        self._steps = steps
        self._awaited: ResponseFuture | None = None
        self._asking = 0  # the thread that is in `_has_come`

    def advance(self) -> None:
        """Go on until the steps wait for something, or end. The event loop calls this."""
        try:
            while self._has_come(next(self._steps)):
                pass
        except StopIteration as finished:
            if not self.outcome.done():
                self.outcome.set_result(finished.value)
            self._requests.ended()
        except BaseException as error:  # noqa: BLE001 - it reaches the task that awaits the request
            if not self.outcome.done():
                self.outcome.set_exception(error)
            self._requests.ended()

    def _has_come(self, awaited: ResponseFuture | Pause) -> bool:
        """Whether the steps need not wait; otherwise they are carried on later."""
        if isinstance(awaited, Pause):
            self._requests.loop.call_later((awaited.until - REAL_TIME.monotonic()) / SECOND, self.advance)
            return False
        self._awaited, self._asking = awaited, get_ident()
        awaited.add_callbacks(self._on_answer, self._on_answer, callback_args=(awaited,), errback_args=(awaited,))
        self._asking = 0
        return self._awaited is None

    def _on_answer(self, _answer: object, future: ResponseFuture) -> None:
        """Called by a thread of the driver, or within `_has_come` if the answer had come before.

        The loop's own thread may also call it later: in a blocking call that closes the session. If several nodes
        answer, it is called for each: only the first call counts.
        """
        if get_ident() == self._asking:
            self._awaited = None
        else:
            self._requests.calls.add(partial(self._resume, future))

    def _resume(self, future: ResponseFuture) -> None:
        if self._awaited is future:
            self._awaited = None
            self.advance()
