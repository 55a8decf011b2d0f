"""The endless loop over deliveries, for tasks of an event loop.

It differs from the one for threads: what is garbage-collected cannot await, so the state of the loop outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import NamedTuple, Self, cast

from astyqueue.aio.delivery import Delivery, Received
from astyqueue.errors import AstyqueueError, Closed
from astyqueue.waiting import DeferredCancellation

Receive = Callable[[], Awaitable[Received]]
Keep = Callable[[Callable[[], bool]], Coroutine[None, None, None]]


class Later(NamedTuple):
    """Acks that no task waits for: `ack` buffers one, `flush` commits all that are buffered."""

    ack: Callable[[Delivery], None]
    flush: Callable[[], Awaitable[None]]


async def complete(work: Callable[[], Coroutine[object, object, None]]) -> None:
    """Await `work` in a task that was cancelled, through further cancellations; its errors are left out."""
    with contextlib.suppress(AstyqueueError):
        await DeferredCancellation().wait_for(work())


class Deliveries:
    """An endless `async for` over deliveries of a queue; it ends when the queue is closed.

    One that is garbage-collected before that, as after its loop was left early, is closed soon after by the event loop.
    """

    def __init__(self, receive: Receive, keep: Keep, later: Later | None) -> None:
        """`receive` waits for the next deliveries; `keep` renews leases until its argument returns true.

        Without `later`, each ack is committed before the next delivery is returned.
        """
        self._stream = _Stream(receive, keep, later)

    def __aiter__(self) -> Self:
        """The iterator itself: a second loop continues after the first."""
        return self

    async def __anext__(self) -> Delivery:
        """Ack the previous delivery unless it was settled, and wait for the next."""
        if self._stream.over:
            raise StopAsyncIteration
        try:
            return await self._stream.following()
        except Closed as closed:
            raise StopAsyncIteration from closed

    async def aclose(self) -> None:
        """Settle what is open: the current delivery as a failed attempt; those behind it are given back.

        A task that waits for the next delivery meanwhile gets none: its loop ends.
        """
        await self._stream.close()

    def __del__(self) -> None:
        """Have the event loop call `aclose`."""
        self._stream.forget()


class _Wait:
    """A task's wait for deliveries, which another task may end, as `asyncio.timeout` ends a block.

    A context manager: what `end` cancelled is left without an error, and a cancellation by others goes on.
    """

    def __init__(self) -> None:
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._cancellations = self._task.cancelling()
        self._ending = False
        self._over = asyncio.Event()

    async def end(self) -> None:
        """Cancel the wait unless it is over, and return when that task has left it."""
        if not (self._ending or self._over.is_set()):
            self._ending = self._task.cancel()
        await self._over.wait()

    def __enter__(self) -> None:
        """Nothing: the wait began when this was made."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._over.set()
        ended = self._ending and self._task.uncancel() <= self._cancellations
        return ended and kind is asyncio.CancelledError


class _Stream:
    """The state that outlives a garbage-collected `Deliveries`: its open deliveries and the task that renews them."""

    def __init__(self, receive: Receive, keep: Keep, later: Later | None) -> None:
        self.over = False
        self._receive = receive
        self._keep = keep
        self._later = later
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._received: Received | None = None
        self._turns: Iterator[Delivery] = iter(())
        self._wait: _Wait | None = None
        self._current: Delivery | None = None

    async def following(self) -> Delivery:
        self._loop = asyncio.get_running_loop()
        self._keeper = self._keeper or asyncio.create_task(self._keep(lambda: self.over))
        if self._current and self._later is None:
            await Received.ack_if_unsettled(self._current)
        elif self._current and self._later and not self._current.settled:
            self._later.ack(self._current)
        self._current = await self._next()
        return self._current

    async def _next(self) -> Delivery:
        while not self.over:
            if (following := next(self._turns, None)) is not None:
                return following
            self._wait = _Wait()
            with self._wait:
                self._received = await self._receive()
                self._turns = iter(self._received)
        raise StopAsyncIteration

    async def close(self) -> None:
        self.over = True
        if self._keeper:
            self._keeper.cancel()
        if self._wait:
            await self._wait.end()
        received, self._received = self._received, None
        if received is not None:
            await received.__aexit__(GeneratorExit, GeneratorExit(), None)
            if self._later:
                await self._later.flush()

    def forget(self) -> None:
        """Close in the event loop, from any thread; if that loop is closed, the task that renews has ended with it."""
        if self._loop and not self.over:
            with contextlib.suppress(RuntimeError):  # that loop was closed before
                self._loop.call_soon_threadsafe(self._close_soon)

    def _close_soon(self) -> None:
        self._closing = asyncio.ensure_future(self.close())
