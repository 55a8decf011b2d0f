"""Middleware around the call of a handler: what handles batches gets its own, and the first one is the outermost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: A handler, and what wraps one, whether they get one delivery or a list.
AnyCall = Callable[[Any], Any]
Around = Callable[[Any, AnyCall], Any]


@dataclass(frozen=True, slots=True)
class BatchMiddleware:
    """Middleware for handlers of batches: `call(deliveries, call_next)` gets the list that the handler would get.

    A plain function wraps those in threads, an `async def` one those on the event loop, and it awaits the next call.
    Use it as a decorator, or around a function: `middleware=[trace, BatchMiddleware(trace_batch)]`. It may pass on
    fewer deliveries than it got. Those that are not settled then are acked when it returns, and fail when it raises.
    """

    call: Around

    def __call__(self, deliveries: list[Any], call_next: AnyCall) -> Any:  # noqa: ANN401 - a coroutine if the function is `async def`
        """Call the function, as a test would."""
        return self.call(deliveries, call_next)


def wrapped(call: AnyCall, middleware: Sequence[Around]) -> AnyCall:
    """The call with this middleware around it."""
    for one in reversed(middleware):
        call = _around(one, call)
    return call


def wrapped_coroutine(call: AnyCall, middleware: Sequence[Around]) -> AnyCall:
    """The coroutine function with this middleware around it."""
    for one in reversed(middleware):
        call = _awaited_around(one, call)
    return call


def _around(middleware: Around, following: AnyCall) -> AnyCall:
    return lambda delivery: middleware(delivery, following)


def _awaited_around(middleware: Around, following: AnyCall) -> AnyCall:
    async def call(delivery: object) -> object:
        return await middleware(delivery, following)

    return call
