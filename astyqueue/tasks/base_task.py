"""What a task is, whatever sends its calls: a function, the name of its messages, and how a worker runs it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, cast

from astyqueue.dispatch.handlers.handler import (
    TASK,
    Batch,
    Handler,
    Kind,
    kind_of,
    refuse_batches_in_processes,
    refuse_unfinished,
    wanted_kind,
)
from astyqueue.dispatch.handlers.import_path import import_path_of, imported_name
from astyqueue.dispatch.processes.forwarded_delivery import ForwardedDelivery
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import AlreadySettled, BadInput, LeaseLost, NotFound
from astyqueue.model.message import Message
from astyqueue.model.validation import check_several
from astyqueue.queue.delivery.base_delivery import BaseDelivery, running, running_delivery
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.tasks.batched_call import ONE_ARGUMENT, CallInBatch, check_batch_function, readable_calls
from astyqueue.tasks.signature import Call, arguments_of

if TYPE_CHECKING:
    from astyqueue.aio.delivery import Delivery as AwaitedDelivery

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
_log: Final = logging.getLogger("astyqueue.tasks")
#: Whether this code runs for a batch.
_batch_runs: Final[ContextVar[bool]] = ContextVar("astyqueue.batch", default=False)


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The name, queue and execution options of a task; None: the queue's setting.

    `timeout` is how long the lease of a message is renewed while the task runs. `kind` is what runs it. With `batch`,
    a size and a time, it runs for many messages at once.
    """

    name: str
    queue: str
    max_attempts: int | None = None
    timeout: Duration | None = None
    kind: str | None = None
    batch: tuple[int, Duration] | None = None


class BaseTask(Generic[P, R_co]):
    """A function of an app, by the name that its messages have."""

    __name__: str

    def __init__(self, function: Callable[P, R_co], options: TaskOptions) -> None:
        """Use `app.task`."""
        functools.update_wrapper(self, function)
        self.options = options
        self._function = function
        self._kind = kind_of(function, wanted_kind(options.kind))
        self._batch = Batch.wanted(options.batch)
        self._signature = inspect.signature(function)
        if self._batch is not None:
            refuse_batches_in_processes(function, self._kind)
            check_batch_function(options.name, self._signature)
            self._signature = ONE_ARGUMENT

    @property
    def name(self) -> str:
        """The name in the header "task" of its messages."""
        return self.options.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function in this thread; nothing is sent. One that handles batches gets a batch of this call."""
        if self._batch is not None:
            argument = self._signature.bind(*args, **kwargs).args[0]
            return self._on_batch([CallInBatch(argument)])
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        """Its name and queue."""
        return f"<task {self.name}, sent to queue {self.options.queue}>"

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[P]:
        """Make a call with these arguments for `send_many`, checked as by `send`."""
        call: Call[P] = Call(self.name, args, kwargs)
        call.check(self._signature)
        return call

    def message(self, *args: P.args, **kwargs: P.kwargs) -> Message:
        """The message that `send` would send; nothing is sent."""
        plain = Message(None, headers=self.labelled(None), max_attempts=self.options.max_attempts)
        return BaseSending(self, plain).message(*args, **kwargs)

    def labelled(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        """These headers and the name of this task; BadInput if there is another name among them."""
        if headers and TASK in headers:
            message = f"the header {TASK!r} is reserved for the name of the task: give yours another name"
            raise BadInput(message)
        return {**(headers or {}), TASK: self.name}

    @property
    def kind(self) -> Kind:
        """What runs it in a worker."""
        return self._kind

    @property
    def handler(self) -> Handler:
        """The handler of its messages in a worker. BadSetting if it is for processes, and none could import it."""
        timeout = None if self.options.timeout is None else as_microseconds(self.options.timeout)
        if self._batch is not None:
            handle = self._handle_batch_awaited if self._kind is Kind.ASYNCIO else self._handle_batch
            return Handler(self.name, handle, timeout, batch=self._batch)
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
            refuse_unfinished(result)
        self._drop(result, delivery)

    async def _handle_awaited(self, delivery: BaseDelivery) -> None:
        args, kwargs = arguments_of(delivery.body)
        with running(delivery):
            result: object = await self._function(*args, **kwargs)  # type: ignore[arg-type,misc]  # the call checks them, and it is async
            refuse_unfinished(result)
        self._drop(result, delivery)

    def _on_batch(self, calls: list[CallInBatch[Any, Any]]) -> R_co:
        return cast("Callable[[list[CallInBatch[Any, Any]]], R_co]", self._function)(calls)

    def _handle_batch(self, deliveries: list[Delivery]) -> None:
        """Run the function for the calls that these deliveries carry; another body is rejected apart."""
        calls, wrong = readable_calls(deliveries)
        for delivery, reason in wrong:
            with contextlib.suppress(LeaseLost, AlreadySettled):
                delivery.reject(reason)
        if not calls:
            return
        with _in_batch():
            result = self._on_batch(calls)
        if result is not None:
            refuse_unfinished(result)
            self._drop(result, deliveries[0])

    async def _handle_batch_awaited(self, deliveries: list[AwaitedDelivery]) -> None:
        calls, wrong = readable_calls(deliveries)
        for delivery, reason in wrong:
            with contextlib.suppress(LeaseLost, AlreadySettled):
                await delivery.reject(reason)
        if calls:
            with _in_batch():
                result: object = await cast("Awaitable[object]", self._on_batch(calls))
            refuse_unfinished(result)
            self._drop(result, deliveries[0])

    def _drop(self, result: object, delivery: BaseDelivery) -> None:
        if result is not None:
            _log.debug("dropped the result of task=%s id=%s: workers return no results", self.name, delivery.message_id)


class BaseSending(Generic[P]):
    """A task with options for its messages; it may be used more than once."""

    def __init__(self, task: BaseTask[P, object], options: Message) -> None:
        """Use `task.using(...)`."""
        self._task = task
        self._options = options

    def message(self, *args: P.args, **kwargs: P.kwargs) -> Message:
        """The message that `send` would send; nothing is sent."""
        return self._message(self._task.call(*args, **kwargs))

    def _messages(self, calls: Iterable[Call[P]]) -> Iterator[Message]:
        name = self._task.name
        what, how = f"send_many sends several calls of task {name}", f"give a list or a generator of {name}.call(...)"
        for call in check_several(calls, what, f"{how}, or send one by send"):
            if not isinstance(call, Call):
                message = f"{what}, but there is one {type(call).__name__} among them: {how}"
                raise BadInput(message)
            if call.task != name:
                message = f"a call of task {call.task} was given to task {name}: send it with its own task"
                raise BadInput(message)
            yield self._message(call)

    def _message(self, call: Call[P]) -> Message:
        return replace(self._options, body=call.body)

    def _leaves_queue_of(self, delivery: BaseDelivery) -> bool:
        """Whether a follow-up of this delivery goes to another queue; BadInput for one in a child process, if so."""
        name, queue = self._task.name, self._task.options.queue
        leaves = delivery.message_id.queue != queue
        if leaves and isinstance(delivery, ForwardedDelivery):
            message = (
                f"a task in a process sends follow-ups to its own queue only, and {name} has queue {queue}: "
                'run this task with kind="thread", or use send, which does not wait for the ack'
            )
            raise BadInput(message)
        return leaves


def name_of(function: Callable[..., object]) -> str:
    """The module and the qualified name of a function, as in a worker that imports the module."""
    return f"{imported_name(function.__module__)}.{function.__qualname__}"


@contextlib.contextmanager
def _in_batch() -> Iterator[None]:
    token = _batch_runs.set(True)
    try:
        yield
    finally:
        _batch_runs.reset(token)


def delivery_of_running_task() -> BaseDelivery:
    """The delivery of the running task, whether its calls are awaited or not; NotFound where there is not just one."""
    if _batch_runs.get():
        message = (
            "a batch has no current delivery, each call has its own: use call.delivery; a follow-up is "
            "call.delivery.then(task.message(...)), with queue= for another queue"
        )
        raise NotFound(message)
    return running_delivery()


def current_delivery() -> Delivery:
    """The delivery of the running task: its id, attempt, headers, `extend()` and so on.

    Works in tasks and in functions they call, in the same thread. In an `async def` task what settles it is awaited:
    `astyqueue.aio.current_delivery()` is the same delivery with that type. NotFound where no task runs for a message,
    as in a task that was called directly, and in one that handles batches.
    """
    return cast("Delivery", delivery_of_running_task())
