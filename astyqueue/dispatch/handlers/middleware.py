"""Middleware around the call of a handler: what handles batches gets its own, and the first one is the outermost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from astyqueue.dispatch.handlers.handler import AsyncCall, Call, Handler, Kind, handler_name, is_async, kind_of
from astyqueue.errors import BadSetting
from astyqueue.queue.delivery.delivery import Delivery

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


#: Gets the delivery and the next call; its return value counts as the handler's result.
Middleware = Callable[[Delivery, Call], object]
#: The same for `async def` handlers: it awaits the next call.
AsyncMiddleware = Callable[[Any, AsyncCall], Awaitable[object]]
AnyMiddleware = Middleware | AsyncMiddleware | BatchMiddleware


class Children(Protocol):
    """The processes of a dispatcher that run handlers, seen from the handlers."""

    def expect(self, address: str) -> None:
        """The function at this address will be called."""
        ...

    def call(self, address: str, delivery: Delivery) -> object:
        """Have a child process call the function at this address, and wait for the end."""
        ...

    def interrupt(self, delivery: Delivery) -> None:
        """Kill the child that handles this delivery."""
        ...


class HandlerWrapping:
    """What is called around handlers: middleware, and for handlers in processes the way there."""

    def __init__(
        self,
        middleware: Iterable[AnyMiddleware] = (),
        *,
        guard: Callable[[AnyCall], AnyCall] | None = None,
        children: Children | None = None,
        cancel: Callable[[Delivery], None] | None = None,
    ) -> None:
        """The first middleware is the outermost; `async def` ones are for `async def` handlers, others for the rest.

        `guard` wraps the call of a handler in a thread, and once more that of the middleware around it, except for
        batches. `children` run the handlers for processes; `cancel` ends the coroutine of a delivery.
        """
        self._given = tuple(middleware)
        single = [one for one in self._given if not isinstance(one, BatchMiddleware)]
        self._awaited = tuple(cast("AsyncMiddleware", one) for one in single if is_async(one))
        self._plain = tuple(cast("Middleware", one) for one in single if not is_async(one))
        self._of_batches = [one.call for one in self._given if isinstance(one, BatchMiddleware)]
        self._guard = guard or _unguarded
        self._children = children
        self._cancel = cancel

    def wrapped(self, handler: Handler) -> Handler:
        """The handler with all that is around it; BadSetting if there is middleware, and none of it fits its kind.

        A handler of batches is wrapped in a `BatchMiddleware` only.
        """
        if handler.batch is not None:
            return self._in_batches(handler)
        match handler.kind:
            case Kind.ASYNCIO:
                return replace(handler, call=self._around_coroutine(handler), interrupt=self._cancel)
            case Kind.PROCESS:
                return self._in_child(handler)
        self._check_fits(handler, self._plain)
        call = self._guard(handler.call)
        if self._plain:
            call = self._guard(_wrapped(call, self._plain))
        return replace(handler, call=call)

    def _in_batches(self, handler: Handler) -> Handler:
        awaited = handler.kind is Kind.ASYNCIO
        fitting = [one for one in self._of_batches if is_async(one) is awaited]
        self._check_fits(handler, fitting)
        if not awaited:
            return replace(handler, call=_wrapped(self._guard(handler.call), fitting))
        return replace(handler, call=_wrapped_coroutine(handler.call, fitting), interrupt=self._cancel)

    def _around_coroutine(self, handler: Handler) -> AsyncCall:
        self._check_fits(handler, self._awaited)
        return _wrapped_coroutine(handler.call, self._awaited)

    def _in_child(self, handler: Handler) -> Handler:
        self._check_fits(handler, self._plain)
        children, address = self._children, handler.address
        if children is None or address is None:
            message = f"{handler.name} is for a process, and this dispatcher has none: .processes(4), for example"
            raise BadSetting(message)
        children.expect(address)
        call = _wrapped(lambda delivery: children.call(address, delivery), self._plain)
        return replace(handler, call=call, interrupt=children.interrupt)

    def _check_fits(self, handler: Handler, fitting: Sequence[object]) -> None:
        if fitting or not self._given:
            return
        is_, wants = ("async", "`async def`") if handler.kind is Kind.ASYNCIO else ("not async", "a plain function")
        example = ".middleware(trace, trace_async)"
        if handler.batch is not None:
            is_, wants = f"{is_} and handles batches", f"{wants}, which gets lists of deliveries"
            example = ".middleware(trace, BatchMiddleware(trace_batch))"
        message = (
            f"{handler.name} is {is_}, and no middleware can wrap it: {handler_name(_function(self._given[0]))} is for "
            f"the others. Give middleware for it too, {wants}, as {example}"
        )
        raise BadSetting(message)


def check_middleware(middleware: Iterable[object]) -> None:
    """BadSetting for what cannot wrap a handler."""
    for one in middleware:
        kind_of(_function(one))


def _function(middleware: object) -> object:
    return middleware.call if isinstance(middleware, BatchMiddleware) else middleware


def _unguarded(call: AnyCall) -> AnyCall:
    """The default of `guard`."""
    return call


def _wrapped(call: AnyCall, middleware: Sequence[Around]) -> AnyCall:
    """The call with this middleware around it."""
    for one in reversed(middleware):
        call = _around(one, call)
    return call


def _wrapped_coroutine(call: AnyCall, middleware: Sequence[Around]) -> AnyCall:
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
