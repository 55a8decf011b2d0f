"""Tasks: a call of one is sent as a message, and a worker makes the call. Both use the same name for the task."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Final, Generic, ParamSpec, TypeVar

from astyqueue.dispatch.handlers import TASK, Handler, refuse_unfinished
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput, NotFound
from astyqueue.model.message import Message
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.producing.producer import SendReport, Sent
from astyqueue.queue.queue import MessageQueue
from astyqueue.tasks.signature import Call, arguments_of

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
_log: Final = logging.getLogger("astyqueue.tasks")
_running: Final[ContextVar[Delivery]] = ContextVar("astyqueue.delivery")


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The name, queue and execution options of a task; None: the queue's setting.

    `timeout` is how long the lease of a message is renewed while the task runs.
    """

    name: str
    queue: str
    max_attempts: int | None = None
    timeout: Duration | None = None


class Task(Generic[P, R_co]):
    """A function of an app. Calling it runs it in this thread; `send` lets a worker run it.

    Arguments travel as JSON: text, numbers, booleans, None, lists and dicts arrive unchanged; a tuple arrives as a list
    and a pydantic model as a dict. A direct call returns the task's result; a worker drops it. A worker runs an `async
    def` task in an event loop of its own, in the handler's thread.
    """

    __name__: str

    def __init__(
        self, function: Callable[P, R_co], options: TaskOptions, opened: Callable[[str], MessageQueue]
    ) -> None:
        """Use `app.task`."""
        functools.update_wrapper(self, function)
        self.options = options
        self._function = function
        self._signature = inspect.signature(function)
        self._opened = opened

    @property
    def name(self) -> str:
        """The name in the header "task" of its messages."""
        return self.options.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function in this thread; nothing is sent."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        """Its name and queue."""
        return f"<task {self.name}, sent to queue {self.options.queue}>"

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send a call with these arguments to a worker; it is stored when this returns.

        TypeError for arguments that the function does not take, BadInput for one without a JSON form; nothing is sent
        then.
        """
        return self.using().send(*args, **kwargs)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[P]:
        """Make a call with these arguments for `send_many`, checked as by `send`."""
        call: Call[P] = Call(self.name, args, kwargs)
        call.check(self._signature)
        return call

    def send_many(self, calls: Iterable[Call[P]]) -> SendReport:
        """Send many calls of this task in bounded memory.

        For example `welcome.send_many(welcome.call(one) for one in addresses)`.
        """
        return self.using().send_many(calls)

    def using(
        self,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        key: str | None = None,
        unique: str | None = None,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        expires: Duration | datetime | None = None,
        lease: Duration | None = None,
        max_attempts: int | None = None,
    ) -> Sending[P]:
        """This task with options for its message.

        For example `welcome.using(delay="10m", key="welcome:ada").send("ada@example.org")`.

        The options are those of `MessageQueue.send`; `max_attempts` overrides the task's, which overrides the queue's.
        """
        if headers and TASK in headers:
            message = f"the header {TASK!r} is reserved for the name of the task: give yours another name"
            raise BadInput(message)
        named = {**(headers or {}), TASK: self.name}
        attempts = self.options.max_attempts if max_attempts is None else max_attempts
        options = Message(None, key, delay, at, priority, named, expires, lease, attempts, unique)
        return Sending(self, options, lambda: self._opened(self.options.queue))

    @property
    def handler(self) -> Handler:
        """The handler of its messages in a worker."""
        timeout = self.options.timeout
        return Handler(self.name, self._handle, None if timeout is None else as_microseconds(timeout))

    def _handle(self, delivery: Delivery) -> None:
        """Make the call that a delivery carries."""
        args, kwargs = arguments_of(delivery.body)
        with running(delivery):
            result: object = self._function(*args, **kwargs)  # type: ignore[arg-type]  # the call checks them
            if result is None:
                return
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            refuse_unfinished(result)
        if result is not None:
            _log.debug("dropped the result of task=%s id=%s: workers return no results", self.name, delivery.message_id)


class Sending(Generic[P]):
    """A task with options for its messages; it may be used more than once."""

    def __init__(self, task: Task[P, object], options: Message, opened: Callable[[], MessageQueue]) -> None:
        """Use `task.using(...)`."""
        self._task = task
        self._options = options
        self._opened = opened

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send a call with these options; see `Task.send`."""
        return self._opened().send(self.message(*args, **kwargs))

    def message(self, *args: P.args, **kwargs: P.kwargs) -> Message:
        """The message that `send` would send; nothing is sent."""
        return self._message(self._task.call(*args, **kwargs))

    def send_many(self, calls: Iterable[Call[P]]) -> SendReport:
        """Send many calls, each with these options; see `Task.send_many`."""
        return self._opened().send_many(self._messages(calls))

    def _messages(self, calls: Iterable[Call[P]]) -> Iterator[Message]:
        for call in calls:
            if call.task != self._task.name:
                message = f"a call of task {call.task} was given to task {self._task.name}: send it with its own task"
                raise BadInput(message)
            yield self._message(call)

    def _message(self, call: Call[P]) -> Message:
        return replace(self._options, body=call.body)


def name_of(function: Callable[..., object]) -> str:
    """The module and the qualified name of a function, as in a worker that imports the module."""
    module = function.__module__
    if module == "__main__":
        module = _imported_as(sys.modules[module])
    return f"{module}.{function.__qualname__}"


def _imported_as(main: ModuleType) -> str:
    """The import name of the main module: from its spec after `python -m`, else from the path of the script."""
    if main.__spec__ is not None:
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    return _dotted(Path(file).resolve()) if file else main.__name__


def _dotted(file: Path) -> str:
    """The name of the module in this file, imported from the current directory, or else from the file's own."""
    here = Path.cwd().resolve()
    inside = file.relative_to(here) if file.is_relative_to(here) else Path(file.name)
    return ".".join(inside.with_suffix("").parts)


def current_delivery() -> Delivery:
    """The delivery of the running task: its id, attempt, headers, `extend()` and so on.

    Works in `def` and `async def` tasks and in functions they call, in the same thread. NotFound where no task runs for
    a message, as in a task that was called directly.
    """
    try:
        return _running.get()
    except LookupError as error:
        message = "no task runs for a message here: the task was called directly, or this is not the task's own thread"
        raise NotFound(message) from error


@contextmanager
def running(delivery: Delivery) -> Iterator[None]:
    """Make this the current delivery inside the block."""
    token = _running.set(delivery)
    try:
        yield
    finally:
        _running.reset(token)
