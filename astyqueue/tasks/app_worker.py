"""The worker of an app: its options, the queues that it serves, and the tasks that it runs for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict, TypeVar

from astyqueue.clock import Clock
from astyqueue.dispatch.builder import THREADS, DispatcherBuilder
from astyqueue.dispatch.handlers.middleware import AnyMiddleware
from astyqueue.dispatch.pools import BLOCKED_AFTER, IN_FLIGHT
from astyqueue.dispatch.queue_patterns import QueueLimits, is_pattern
from astyqueue.durations import Duration
from astyqueue.errors import BadSetting
from astyqueue.queue.queue import MessageQueue
from astyqueue.store import Store
from astyqueue.tasks.base_app import AppRuntime

D = TypeVar("D")


class WorkerOptions(TypedDict, total=False):
    """The options of `app.worker`.

    With None, `limits`, `prefetch`, `processes`, `max_messages_per_child`, `max_child_rss`, `max_messages` and
    `max_stuck` have their default. At most `concurrency` plain tasks run at a time, in threads that all queues share
    (Default: 8). At most `coroutines` `async def` tasks are in flight (Default: 1000); one that keeps the event loop
    for longer than `blocked_after` (Default: 1 s) is named in the log. `processes` child processes run the tasks of
    that kind (Default: one for each processor). Each is replaced after `max_messages_per_child`, and when it has more
    than `max_child_rss` bytes in memory after a message (Default: neither). `limits` are how many messages of a queue
    this worker has at the same time, whatever the kinds of their tasks, by name or pattern: `{"mail": 5, "sms.*": 2}`.
    `prefetch` is how many messages of each queue it claims ahead, before a thread is free for them (Default: as many as
    quick tasks need, and none beside slow ones).

    `middleware` wraps every task as `fn(delivery, call_next)`, the first outermost and around all of it that of the
    app; for `async def` tasks it is `async def` too, and for tasks with `batch` it is a `BatchMiddleware`. With
    `schedules=False` the worker neither stores nor fires schedules (Default: both). It ends after `max_messages`, and
    with HandlersStuck when `max_stuck` handlers are past their timeout.
    """

    limits: Mapping[str, int] | None
    prefetch: int | None
    concurrency: int
    coroutines: int
    blocked_after: Duration
    processes: int | None
    max_messages_per_child: int | None
    max_child_rss: int | None
    middleware: Iterable[AnyMiddleware]
    schedules: bool
    max_messages: int | None
    max_stuck: int | None


def serve(
    app: AppRuntime,
    builder: DispatcherBuilder[D],
    queues: Mapping[str, int] | Iterable[str] | None,
    *,
    limits: Mapping[str, int] | None = None,
    prefetch: int | None = None,
    concurrency: int = THREADS,
    coroutines: int = IN_FLIGHT,
    blocked_after: Duration = BLOCKED_AFTER,
    processes: int | None = None,
    max_messages_per_child: int | None = None,
    max_child_rss: int | None = None,
    middleware: Iterable[AnyMiddleware] = (),
    schedules: bool = True,
    max_messages: int | None = None,
    max_stuck: int | None = None,
) -> DispatcherBuilder[D]:
    """Give a builder these queues, their tasks and the options; with `schedules`, those of each queue are stored."""
    if not isinstance(schedules, bool):
        message = f"schedules is {schedules!r}: give True or False"
        raise BadSetting(message)
    weights = app.weights_of(queues)
    limited = QueueLimits(limits or {})
    limited.check_served(weights)
    directory = _Directory(app, fires=schedules)
    for name, weight in weights.items():
        if is_pattern(name):
            builder.queues(name, directory, weight=weight, backlog=prefetch, limit=limited.of)
            builder.handlers(app.handler_of, tasks=app.tasks)
        else:
            builder.queue(directory.queue(name), weight=weight, backlog=prefetch, limit=limited.of(name))
            builder.handlers(app.handler_of, tasks=app.tasks_of(name))
    builder.threads(concurrency).coroutines(coroutines, blocked_after=blocked_after)
    builder.middleware(*app.middleware, *middleware)
    if app.has_tasks_for_processes:
        builder.processes(
            processes,
            max_tasks_per_child=max_messages_per_child,
            max_rss=max_child_rss,
            environment=app.environment,
        )
    if max_messages is not None:
        builder.max_messages(max_messages)
    if max_stuck is not None:
        builder.max_stuck(max_stuck)
    return builder


class _Directory:
    """The queues of an app's store, for a worker: opened, and with the schedules that the app declares."""

    def __init__(self, app: AppRuntime, *, fires: bool) -> None:
        """With `fires`, the worker fires the schedules of these queues."""
        self._app = app
        self._fires = fires

    @property
    def clock(self) -> Clock:
        """The clock of the queues."""
        return self._app.connected().clock

    @property
    def store(self) -> Store:
        """The store that the queues are in."""
        return self._app.connected().store

    def queues(self) -> list[str]:
        """The names of all queues in the store."""
        return self._app.connected().queues()

    def queue(self, name: str) -> MessageQueue:
        """The queue of this name, created if it is new; one that was dropped since it was opened is opened anew."""
        return self._opened(name)

    def existing_queue(self, name: str) -> MessageQueue:
        """The same, but NotFound for a queue that the store does not have."""
        return self._opened(name, existing=True)

    def release(self, queue: MessageQueue) -> None:
        """Leave it open: the app has it for its sends."""

    def _opened(self, name: str, *, existing: bool = False) -> MessageQueue:
        queue = self._app.open(name, existing=existing)
        if queue.core.settings_sync.gone:
            queue = self._app.open_again(name, existing=existing)
        if self._fires:
            self._app.schedules.reconcile(queue)
        else:
            queue.core.fire_nothing()
        return queue
