"""Tasks: a call of one is sent as a message, and a worker makes the call. Both use the same name for the task."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Generic, ParamSpec, TypeVar, cast

from astyqueue.dispatch.handlers import TASK, Handler, Kind, kind_of, refuse_unfinished, wanted_kind
from astyqueue.dispatch.import_path import import_path_of, imported_name
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput
from astyqueue.model.message import Message
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.current_delivery import running, running_delivery
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.producing.producer import SendReport, Sent
from astyqueue.queue.queue import MessageQueue
from astyqueue.tasks.signature import Call, arguments_of

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
_log: Final = logging.getLogger("astyqueue.tasks")


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The name, queue and execution options of a task; None: the queue's setting.

    `timeout` is how long the lease of a message is renewed while the task runs. `kind` is what runs it.
    """

    name: str
    queue: str
    max_attempts: int | None = None
    timeout: Duration | None = None
    kind: str | None = None


class Task(Generic[P, R_co]):
    """A function of an app. Calling it runs it in this thread; `send` lets a worker run it.

    Arguments travel as JSON: text, numbers, booleans, None, lists and dicts arrive unchanged; a tuple arrives as a list
    and a pydantic model as a dict. A direct call returns the task's result; a worker drops it. A worker runs `async
    def` tasks on one event loop, in a thread of its own.
    """

    __name__: str

    def __init__(
        self, function: Callable[P, R_co], options: TaskOptions, opened: Callable[[str], MessageQueue]
    ) -> None:
        """Use `app.task`."""
        functools.update_wrapper(self, function)
        self.options = options
        self._function = function
        self._kind = kind_of(function, wanted_kind(options.kind))
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

    def then(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send a call with these arguments when the running task is acked, and only then: see `Delivery.then`.

        NotFound where no task runs for a message.
        """
        self.using().then(*args, **kwargs)

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
    def kind(self) -> Kind:
        """What runs it in a worker."""
        return self._kind

    @property
    def handler(self) -> Handler:
        """The handler of its messages in a worker. BadSetting if it is for processes, and none could import it."""
        timeout = None if self.options.timeout is None else as_microseconds(self.options.timeout)
        if self._kind is Kind.ASYNCIO:
            return Handler(self.name, self._handle_awaited, timeout)
        address = import_path_of(self) if self._kind is Kind.PROCESS else None
        return Handler(self.name, self._handle, timeout, kind=self._kind, address=address)

    def _handle(self, delivery: Delivery) -> None:
        """Make the call that a delivery carries."""
        args, kwargs = arguments_of(delivery.body)
        with running(delivery):
            result: object = self._function(*args, **kwargs)  # type: ignore[arg-type]  # the call checks them
            if result is None:
                return
            if inspect.iscoroutine(result):  # of a plain function, so it is not known before the call
                result = asyncio.run(result)
            refuse_unfinished(result)
        self._drop(result, delivery)

    async def _handle_awaited(self, delivery: BaseDelivery) -> None:
        args, kwargs = arguments_of(delivery.body)
        with running(delivery):
            result: object = await self._function(*args, **kwargs)  # type: ignore[arg-type,misc]  # the call checks them, and it is async
            refuse_unfinished(result)
        self._drop(result, delivery)

    def _drop(self, result: object, delivery: BaseDelivery) -> None:
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

    def then(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send a call with these options when the running task is acked; see `Task.then`."""
        delivery = current_delivery()
        queue = None if delivery.message_id.queue == self._task.options.queue else self._opened()
        delivery.then(self.message(*args, **kwargs), queue=queue)

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
    return f"{imported_name(function.__module__)}.{function.__qualname__}"


def current_delivery() -> Delivery:
    """The delivery of the running task: its id, attempt, headers, `extend()` and so on.

    Works in tasks and in functions they call, in the same thread. In an `async def` task what settles it is awaited:
    `astyqueue.aio.current_delivery()` is the same delivery with that type. NotFound where no task runs for a message,
    as in a task that was called directly.
    """
    return cast("Delivery", running_delivery())
