"""Handlers of messages: one for each task, one for all other messages, and the middleware around them.

A handler is of one kind: it runs in a thread, as a coroutine on an event loop, or in a process of its own.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from astyqueue.dispatch.import_path import import_path_of
from astyqueue.dispatch.middleware import BatchMiddleware, wrapped, wrapped_coroutine
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadSetting
from astyqueue.queue.delivery.delivery import Delivery

if TYPE_CHECKING:
    from collections.abc import Awaitable

Call = Callable[[Delivery], object]
#: An `async def` handler. Its delivery is an `astyqueue.aio.Delivery`, whose `ack`, `extend` and so on are awaited.
AsyncCall = Callable[[Any], "Awaitable[object]"]
#: A handler of batches; an `async def` one gets a list of `astyqueue.aio.Delivery`.
BatchCall = Callable[[list[Delivery]], object] | Callable[[list[Any]], "Awaitable[object]"]
#: Gets the delivery and the next call; its return value counts as the handler's result.
Middleware = Callable[[Delivery, Call], object]
#: The same for `async def` handlers: it awaits the next call.
AsyncMiddleware = Callable[[Any, AsyncCall], "Awaitable[object]"]
AnyMiddleware = Middleware | AsyncMiddleware | BatchMiddleware

#: The most handlers of a factory that are cached: producers choose the names, so their number is unbounded.
_MADE: Final = 1_000
_BATCH_AT_MOST: Final = 10_000
#: The header that names the task a message is for.
TASK: Final = "task"


class Kind(Enum):
    """What runs a handler."""

    THREAD = "thread"
    ASYNCIO = "asyncio"
    PROCESS = "process"


#: What handlers share that run alike: their kind, or for a batch handler its own name.
LineKey = Kind | str


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch is complete with this many deliveries, or this long after its first one came (microseconds)."""

    size: int
    within: int

    @classmethod
    def wanted(cls, batch: tuple[int, Duration] | None) -> Batch | None:
        """The batch of a size and a time, such as (100, "500ms"); BadSetting for a size that no batch can have."""
        if batch is None:
            return None
        size, within = batch
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= _BATCH_AT_MOST:
            message = f"the size of a batch is {size!r}: give a whole number from 1 to {_BATCH_AT_MOST}"
            raise BadSetting(message)
        return cls(size, as_microseconds(within))


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that handles messages, its name, timeout (microseconds) and number of attempts.

    `kind` is found from the function unless it is given. `address` is where a child process imports the function of a
    handler for processes. With `batch` it gets a list of deliveries. `interrupt` ends the handler of a delivery from
    outside; None if that is not possible.
    """

    name: str
    call: Callable[[Any], Any]
    timeout: int | None = None
    max_attempts: int | None = None
    kind: Kind | None = None
    address: str | None = None
    batch: Batch | None = None
    interrupt: Callable[[Delivery], None] | None = field(default=None, repr=False)
    line: LineKey = field(default=Kind.THREAD, init=False, repr=False)

    def __post_init__(self) -> None:
        """BadSetting for a function that cannot run so: its messages would be acked undone, or no process finds it."""
        kind = kind_of(self.call, self.kind)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "line", f"batch {self.name}" if self.batch else kind)
        if self.batch is not None:
            refuse_batches_in_processes(self.call, kind)
        if kind is Kind.PROCESS and self.address is None:
            object.__setattr__(self, "address", import_path_of(self.call))


Factory = Callable[[str], Handler | Call | AsyncCall | None]


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


def wanted_kind(kind: str | None) -> Kind | None:
    """The kind of this name; BadSetting if there is none."""
    if kind is None:
        return None
    try:
        return Kind(kind)
    except ValueError:
        message = f"there is no kind {kind!r} of handlers: give one of {', '.join(one.value for one in Kind)}"
        raise BadSetting(message) from None


def kind_of(call: object, wanted: Kind | None = None) -> Kind:
    """The kind of this handler; BadSetting for what is not a handler, or cannot run in the wanted way."""
    if not callable(call):
        message = f"{call!r} is not a handler: give a function that takes the delivery"
        raise BadSetting(message)
    refuse_generator(call)
    awaited = is_async(call)
    if wanted in (None, Kind.ASYNCIO) and awaited:
        return Kind.ASYNCIO
    if awaited or wanted is Kind.ASYNCIO:
        right = "asyncio" if awaited else "thread or process"
        message = f"{handler_name(call)} is {'' if awaited else 'not '}async, so it runs as kind {right}"
        raise BadSetting(message)
    return wanted or Kind.THREAD


def refuse_batches_in_processes(call: object, kind: Kind) -> None:
    """BadSetting for a batch handler that is to run in a child process, which handles one message at a time."""
    if kind is Kind.PROCESS:
        message = (
            f"{handler_name(call)} handles batches, and a process handles single messages: leave out kind, so that "
            "it runs in a thread, or on the event loop if it is async; or leave out batch"
        )
        raise BadSetting(message)


def is_async(call: object) -> bool:
    """Whether calling it makes a coroutine."""
    return any(map(inspect.iscoroutinefunction, (call, _entry(call))))


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
    if inspect.iscoroutine(result):
        message += "; if the handler is `async def`, its decorator must be too, so that it runs on the event loop"
    raise TypeError(message)


def perform(handler: Handler, delivery: Delivery) -> BaseException | None:
    """Run the handler and return the error it raised, if any. A result that must be awaited or iterated is an error."""
    try:
        # A handler of batches that was made for this message, so that nothing gathered any, gets a batch of one.
        result = handler.call(delivery if handler.batch is None else [delivery])
        if result is not None:
            refuse_unfinished(result)
    except BaseException as error:  # noqa: BLE001 - also SystemExit and KeyboardInterrupt: the thread goes on
        return error
    return None


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
        #: The lines of all handlers that are known, and the one line if there is only one.
        self.lines: tuple[LineKey, ...] = ()
        self.only_line: LineKey | None = None
        #: The lines of `async def` handlers, also those that get batches.
        self.awaited_lines: frozenset[LineKey] = frozenset()
        self._learned: dict[str, Handler] = {}
        self._batches: dict[LineKey, Batch] = {}
        self._making = threading.Lock()
        self._factory: Factory | None = None
        self._defaults: tuple[int | None, int | None] = (None, None)
        self._wrapping = HandlerWrapping()

    @property
    def kinds(self) -> set[Kind | None]:
        """The kinds of the handlers that were registered."""
        return {handler.kind for handler in (self._general, *self._named.values()) if handler is not None}

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

    def wrap(self, wrapping: HandlerWrapping) -> None:
        """Wrap every handler, also those that the factory makes: now those of tasks known in advance, others later.

        BadSetting for a handler that cannot run.
        """
        self._wrapping = wrapping
        self._general = wrapping.wrapped(self._general) if self._general else None
        self._named = {task: wrapping.wrapped(handler) for task, handler in self._named.items()}
        for task in self.names - self._named.keys():
            self._know_in_advance(task)
        self._find_lines()

    def learn(self, task: str | None, handler: Handler) -> None:
        """Note the line of the handler that the messages of a task get, which was not known before it was made."""
        if task is not None and handler.line is not Kind.THREAD:
            with self._making:
                if len(self._learned) >= _MADE:
                    del self._learned[next(iter(self._learned))]
                self._learned[task] = handler
            self._find_lines()

    def _find_lines(self) -> None:
        with self._making:
            learned = [*self._learned.values()]
        named = [handler for handler in (self._general, *self._named.values()) if handler is not None]
        lines: dict[LineKey, None] = {handler.line: None for handler in named}
        if self._factory is not None:
            lines |= dict.fromkeys((Kind.THREAD, *(handler.line for handler in learned)))
        self.lines = tuple(lines)
        self.only_line = self.lines[0] if len(lines) == 1 else None
        known = [*named, *learned]
        # The batches of tasks that were forgotten stay: some of their messages may be in this process.
        self._batches |= {handler.line: handler.batch for handler in known if handler.batch is not None}
        self.awaited_lines |= {handler.line for handler in known if handler.kind is Kind.ASYNCIO}

    def line_of(self, task: str | None) -> LineKey:
        """The line of the messages of a task, as far as it is known without asking the factory."""
        if task is None:
            return self._general.line if self._general else Kind.THREAD
        if (handler := self._named.get(task)) is not None:
            return handler.line
        if self._factory is None:
            return self._general.line if self._general else Kind.THREAD
        learned = self._learned.get(task)
        return Kind.THREAD if learned is None else learned.line

    def batch_of(self, line: LineKey) -> Batch | None:
        """The size and time of batches in this line, if it is that of a batch handler."""
        return self._batches.get(line)

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
        try:
            return self._made_for(task)
        except Exception as error:  # noqa: BLE001 - a factory's error is reported as the attempt's
            return Handler(task, _raising(error))

    def _know_in_advance(self, task: str) -> None:
        try:
            self._made_for(task)
        except BadSetting:
            raise
        except Exception as error:  # noqa: BLE001 - another error of a factory is that of each attempt
            del error

    def _made_for(self, task: str) -> Handler | None:
        if self._factory is None or (made := self._factory(task)) is None:
            return None
        handler = made if isinstance(made, Handler) else Handler(task, made, *self._defaults)
        wrapped = self._wrapping.wrapped(handler)
        with self._making:
            if len(self._made) >= _MADE:
                del self._made[next(iter(self._made))]
            self._made[task] = wrapped
        self.learn(task, wrapped)
        return wrapped


class HandlerWrapping:
    """What is called around handlers: middleware, and for handlers in processes the way there."""

    def __init__(
        self,
        middleware: Iterable[AnyMiddleware] = (),
        *,
        outermost: Iterable[Middleware] = (),
        innermost: Iterable[Middleware] = (),
        children: Children | None = None,
        cancel: Callable[[Delivery], None] | None = None,
    ) -> None:
        """The first middleware is the outermost; only handlers in threads are wrapped in `outermost` and `innermost`.

        `innermost` is also called with the lists of batch handlers.
        Middleware that is `async def` is for `async def` handlers, all other for those in threads and processes.
        `children` run the handlers for processes; `cancel` ends the coroutine of a delivery.
        """
        self._given = tuple(middleware)
        single = [one for one in self._given if not isinstance(one, BatchMiddleware)]
        self._awaited = tuple(cast("AsyncMiddleware", one) for one in single if is_async(one))
        self._plain = tuple(cast("Middleware", one) for one in single if not is_async(one))
        self._of_batches = [one.call for one in self._given if isinstance(one, BatchMiddleware)]
        self._outermost = tuple(outermost)
        self._innermost = tuple(innermost)
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
        around = (*(self._outermost if self._plain else ()), *self._plain, *self._innermost)
        return replace(handler, call=wrapped(handler.call, around))

    def _in_batches(self, handler: Handler) -> Handler:
        awaited = handler.kind is Kind.ASYNCIO
        fitting = [one for one in self._of_batches if is_async(one) is awaited]
        self._check_fits(handler, fitting)
        if not awaited:
            return replace(handler, call=wrapped(handler.call, (*fitting, *self._innermost)))
        return replace(handler, call=wrapped_coroutine(handler.call, fitting), interrupt=self._cancel)

    def _around_coroutine(self, handler: Handler) -> AsyncCall:
        self._check_fits(handler, self._awaited)
        return wrapped_coroutine(handler.call, self._awaited)

    def _in_child(self, handler: Handler) -> Handler:
        self._check_fits(handler, self._plain)
        children, address = self._children, handler.address
        if children is None or address is None:
            message = f"{handler.name} is for a process, and this dispatcher has none: .processes(4), for example"
            raise BadSetting(message)
        children.expect(address)
        call = wrapped(lambda delivery: children.call(address, delivery), self._plain)
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


def _raising(error: Exception) -> Call:
    def fail(_: Delivery) -> object:
        raise error

    return fail
