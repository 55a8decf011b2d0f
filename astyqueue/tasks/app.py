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
from astyqueue.dispatch.handlers import AsyncMiddleware, Handler, Kind, Middleware
from astyqueue.dispatch.pools import IN_FLIGHT
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput, BadSetting, Closed
from astyqueue.model.message import Message, MessageEncoder
from astyqueue.model.settings import Settings, check_queue_name
from astyqueue.observe import Observer
from astyqueue.queue.connection import Connection, connect
from astyqueue.queue.options import check_names
from astyqueue.queue.queue import MessageQueue
from astyqueue.schedules.reconcile import Instructions, Reconciled
from astyqueue.stores.url import URL_VARIABLE
from astyqueue.tasks.schedules import DEFAULT_QUEUE, Declaring
from astyqueue.tasks.task import Task, TaskOptions, name_of
from astyqueue.triggers import Triggers

P = ParamSpec("P")
R = TypeVar("R")

#: The environment variable with the release of an app that gives none.
RELEASE_VARIABLE: Final = "ASTYQUEUE_RELEASE"


class App(Declaring):
    """Tasks and their queues in one store, which is opened at the first send and not before.

    Default URL: the environment variable ASTYQUEUE_URL. Safe to use from many threads. Closing it is optional: messages
    are in the store when `send` returns.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "app",
        release: int | str | None = None,
        clock: Clock | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        """Nothing is opened here; tests pass a `TimeMachine` as the clock. `observers` get the events of its queues.

        Give the app a name if several programs declare schedules for the same queues: each manages its own. `release`
        (Default: ASTYQUEUE_RELEASE) is a number that rises with each deploy, such as 42 or "1.10.0": the schedules of
        the highest release apply, and it removes those that it no longer declares.
        """
        super().__init__(name, os.environ.get(RELEASE_VARIABLE) or None if release is None else release)
        self._clock = clock
        self._observers = tuple(observers)
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
        """The URL of the store, or None; it may contain a password, so do not print it."""
        return self._url or os.environ.get(URL_VARIABLE)

    @url.setter
    def url(self, url: str) -> None:
        if self._connection is not None:
            message = "this app has opened its store already: set its URL before the first send"
            raise BadInput(message)
        self._url = url

    def _named_store(self) -> str:
        if not self.url:
            message = f'this app has no store: give a URL, such as App("sqlite:///work.db"), or set {URL_VARIABLE}'
            raise BadSetting(message)
        return self.url

    @property
    def queues(self) -> list[str]:
        """The queues that were declared or that a task is sent to, in that order; "default" if there are none."""
        return list(self._settings) or [DEFAULT_QUEUE]

    def queue(self, name: str, **settings: object) -> None:
        """Declare the settings of a queue: lease="5m", max_attempts=7, priorities=3 and so on.

        They apply to a new queue; an existing queue keeps its stored settings, which `astyqueue queues set` changes.
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
        kind: str | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(
        self,
        function: Callable[P, R] | None = None,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        kind: str | None = None,
    ) -> Task[P, R] | Callable[[Callable[P, R]], Task[P, R]]:
        """Make a function a task: `@app.task` or `@app.task(queue="emails", timeout="5m")`.

        `max_attempts` overrides the queue's. `timeout` is how long its lease is renewed while it runs: a task that runs
        longer has failed, and its message is retried or becomes a dead letter, although the thread may still run it.
        `async def` tasks share an event loop; with `kind="process"` a task runs in a child process, which is killed at
        the timeout. Messages carry the name (Default: `module.function`): keep it while any of them wait.
        """

        def made(function: Callable[P, R]) -> Task[P, R]:
            return self._add(function, TaskOptions(name or name_of(function), queue, max_attempts, timeout, kind))

        return made if function is None else made(function)

    def _add(self, function: Callable[P, R], options: TaskOptions) -> Task[P, R]:
        if options.name in self.tasks:
            message = (
                f"two tasks of this app are called {options.name!r}: give one of them another, @app.task(name=...)"
            )
            raise BadInput(message)
        if options.timeout is not None:
            as_microseconds(options.timeout)
        MessageEncoder(Settings(name=check_queue_name(options.queue)), 0).compose(
            None, Message(None, max_attempts=options.max_attempts)
        )
        task = Task(function, options, self.open)
        self._settings.setdefault(options.queue, {})
        self.tasks[options.name] = task
        return task

    def open(self, name: str = DEFAULT_QUEUE) -> MessageQueue:
        """Open the queue of this name in the app's store, and create it if it is new."""
        if found := self._opened.get(name):
            return found
        with self._lock:
            if name not in self._opened:
                self._opened[name] = self._connected().queue(name, **self._settings.get(name, {}))
            return self._opened[name]

    def _open_again(self, name: str) -> MessageQueue:
        """Open a queue that was dropped and created again."""
        with self._lock:
            self._opened.pop(name, None)
        return self.open(name)

    def _connected(self, *, create: bool = True) -> Connection:
        if self._closed:
            message = "this app was closed: make a new one"
            raise Closed(message)
        if self._connection is None:
            self._connection = connect(
                self._named_store(),
                clock=self._clock,
                triggers=self.triggers,
                observers=self._observers,
                create=create,
            )
        return self._connection

    def worker(
        self,
        queues: Mapping[str, int] | Iterable[str] | None = None,
        *,
        concurrency: int = THREADS,
        coroutines: int = IN_FLIGHT,
        processes: int | None = None,
        middleware: Iterable[Middleware | AsyncMiddleware] = (),
        schedules: bool = True,
        max_messages: int | None = None,
        max_stalled: int | None = None,
    ) -> Dispatcher:
        """Make a dispatcher that runs the tasks of this app: `run()` it, or `start()` and later `drain()` it.

        The schedules that the app declares are stored now, and the dispatcher fires these and all others of its queues;
        with `schedules=False` it does neither.

        `queues` are those to serve (Default: all that are declared or that a task is sent to), optionally with weights.
        They share `concurrency` handler threads: while several have messages, each gets turns by its weight, and
        threads that one does not need serve the others. A shell-style pattern such as "mail.*" stands for the queues of
        the store that match, also those that are created later (they join within five seconds); every task of the app
        runs from them. At most `coroutines` `async def` tasks are in flight, and `processes` child processes run the
        tasks of that kind (Default: one for each processor).

        The dispatcher ends after `max_messages`, and with HandlersStuck when `max_stalled` handlers are past their
        timeout. Middleware wraps every task as `fn(delivery, call_next)`, the first outermost; for `async def` tasks it
        is `async def` too. A message of a task that is unknown here is parked for a worker that knows it.
        """
        wanted = self.queues if queues is None else queues
        weights = dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted, 1)
        self._check_queues(weights)
        builder = Dispatcher.builder().threads(concurrency).coroutines(coroutines)
        directory = _Directory(self, fires=schedules)
        for name, weight in weights.items():
            if is_pattern(name):
                builder.queues(name, directory, weight=weight).handlers(self._handler, tasks=self.tasks)
            else:
                queue = directory.queue(name)
                builder.queue(queue, weight=weight).handlers(self._handler, tasks=self._tasks_of(name))
        if any(task.kind is Kind.PROCESS for task in self.tasks.values()):
            builder.processes(processes, environment={URL_VARIABLE: self._named_store()})
        if max_messages is not None:
            builder.max_messages(max_messages)
        if max_stalled is not None:
            builder.max_stalled(max_stalled)
        return builder.middleware(*middleware).build()

    def _check_queues(self, names: Iterable[str]) -> None:
        """BadInput for names that are not queues of this app; a pattern is not checked."""
        unknown = sorted({name for name in names if not is_pattern(name)} - {*self.queues, DEFAULT_QUEUE})
        if unknown:
            message = (
                f"this app has no queue {', '.join(map(repr, unknown))}, it has {', '.join(self.queues)}: "
                "declare it with app.queue(...)"
            )
            raise BadInput(message)

    def reconcile_all(self, *, prune: bool = False, dry_run: bool = False) -> dict[str, Reconciled]:
        """Apply the declared schedules in every queue of the store, even if another release is current.

        Returns the results by queue. With `prune`, schedules that only other releases declared are removed; `dry_run`
        changes nothing.
        """
        there = set(self._connected(create=not dry_run).queues())
        instructions = Instructions(counts=True, prunes=prune, dry_run=dry_run)
        found: dict[str, Reconciled] = {}
        for name in sorted({*there, *self._declared}):
            created = name not in there
            declared = sorted(self._declared.get(name, {}))
            found[name] = (
                Reconciled(current=True, saved=declared)
                if dry_run and created
                else self.reconcile(self.open(name), instructions)
            )
        return found

    def _tasks_of(self, queue: str) -> list[str]:
        return [name for name, task in self.tasks.items() if task.options.queue == queue]

    def _handler(self, name: str) -> Handler | None:
        task = self.tasks.get(name)
        return task.handler if task else None

    def close(self) -> None:
        """Close the store; a later send raises Closed."""
        with self._lock:
            self._closed = True
            self._opened.clear()
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        """Return the app; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()


class _Directory:
    """The queues of an app's store, for a worker: opened, and with the schedules that the app declares."""

    def __init__(self, app: App, *, fires: bool) -> None:
        """With `fires`, the worker fires the schedules of these queues."""
        self._app = app
        self._fires = fires

    @property
    def clock(self) -> Clock:
        """The clock of the queues."""
        return self._app._connected().clock  # noqa: SLF001 - a part of the app

    def queues(self) -> list[str]:
        """The names of all queues in the store."""
        return self._app._connected().queues()  # noqa: SLF001 - as above

    def queue(self, name: str) -> MessageQueue:
        """The queue of this name; one that was dropped since it was opened is opened anew."""
        queue = self._app.open(name)
        if queue.core.settings_sync.gone:
            queue = self._app._open_again(name)  # noqa: SLF001 - as above
        if self._fires:
            self._app.reconcile(queue)
        else:
            queue.core.fire_nothing()
        return queue


def is_pattern(name: str) -> bool:
    """Whether this stands for several queues: no name of a queue has such characters."""
    return any(character in name for character in "*?[")
