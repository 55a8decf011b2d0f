"""Handlers of messages: one for each task, one for all other messages, and the middleware around them."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from astyqueue.errors import BadSetting
from astyqueue.queue.delivery.delivery import Delivery

Call = Callable[[Delivery], object]
#: Gets the delivery and the next call; its return value counts as the handler's result.
Middleware = Callable[[Delivery, Call], object]

#: The most handlers of a factory that are cached: producers choose the names, so their number is unbounded.
_MADE: Final = 1_000
#: The header that names the task a message is for.
TASK: Final = "task"


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that handles messages, its name, timeout (microseconds) and number of attempts."""

    name: str
    call: Call
    timeout: int | None = None
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        """Refuse async and generator functions: they return before any work, so messages would be acked undone."""
        check_handler(self.call)


Factory = Callable[[str], Handler | Call | None]


def check_handler(call: object) -> None:
    """BadSetting unless this is a plain function or callable that can run in a thread."""
    if not callable(call):
        message = f"{call!r} is not a handler: give a function that takes the delivery"
        raise BadSetting(message)
    if any(map(inspect.iscoroutinefunction, (call, _entry(call)))):
        message = (
            f"{handler_name(call)} is async, but a dispatcher runs its handlers in threads: wrap it in a function "
            "that calls asyncio.run(...), or receive with astyqueue.aio in your own event loop"
        )
        raise BadSetting(message)
    refuse_generator(call)


def refuse_generator(call: object) -> None:
    """BadSetting for a generator function: its messages would be acked undone."""
    if any(map(_yields, (call, _entry(call)))):
        message = f"{handler_name(call)} is a generator: calling it does no work. Give one that works and returns"
        raise BadSetting(message)


def _entry(call: object) -> object:
    """The `__call__` of an object that is not a function."""
    return getattr(call, "__call__", None)  # noqa: B004 - the method itself is needed


def _yields(call: object) -> bool:
    return inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call)


def refuse_unfinished(result: object) -> None:
    """TypeError for a handler's result that must be awaited or iterated over: no work was done yet."""
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return
    if close := getattr(result, "close", None):
        close()
    message = f"the handler returned {type(result).__name__}, so no work was done: await it, or iterate over it"
    raise TypeError(message)


def handler_name(call: object) -> str:
    """The name of this handler for people: its module and qualified name."""
    if isinstance(call, functools.partial):
        return handler_name(call.func)
    module = getattr(call, "__module__", None)
    name = getattr(call, "__qualname__", None) or type(call).__qualname__
    return f"{module}.{name}" if module else name


class HandlerRegistry:
    """Finds the handler of a message: by its task, from the factory, or else the handler of all messages."""

    def __init__(self) -> None:
        """Start without handlers; `names` are the tasks known to be handled."""
        self.names: set[str] = set()
        self._general: Handler | None = None
        self._named: dict[str, Handler] = {}
        self._made: dict[str, Handler] = {}
        self._making = threading.Lock()
        self._factory: Factory | None = None
        self._defaults: tuple[int | None, int | None] = (None, None)
        self._middleware: tuple[Middleware, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is neither a handler nor a factory."""
        return self._general is None and self._factory is None and not self._named

    def add(self, handler: Handler, task: str | None) -> None:
        """Register the handler of a task, or of all messages without another handler. BadSetting for a second one."""
        if (self._general is not None) if task is None else (task in self._named):
            handled = "all messages" if task is None else f"the task {task!r}"
            message = f"there are two handlers for {handled} of one queue: give one"
            raise BadSetting(message)
        if task is None:
            self._general = handler
        else:
            self._named[task] = handler
            self.names.add(task)

    def ask(self, factory: Factory, *, timeout: int | None, max_attempts: int | None) -> None:
        """Register the factory; the options apply to plain functions that it returns. BadSetting for a second one."""
        if self._factory is not None:
            message = "there are two factories of handlers for one queue: give one"
            raise BadSetting(message)
        self._factory = factory
        self._defaults = (timeout, max_attempts)

    def wrap(self, middleware: Iterable[Middleware]) -> None:
        """Wrap every handler; the first is the outermost."""
        self._middleware = tuple(middleware)
        self._general = self._wrapped(self._general) if self._general else None
        self._named = {task: self._wrapped(handler) for task, handler in self._named.items()}

    def find(self, delivery: Delivery) -> Handler | None:
        """The handler of a message; None if its task is unknown here, or it names none and no handler takes all."""
        if not self._named and self._factory is None:
            return self._general
        task = delivery.headers.get(TASK)
        if task is None:
            return self._general
        return self._named.get(task) or self._made.get(task) or self._make(task) or self._general

    def _make(self, task: str) -> Handler | None:
        """The handler that the factory makes for a name; an error of the factory counts as the attempt's."""
        if self._factory is None:
            return None
        try:
            made = self._factory(task)
            if made is None:
                return None
            handler = made if isinstance(made, Handler) else Handler(task, made, *self._defaults)
        except Exception as error:  # noqa: BLE001 - a factory's error is reported as the attempt's
            return Handler(task, _raising(error))
        wrapped = self._wrapped(handler)
        with self._making:
            if len(self._made) >= _MADE:
                del self._made[next(iter(self._made))]
            self._made[task] = wrapped
        return wrapped

    def _wrapped(self, handler: Handler) -> Handler:
        call = handler.call
        for middleware in reversed(self._middleware):
            call = _around(middleware, call)
        return replace(handler, call=call)


def _around(middleware: Middleware, following: Call) -> Call:
    return lambda delivery: middleware(delivery, following)


def _raising(error: Exception) -> Call:
    def fail(_: Delivery) -> object:
        raise error

    return fail
