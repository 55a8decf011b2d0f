"""An app: tasks, the queues they are sent to, and the store they share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, ParamSpec, Self, TypeVar, overload

from astyqueue.clock import Clock
from astyqueue.dispatch.builder import THREADS
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.handlers import Handler, Middleware, refuse_generator
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput, BadSetting, Closed
from astyqueue.model.names import check_queue_name
from astyqueue.model.outgoing import Composer, Message
from astyqueue.model.settings import Settings
from astyqueue.queue.asked import check_names
from astyqueue.queue.connection import Connection, connect
from astyqueue.queue.queue import MessageQueue
from astyqueue.schedule.declared import Instructions, Reconciled
from astyqueue.tasks.declaring import DEFAULT_QUEUE, Declaring
from astyqueue.tasks.naming import name_of
from astyqueue.tasks.shares import shares
from astyqueue.tasks.task import Task, TaskOptions
from astyqueue.triggers import Triggers

P = ParamSpec("P")
R = TypeVar("R")

#: Where the app's store is when the app does not say.
URL_VARIABLE: Final = "ASTYQUEUE_URL"
#: The place of this deploy among the deploys of the app, when the app does not say.
RELEASE_VARIABLE: Final = "ASTYQUEUE_RELEASE"


class App(Declaring):
    """Tasks and their queues in one store, which is opened at the first send, never before.

    Without a URL the environment variable ASTYQUEUE_URL tells where the store is. Safe to use from many threads; close it
    when done, or leave that to the end of the process: what was sent is in the store.
    """

    def __init__(self, url: str | None = None, *, name: str = "app", release: int | str | None = None, clock: Clock | None = None) -> None:
        """Nothing is opened here; tests hand in a `TimeMachine` as the clock.

        Give the app a name when several programs declare schedules for the same queues: each looks after its own. `release`
        (without it ASTYQUEUE_RELEASE) is a number that rises with each deploy, such as 42 or "1.10.0": then the schedules of the
        highest release count, and it removes those that it no longer declares.
        """
        super().__init__(name, os.environ.get(RELEASE_VARIABLE) or None if release is None else release)
        self._clock = clock
        self.triggers = Triggers()
        self.tasks: dict[str, Task[..., object]] = {}
        self._url = url
        self._settings: dict[str, dict[str, object]] = {}
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._opened: dict[str, MessageQueue] = {}
        self._closed = False

    @property
    def url(self) -> str | None:
        """Where the store is, if it was said anywhere; it may hold a password, so do not print it."""
        return self._url or os.environ.get(URL_VARIABLE)

    @url.setter
    def url(self, url: str) -> None:
        if self._connection is not None:
            message = "this app has opened its store already: say which one before the first send"
            raise BadInput(message)
        self._url = url

    def _named_store(self) -> str:
        if not self.url:
            message = f'this app has no store: say App("sqlite:///work.db"), for example, or set {URL_VARIABLE}'
            raise BadSetting(message)
        return self.url

    @property
    def queues(self) -> list[str]:
        """The queues that were declared or that a task is sent to, in that order; "default" if there are none."""
        return list(self._settings) or [DEFAULT_QUEUE]

    def queue(self, name: str, **settings: object) -> None:
        """Declare the settings of a queue: lease="5m", max_attempts=7, priorities=3 and so on.

        They count when the queue is new; a queue that exists keeps its stored ones, which `astyqueue queues set` changes.
        """
        check_queue_name(name)
        check_names(settings)
        if self._settings.get(name):
            message = f"queue {name!r} was declared before with other settings: declare it once"
            raise BadInput(message)
        self._settings[name] = settings

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
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(
        self,
        function: Callable[P, R] | None = None,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
    ) -> Task[P, R] | Callable[[Callable[P, R]], Task[P, R]]:
        """Make a function a task: `@app.task` or `@app.task(queue="emails", timeout="5m")`.

        `max_attempts` beats that of the queue. `timeout` is how long its lease is renewed while it runs: one that runs longer
        has failed, and its message is tried again or becomes a dead letter, although the thread may still be busy with it.
        The name defaults to `module.function` and is what its messages carry: keep it, or give it, when you move the function
        while messages are waiting.
        """

        def made(function: Callable[P, R]) -> Task[P, R]:
            return self._add(function, TaskOptions(name or name_of(function), queue, max_attempts, timeout))

        return made if function is None else made(function)

    def _add(self, function: Callable[P, R], options: TaskOptions) -> Task[P, R]:
        if options.name in self.tasks:
            message = f"two tasks of this app are called {options.name!r}: give one of them another, @app.task(name=...)"
            raise BadInput(message)
        refuse_generator(function)
        if options.timeout is not None:
            as_microseconds(options.timeout)
        Composer(Settings(name=check_queue_name(options.queue)), 0).compose(None, Message(None, max_attempts=options.max_attempts))
        task = Task(function, options, self.open)
        self._settings.setdefault(options.queue, {})
        self.tasks[options.name] = task
        return task

    def open(self, name: str = DEFAULT_QUEUE) -> MessageQueue:
        """The queue of this name in the app's store, which is opened if it was not; it is created if it is new."""
        if found := self._opened.get(name):
            return found
        with self._lock:
            if name not in self._opened:
                self._opened[name] = self._connected().queue(name, **self._settings.get(name, {}))
            return self._opened[name]

    def _connected(self, *, create: bool = True) -> Connection:
        if self._closed:
            message = "this app was closed: make a new one to go on"
            raise Closed(message)
        if self._connection is None:
            self._connection = connect(self._named_store(), clock=self._clock, triggers=self.triggers, create=create)
        return self._connection

    def worker(
        self,
        queues: Mapping[str, int] | Iterable[str] | None = None,
        *,
        concurrency: int = THREADS,
        middleware: Iterable[Middleware] = (),
        schedules: bool = True,
        max_messages: int | None = None,
        max_stalled: int | None = None,
    ) -> Dispatcher:
        """A dispatcher that runs the tasks of this app: `run()` it, or `start()` and later `drain()` it.

        The schedules that the app declares are brought about now, and fired by it as those of other origin are; with
        `schedules=False` neither is done here.

        `queues` names those to serve (all that are declared or that a task is sent to, unless said), each with its weight or all alike;
        `concurrency` handler threads are shared out by weight, at least one each, and not lent from one queue to another.
        It ends after `max_messages`, if that is given, and with HandlersStuck when `max_stalled` handlers are past their timeout.
        Middleware is wrapped around every task as `fn(delivery, call_next)`, the first outermost. A message whose task is
        not known here is parked for a worker that knows it.
        """
        wanted = self.queues if queues is None else queues
        weights = dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted, 1)
        if unknown := sorted(set(weights) - {*self.queues, DEFAULT_QUEUE}):
            message = (
                f"this app has no queue {', '.join(map(repr, unknown))}, it has {', '.join(self.queues)}: declare it with app.queue(...)"
            )
            raise BadInput(message)
        builder = Dispatcher.builder()
        for name, threads in shares(weights, concurrency).items():
            queue = self.open(name)
            if schedules:
                self.reconcile(queue)
            else:
                queue.core.fire_nothing()
            builder.queue(queue, threads=threads).handlers(self._handler, tasks=self._tasks_of(name))
        if max_messages is not None:
            builder.max_messages(max_messages)
        if max_stalled is not None:
            builder.max_stalled(max_stalled)
        return builder.middleware(*middleware).build()

    def reconcile_all(self, *, prune: bool = False, dry_run: bool = False) -> dict[str, Reconciled]:
        """Have the schedules that this app declares count in every queue of its store, whichever release counted before; by queue.

        With `prune` those that any release declared and this one does not are removed; with `dry_run` nothing is changed.
        """
        there = set(self._connected(create=not dry_run).queues())
        instructions = Instructions(counts=True, prunes=prune, dry_run=dry_run)
        found: dict[str, Reconciled] = {}
        for name in sorted({*there, *self._declared}):
            created = name not in there
            declared = sorted(self._declared.get(name, {}))
            found[name] = Reconciled(current=True, saved=declared) if dry_run and created else self.reconcile(self.open(name), instructions)
        return found

    def _tasks_of(self, queue: str) -> list[str]:
        return [name for name, task in self.tasks.items() if task.options.queue == queue]

    def _handler(self, name: str) -> Handler | None:
        task = self.tasks.get(name)
        return task.handler if task else None

    def close(self) -> None:
        """Close the store; sending afterwards raises Closed."""
        with self._lock:
            self._closed = True
            self._opened.clear()
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        """Close on leaving the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """As `close`."""
        self.close()
