"""Handlers of messages: functions, the kind of each, and how one is called.

A handler is of one kind: it runs in a thread, as a coroutine on an event loop, or in a process of its own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from astyqueue.dispatch.handlers.import_path import import_path_of
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
        """BadSetting for a function that cannot run so: its messages would be acked undone, or no process finds it.

        Also for a timeout of 0.
        """
        refuse_no_time(self.timeout)
        kind = kind_of(self.call, self.kind)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "line", f"batch {self.name}" if self.batch else kind)
        if self.batch is not None:
            refuse_batches_in_processes(self.call, kind)
        if kind is Kind.PROCESS and self.address is None:
            object.__setattr__(self, "address", import_path_of(self.call))


Factory = Callable[[str], Handler | Call | AsyncCall | None]


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


def refuse_no_time(timeout: int | None) -> None:
    """BadSetting for a timeout of 0: each message would have failed as soon as its handler began."""
    if timeout == 0:
        message = "a timeout of 0 leaves a handler no time: give a longer one, or leave it out"
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
