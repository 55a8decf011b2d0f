"""A function that can be sent: its call becomes a message, and a worker makes the call."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Generic, ParamSpec, TypeVar

from astyqueue.dispatch.handlers import TASK, Handler, refuse_unfinished
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput
from astyqueue.model.outgoing import Message
from astyqueue.queue.delivery import Delivery
from astyqueue.queue.producer import SendReport, Sent
from astyqueue.queue.queue import MessageQueue
from astyqueue.tasks.calls import Call, arguments_of
from astyqueue.tasks.current import running

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
_log: Final = logging.getLogger("astyqueue.tasks")


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What a task is called, where its messages go, and how they are worked on; None leaves it to the queue.

    `timeout` is how long the lease of a message is renewed while the task runs.
    """

    name: str
    queue: str
    max_attempts: int | None = None
    timeout: Duration | None = None


class Task(Generic[P, R_co]):
    """A function of an app. Calling it runs it here and now; `send` has a worker run it.

    Arguments travel as JSON: text, numbers, booleans, None, lists and dicts arrive as they were; a tuple arrives as a list
    and a pydantic model as a dict. What a task returns goes to whoever calls it directly; a worker has nobody to give it
    to and drops it. An `async def` task is run by a worker in an event loop of its own, in the handler's thread.
    """

    __name__: str

    def __init__(self, function: Callable[P, R_co], options: TaskOptions, opened: Callable[[str], MessageQueue]) -> None:
        """Use `app.task`."""
        functools.update_wrapper(self, function)
        self.options = options
        self._function = function
        self._signature = inspect.signature(function)
        self._opened = opened

    @property
    def name(self) -> str:
        """What its messages call it."""
        return self.options.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function here and now; nothing is sent."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        """Its name and where it is sent."""
        return f"<task {self.name}, sent to queue {self.options.queue}>"

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Have a worker run it with these arguments; not lost any more when this returns.

        Arguments that the function does not take raise TypeError, one that has no JSON form BadInput; nothing is sent then.
        """
        return self.using().send(*args, **kwargs)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[P]:
        """A call with these arguments, checked as `send` does, for `send_many`."""
        call: Call[P] = Call(self.name, args, kwargs)
        call.check(self._signature)
        return call

    def send_many(self, calls: Iterable[Call[P]]) -> SendReport:
        """Send many calls of this task in bounded memory: `welcome.send_many(welcome.call(one) for one in addresses)`."""
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
        """This task with options for its message: `welcome.using(delay="10m", key="welcome:ada").send("ada@example.org")`.

        The options are those of `MessageQueue.send`; `max_attempts` beats the task's own, which beats the queue's.
        """
        if headers and TASK in headers:
            message = f"the header {TASK!r} of a task's message is its task: give yours another name"
            raise BadInput(message)
        named = {**(headers or {}), TASK: self.name}
        attempts = self.options.max_attempts if max_attempts is None else max_attempts
        options = Message(None, key, delay, at, priority, named, expires, lease, attempts, unique)
        return Sending(self, options, lambda: self._opened(self.options.queue))

    @property
    def handler(self) -> Handler:
        """What a worker runs for its messages."""
        timeout = self.options.timeout
        return Handler(self.name, self._handle, None if timeout is None else as_microseconds(timeout))

    def _handle(self, delivery: Delivery) -> None:
        """Make the call that a delivery carries."""
        args, kwargs = arguments_of(delivery.body)
        with running(delivery):
            result: object = self._function(*args, **kwargs)  # type: ignore[arg-type]  # they come from a message: others than it takes are a failed attempt
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            refuse_unfinished(result)
        if result is not None:
            _log.debug("dropped the result of task=%s id=%s: a worker has nobody to give it to", self.name, delivery.message_id)


class Sending(Generic[P]):
    """A task with options for its messages; it may be used more than once."""

    def __init__(self, task: Task[P, object], options: Message, opened: Callable[[], MessageQueue]) -> None:
        """Use `task.using(...)`."""
        self._task = task
        self._options = options
        self._opened = opened

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """As `task.send`, with these options."""
        return self._opened().send(self.message(*args, **kwargs))

    def message(self, *args: P.args, **kwargs: P.kwargs) -> Message:
        """The message that `send` would send; nothing is sent."""
        return self._message(self._task.call(*args, **kwargs))

    def send_many(self, calls: Iterable[Call[P]]) -> SendReport:
        """As `task.send_many`, each with these options."""
        return self._opened().send_many(self._messages(calls))

    def _messages(self, calls: Iterable[Call[P]]) -> Iterator[Message]:
        for call in calls:
            if call.task != self._task.name:
                message = f"a call of task {call.task} was among those to send to {self._task.name}: send it with its own task"
                raise BadInput(message)
            yield self._message(call)

    def _message(self, call: Call[P]) -> Message:
        return replace(self._options, body=call.body)
