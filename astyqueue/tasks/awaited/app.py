# Written by `make aio` from astyqueue/tasks/app.py: change that, or tools/async_classes/twins.py.
"""An app for tasks of an event loop: tasks, the queues they are sent to, and the store they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import ParamSpec, Self, TypeVar, Unpack, overload

from astyqueue.aio.queue import MessageQueue
from astyqueue.clock import Clock
from astyqueue.dispatch.asyncio_dispatcher import Dispatcher
from astyqueue.dispatch.handlers.middleware import AnyMiddleware
from astyqueue.durations import Duration
from astyqueue.observe import Observer
from astyqueue.queue.hooks import Hook
from astyqueue.schedules.reconcile import Instructions, Reconciled
from astyqueue.spool import GivenSpool, SpoolOptions
from astyqueue.tasks.app import App as Blocking
from astyqueue.tasks.app_worker import WorkerOptions, serve
from astyqueue.tasks.awaited.queues import AwaitedQueues
from astyqueue.tasks.awaited.task import Task
from astyqueue.tasks.base_app import DEFAULT_QUEUE
from astyqueue.tasks.base_task import BaseTask, TaskOptions, name_of
from astyqueue.tasks.batched_call import CallInBatch
from astyqueue.tasks.schedules import Timetable, options_of, policies_of
from astyqueue.tasks.task import Task as BlockingTask
from astyqueue.triggers import Cron, Every, Trigger, Triggers

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D")


class App:
    """Tasks whose sends are awaited, and their queues in one store, which is opened at the first send and not before.

    Default URL: the environment variable ASTYQUEUE_URL. Safe to use from many tasks. Closing it is optional: messages
    are in the store when `send` returns. With a spool they are on the local disk then: close the app at the end, else
    what was not forwarded yet waits there for the next process.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "app",
        release: int | str | None = None,
        clock: Clock | None = None,
        observers: Iterable[Observer] = (),
        hooks: Iterable[Hook] = (),
        middleware: Iterable[AnyMiddleware] = (),
        spool: GivenSpool | None = None,
    ) -> None:
        """Nothing is opened here; tests pass a `TimeMachine` as the clock. `observers` get the events of its queues.

        `hooks` are called at the sends and settles of its queues, and may refuse either; `middleware` wraps the tasks
        of each of its workers, as said at `WorkerOptions`. Both also in `astyqueue worker`.

        Give the app a name if several programs declare schedules for the same queues: each manages its own. `release`
        (Default: ASTYQUEUE_RELEASE) is a number that rises with each deploy, such as 42 or "1.10.0": the schedules of
        the highest release apply, and it removes those that it no longer declares.

        `spool` (Default: ASTYQUEUE_SPOOL, if set) is a folder of the local disk, or `SpoolOptions.of(folder, ...)`: no
        send waits for the store, and `unique=` raises BadInput.
        """
        blocking = Blocking(
            url=url,
            name=name,
            release=release,
            clock=clock,
            observers=tuple(observers),
            hooks=tuple(hooks),
            middleware=tuple(middleware),
            spool=spool,
        )
        #: What the app is, whatever its sends are.
        self.core = blocking.core
        #: The same app for threads: the same tasks, queues and store.
        self.blocking = blocking
        self._queues = AwaitedQueues(self.core)

    def __repr__(self) -> str:
        """Its name, the number of its tasks, its queues, and the store once it is open."""
        return f"<{type(self).__name__} {self.core}>"

    @property
    def name(self) -> str:
        """What separates its schedules from those of other programs."""
        return self.core.schedules.program

    @property
    def triggers(self) -> Triggers:
        """The triggers that its schedules may have; it knows those of this package."""
        return self.core.triggers

    @property
    def tasks(self) -> Mapping[str, BaseTask[..., object]]:
        """Its tasks, by name."""
        return self.core.tasks

    @property
    def url(self) -> str | None:
        """The URL of the store, or None; it may contain a password, so do not print it."""
        return self.core.url

    @url.setter
    def url(self, url: str) -> None:
        self.core.url = url

    @property
    def spool(self) -> SpoolOptions | None:
        """The spool that its tasks are sent into, or None; before the first send it may be set, as a folder too."""
        return self.core.spool

    @spool.setter
    def spool(self, spool: GivenSpool) -> None:
        self.core.spool = spool

    @property
    def queues(self) -> list[str]:
        """The queues that were declared or that a task is sent to, in that order; "default" if there are none."""
        return self.core.queues

    def queue(self, name: str, **settings: object) -> None:
        """Declare the settings of a queue: lease="5m", max_attempts=7, priorities=3 and so on.

        They apply to a new queue; an existing queue keeps its stored settings, which `astyqueue queues set` changes.
        """
        self.core.declare_queue(name, settings)

    @overload
    def task(self, function: Callable[P, R]) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        kind: str | None = None,
        batch: None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        kind: str | None = None,
        batch: tuple[int, Duration],
    ) -> Callable[[Callable[[list[CallInBatch[T, D]]], R]], Task[[T], R]]: ...
    def task(
        self,
        function: Callable[..., R] | None = None,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        kind: str | None = None,
        batch: tuple[int, Duration] | None = None,
    ) -> Task[..., R] | Callable[[Callable[..., R]], Task[..., R]]:
        """Make a function a task: `@app.task` or `@app.task(queue="emails", timeout="5m")`.

        `max_attempts` overrides the queue's. `timeout` is how long its lease is renewed while it runs: a task that runs
        longer has failed, and its message is retried or becomes a dead letter, although the thread may still run it.
        `async def` tasks share an event loop; with `kind="process"` a task runs in a child process, which is killed at
        the timeout. Messages carry the name (Default: `module.function`): keep it while any of them wait.

        With `batch=(100, "500ms")` a task runs for up to 100 calls at once, those that come within 500 ms after the
        first. The function gets a list of `BatchedCall`, each with the one `argument` of its call and its `delivery`;
        it may settle some of them, and returning or raising decides the others.
        """

        def made(function: Callable[P, R]) -> Task[P, R]:
            options = TaskOptions(
                name=name or name_of(function),
                queue=queue,
                max_attempts=max_attempts,
                timeout=timeout,
                kind=kind,
                batch=batch,
            )
            return self._add(function, options)

        return made if function is None else made(function)

    def _add(self, function: Callable[P, R], options: TaskOptions) -> Task[P, R]:
        task = Task(function, options, self.open, BlockingTask(function, options, self.core.open))
        self.core.add(task)
        return task

    def scheduled(
        self, trigger: Trigger, **how: Unpack[Timetable]
    ) -> Callable[[Callable[P, R] | Task[P, R]], Task[P, R]]:
        """A decorator that calls a function (or task) at each occurrence of a trigger; it returns the task."""
        policies = policies_of(how)

        def made(function: Callable[P, R] | Task[P, R]) -> Task[P, R]:
            task = (
                function
                if isinstance(function, Task)
                else self._add(function, options_of(function, how, DEFAULT_QUEUE))
            )
            self.core.schedules.declare(task, trigger, policies, how)
            return task

        return made

    def cron(
        self, expression: str, zone: str = "UTC", *, seconds: bool = False, **how: Unpack[Timetable]
    ) -> Callable[[Callable[P, R] | Task[P, R]], Task[P, R]]:
        """A decorator that calls a function by a cron expression: `@app.cron("0 9 * * mon-fri", "Europe/Paris")`."""
        return self.scheduled(Cron(expression, zone, seconds=seconds), **how)

    def every(
        self, interval: Duration, **how: Unpack[Timetable]
    ) -> Callable[[Callable[P, R] | Task[P, R]], Task[P, R]]:
        """A decorator that calls a function at fixed intervals, first when the schedule is made: `@app.every("5m")`."""
        return self.scheduled(Every(interval), **how)

    async def open(self, name: str = DEFAULT_QUEUE) -> MessageQueue:
        """Open the queue of this name in the app's store, and create it if it is new.

        The sends of its tasks and the workers of this app share it until the app is closed. If you close it, the next
        send opens it anew, and a worker that serves it ends.
        """
        return await self._queues.open(name)

    async def worker(
        self, queues: Mapping[str, int] | Iterable[str] | None = None, **options: Unpack[WorkerOptions]
    ) -> Dispatcher:
        """Make a dispatcher that runs the tasks of this app: `async with await app.worker():`, for example.

        Its `async def` tasks run in this event loop, all others as in a worker.

        The schedules that the app declares are stored now, and the dispatcher fires these and all others of its queues.

        `queues` are those to serve (Default: all that are declared or that a task is sent to), optionally with weights.
        They share the handler threads: while several have messages, each gets turns by its weight, and threads that one
        does not need serve the others. A shell-style pattern such as "mail.*" stands for the queues of the store that
        match, also those that are created later (they join within five seconds); every task of the app runs from them.

        The options are those of `WorkerOptions`. A message of a task that is unknown here is parked for a worker that
        knows it.
        """
        builder = await asyncio.to_thread(lambda: serve(self.core, Dispatcher.builder(), queues, **options))
        return await builder.build()

    async def reconcile(self, queue: MessageQueue, instructions: Instructions | None = None) -> Reconciled:
        """Store the schedules that this app declares for a queue; making a worker does this too."""
        return await asyncio.to_thread(self.core.schedules.reconcile, queue.blocking, instructions)

    async def reconcile_all(self, *, prune: bool = False, dry_run: bool = False) -> dict[str, Reconciled]:
        """Apply the declared schedules in every queue of the store, even if another release is current.

        Returns the results by queue. With `prune`, schedules that only other releases declared are removed; `dry_run`
        changes nothing.
        """
        return await asyncio.to_thread(self.core.reconcile_all, prune=prune, dry_run=dry_run)

    async def close(self) -> None:
        """Close the store; a later send raises Closed. A spool forwards what waits for a bounded time first."""
        await self._queues.close()

    async def __aenter__(self) -> Self:
        """Return the app; leaving the block closes it."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        await self.close()
