# Written by `make aio` from astyqueue/tasks/task.py: change that, or tools/async_classes/twins.py.
"""Tasks of asyncio: a call of one is sent as a message, and a worker makes the call. Both know the task by its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import ParamSpec, TypeVar

from astyqueue.aio.queue import MessageQueue
from astyqueue.durations import Duration
from astyqueue.model.message import Message
from astyqueue.queue.producing.producer import SendReport, Sent
from astyqueue.tasks.base_task import BaseSending, BaseTask, TaskOptions, current_delivery
from astyqueue.tasks.signature import Call
from astyqueue.tasks.task import Task as Blocking

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Task(BaseTask[P, R_co]):
    """A function of an app. Calling it runs it; `await task.send(...)` lets a worker run it.

    `task.blocking.send(...)` does so in `def` tasks and other code outside of event loops.

    Arguments travel as JSON: text, numbers, booleans, None, lists and dicts arrive unchanged; a tuple arrives as a list
    and a pydantic model as a dict. A direct call returns the task's result; a worker drops it. A worker runs `async
    def` tasks on one event loop, in a thread of its own.
    """

    def __init__(
        self,
        function: Callable[P, R_co],
        options: TaskOptions,
        opened: Callable[[str], Awaitable[MessageQueue]],
        blocking: Blocking[P, R_co],
    ) -> None:
        """Use `app.task`."""
        super().__init__(function, options)
        #: The same task for threads.
        self.blocking = blocking
        self._opened = opened

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send a call with these arguments to a worker; it is stored when this returns.

        TypeError for arguments that the function does not take, BadInput for one without a JSON form; nothing is sent
        then.
        """
        return await self.using().send(*args, **kwargs)

    async def then(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send a call with these arguments when the running task is acked, and only then: see `Delivery.then`.

        NotFound where no task runs for a message, and in a batch, where each call has a delivery. BadInput in a child
        process if the task has another queue.
        """
        await self.using().then(*args, **kwargs)

    async def send_many(self, calls: Iterable[Call[P]]) -> SendReport:
        """Send many calls of this task in bounded memory.

        For example `welcome.send_many(welcome.call(one) for one in addresses)`.
        """
        return await self.using().send_many(calls)

    def using(
        self,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        key: str | None = None,
        group: str | None = None,
        unique: str | None = None,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        expires: Duration | datetime | None = None,
        lease: Duration | None = None,
        max_attempts: int | None = None,
    ) -> Sending[P]:
        """This task with options for its message.

        For example `welcome.using(delay="10m", key="welcome:ada").send("ada@example.org")`.

        The options are those of `MessageQueue.send` but for `trigger`, `misfire` and `overlap`. `max_attempts`
        overrides the task's, which overrides the queue's.
        """
        named = self.labelled(headers)
        attempts = self.options.max_attempts if max_attempts is None else max_attempts
        options = Message(
            body=None,
            key=key,
            group=group,
            delay=delay,
            at=at,
            priority=priority,
            headers=named,
            expires=expires,
            lease=lease,
            max_attempts=attempts,
            unique=unique,
        )
        return Sending(self, options, self._opened)


class Sending(BaseSending[P]):
    """A task with options for its messages; it may be used more than once."""

    def __init__(
        self, task: BaseTask[P, object], options: Message, opened: Callable[[str], Awaitable[MessageQueue]]
    ) -> None:
        """Use `task.using(...)`."""
        super().__init__(task, options)
        self._opened = opened

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send a call with these options; see `Task.send`."""
        message = self.message(*args, **kwargs)
        queue = await self._opened(self._task.options.queue)
        return await queue.send(message)

    async def then(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send a call with these options when the running task is acked; see `Task.then`."""
        delivery = current_delivery()
        queue = await self._opened(self._task.options.queue) if self._leaves_queue_of(delivery) else None
        delivery.then(self.message(*args, **kwargs), queue=queue)

    async def send_many(self, calls: Iterable[Call[P]]) -> SendReport:
        """Send many calls, each with these options; see `Task.send_many`."""
        queue = await self._opened(self._task.options.queue)
        return await queue.send_many(self._messages(calls))
