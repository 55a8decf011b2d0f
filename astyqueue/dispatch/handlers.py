"""What runs for a message: handlers by the name of a task, one for everything else, and what is wrapped around them."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from astyqueue.errors import BadSetting
from astyqueue.queue.delivery import Delivery

Call = Callable[[Delivery], object]
#: Gets the delivery and what comes next; what it returns counts as the handler's result.
Middleware = Callable[[Delivery, Call], object]

#: As many handlers that a factory made are kept; senders choose the names for which it is asked.
_MADE: Final = 1_000
#: The header that names the task a message is for.
TASK: Final = "task"


@dataclass(frozen=True, slots=True)
class Handler:
    """What runs for a message, under which name, for how long at most (microseconds) and how often."""

    name: str
    call: Call
    timeout: int | None = None
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        """What would return before it did anything is refused: its messages would be acked undone."""
        check(self.call)


Factory = Callable[[str], Handler | Call | None]


def check(call: object) -> None:
    """Refuse what is no handler for a thread; BadSetting says what to do."""
    if not callable(call):
        message = f"{call!r} is no handler: give a function that takes the delivery"
        raise BadSetting(message)
    if any(map(inspect.iscoroutinefunction, (call, _entry(call)))):
        message = (
            f"{name_of(call)} is async, and a dispatcher runs its handlers in threads: wrap it in a plain function that "
            "calls asyncio.run(...), or receive with astyqueue.aio in your own event loop"
        )
        raise BadSetting(message)
    refuse_generator(call)


def refuse_generator(call: object) -> None:
    """Refuse a function that yields: its messages would be acked undone."""
    if any(map(_yields, (call, _entry(call)))):
        message = f"{name_of(call)} is a generator: calling it does nothing yet. Give a function that does the work and returns"
        raise BadSetting(message)


def _entry(call: object) -> object:
    """What is run when an object that is no function is called."""
    return getattr(call, "__call__", None)  # noqa: B004 - not whether it can be called, but what runs then


def _yields(call: object) -> bool:
    return inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call)


def refuse_unfinished(result: object) -> None:
    """Raise TypeError for a handler's result that shows that nothing was done yet: it has to be awaited, or iterated over."""
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return
    if close := getattr(result, "close", None):
        close()
    message = f"the handler returned {type(result).__name__}, so nothing was done yet: await it inside, or go through it"
    raise TypeError(message)


def name_of(call: object) -> str:
    """How a person would call this handler."""
    if isinstance(call, functools.partial):
        return name_of(call.func)
    module = getattr(call, "__module__", None)
    name = getattr(call, "__qualname__", None) or type(call).__qualname__
    return f"{module}.{name}" if module else name


class Roster:
    """Finds who handles a message: by its task, by the factory, or else the handler of all messages."""

    def __init__(self) -> None:
        """Nobody handles anything yet; `names` are the tasks that are known to be handled."""
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
        """Whether there is nobody at all."""
        return self._general is None and self._factory is None and not self._named

    def add(self, handler: Handler, task: str | None) -> None:
        """Have a handler run for a task, or for all messages that no other is for."""
        if (self._general is not None) if task is None else (task in self._named):
            message = f"there are two handlers for {'all messages' if task is None else f'the task {task!r}'} of one queue: give one"
            raise BadSetting(message)
        if task is None:
            self._general = handler
        else:
            self._named[task] = handler
            self.names.add(task)

    def ask(self, factory: Factory, *, timeout: int | None, max_attempts: int | None) -> None:
        """Have handlers made by the name of a task; these are the options of those that come as plain functions."""
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
        """The handler of a message; None if its task is unknown here, or it has none and nobody takes all."""
        if not self._named and self._factory is None:
            return self._general
        task = delivery.headers.get(TASK)
        if task is None:
            return self._general
        return self._named.get(task) or self._made.get(task) or self._make(task) or self._general

    def _make(self, task: str) -> Handler | None:
        """What the factory makes for a name; its error is that of the attempt, as if the handler had raised it."""
        if self._factory is None:
            return None
        try:
            made = self._factory(task)
            if made is None:
                return None
            handler = made if isinstance(made, Handler) else Handler(task, made, *self._defaults)
        except Exception as error:  # noqa: BLE001 - whatever the factory raises is told as the attempt's error
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
