"""What an app is, whatever its sends are: its tasks, their queues and schedules, and the store they share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from astyqueue.clock import Clock
from astyqueue.dispatch.handlers.handler import Handler, Kind, refuse_no_time
from astyqueue.dispatch.handlers.middleware import AnyMiddleware, check_middleware
from astyqueue.dispatch.queue_patterns import is_pattern
from astyqueue.dispatch.worker_log import some
from astyqueue.durations import as_microseconds
from astyqueue.errors import AstyqueueError, BadInput, BadSetting, Closed
from astyqueue.model.message import Message, MessageEncoder
from astyqueue.model.settings import Settings, check_queue_name
from astyqueue.model.validation import check_several
from astyqueue.observe import Observer
from astyqueue.queue.connection import Connection, connect
from astyqueue.queue.hooks import Hook
from astyqueue.queue.options import check_names
from astyqueue.queue.queue import MessageQueue
from astyqueue.schedules.reconcile import Instructions, Reconciled
from astyqueue.spool import GivenSpool, SpoolOptions, log_undeclared, log_unopened, queues_in
from astyqueue.stores.url import SPOOL_VARIABLE, URL_VARIABLE
from astyqueue.tasks.base_task import BaseTask
from astyqueue.tasks.schedules import DeclaredSchedules
from astyqueue.text import counted
from astyqueue.triggers import Triggers

#: The queue of tasks without a `queue` option.
DEFAULT_QUEUE: Final = "default"
#: The environment variable with the release of an app that gives none.
RELEASE_VARIABLE: Final = "ASTYQUEUE_RELEASE"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    """The options of an app; see `App.__init__`."""

    url: str | None
    name: str
    release: int | str | None
    clock: Clock | None
    observers: tuple[Observer, ...]
    hooks: tuple[Hook, ...]
    middleware: tuple[AnyMiddleware, ...]
    spool: GivenSpool | None


def _absolute(spool: GivenSpool | None) -> GivenSpool | None:
    """The same folder, wherever the process goes before the app opens it."""
    return Path(spool).absolute() if spool and not isinstance(spool, SpoolOptions) else spool


def _is_open(queue: MessageQueue) -> bool:
    try:
        return not queue.core.closed
    except Closed:
        return False


class AppRuntime:
    """The tasks of an app and its queues, in a store that is opened when it is first used. Its calls block."""

    def __init__(self, options: AppOptions) -> None:
        """Nothing is opened yet. BadSetting for middleware that cannot be called."""
        check_middleware(options.middleware)
        release = options.release
        release = os.environ.get(RELEASE_VARIABLE) or None if release is None else release
        self.schedules = DeclaredSchedules(options.name, release)
        self.triggers = Triggers()
        self.tasks: dict[str, BaseTask[..., object]] = {}
        self._options = options
        self._url = options.url
        self._spool = _absolute(options.spool)
        self._settings: dict[str, dict[str, object]] = {}
        self._declared: set[str] = set()
        self._locks: dict[int, threading.RLock] = {}
        self._connection: Connection | None = None
        self._opened: dict[str, MessageQueue] = {}
        self._closed = False

    @property
    def _lock(self) -> threading.RLock:
        """That of this process: one that another thread had at a fork stays locked in the child."""
        return self._locks.setdefault(os.getpid(), threading.RLock())

    def __str__(self) -> str:
        """The name, the number of tasks, the queues and the connection, without the URL, which may have a password."""
        store = "closed" if self._closed else "not connected" if self._connection is None else repr(self._connection)
        return f"{self.schedules.program}: {counted(len(self.tasks), 'task')} for {some(self.queues)}, {store}"

    @property
    def middleware(self) -> tuple[AnyMiddleware, ...]:
        """What wraps the tasks of each of its workers, the outermost first."""
        return self._options.middleware

    @property
    def url(self) -> str | None:
        """The URL of the store, or None."""
        return self._url or os.environ.get(URL_VARIABLE)

    @url.setter
    def url(self, url: str) -> None:
        self._check_not_opened("URL")
        self._url = url

    @property
    def spool(self) -> SpoolOptions | None:
        """Where it sends first, or None: straight to the store."""
        given = self._spool or os.environ.get(SPOOL_VARIABLE)
        return SpoolOptions.given(given) if given else None

    @spool.setter
    def spool(self, spool: GivenSpool) -> None:
        self._check_not_opened("spool")
        self._spool = _absolute(spool)

    def _check_not_opened(self, what: str) -> None:
        if self._connection is not None:
            message = f"this app has opened its store already: set its {what} before the first send"
            raise BadInput(message)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a child process has the store and the folder of the spool of this app."""
        spool = {SPOOL_VARIABLE: str(self.spool.directory)} if self.spool else {}
        return {URL_VARIABLE: self.named_store, **spool}

    @property
    def named_store(self) -> str:
        """The URL of the store; BadSetting if there is none."""
        if not self.url:
            message = f'this app has no store: give a URL, such as App("sqlite:///work.db"), or set {URL_VARIABLE}'
            raise BadSetting(message)
        return self.url

    @property
    def queues(self) -> list[str]:
        """The queues that were declared or that a task is sent to, in that order; "default" if there are none."""
        return list(self._settings) or [DEFAULT_QUEUE]

    def declare_queue(self, name: str, settings: dict[str, object]) -> None:
        """Declare the settings of a queue; BadInput for a queue that was declared before, with whatever settings."""
        check_queue_name(name)
        check_names(settings)
        if name in self._declared:
            message = f"queue {name!r} was declared before: declare it once"
            raise BadInput(message)
        self._declared.add(name)
        self._settings[name] = settings

    def add(self, task: BaseTask[..., object]) -> None:
        """Add a task; BadInput for a name that another one has, or for options that no message can have."""
        options = task.options
        if options.name in self.tasks:
            message = (
                f"two tasks of this app are called {options.name!r}: give one of them another, @app.task(name=...)"
            )
            raise BadInput(message)
        if options.timeout is not None:
            refuse_no_time(as_microseconds(options.timeout))
        MessageEncoder(Settings(name=check_queue_name(options.queue)), 0).prepare(
            None, Message(None, max_attempts=options.max_attempts)
        )
        self._settings.setdefault(options.queue, {})
        self.tasks[options.name] = task

    def opened(self, name: str) -> MessageQueue | None:
        """The queue of this name if it is open: its user may have closed it."""
        queue = self._opened.get(name)
        return queue if queue is not None and _is_open(queue) else None

    def open(self, name: str, *, existing: bool = False) -> MessageQueue:
        """Open the queue of this name in the app's store, and create it if it is new.

        With `existing` nothing is created: NotFound if the store does not have it.

        With the first one, the declared queues that the folder of the spool knows are opened too, so that what the
        process before left is forwarded, whatever this one sends. What waits there for other queues is logged, and so
        is a queue that cannot be opened.
        """
        if found := self.opened(name):
            return found
        with self._lock:
            before = [] if self._opened or self.spool is None else list(queues_in(self.spool.directory))
            self._open(name, existing=existing)
            for each in before:
                if each in self._settings:
                    self._open_if_possible(each)
            if self.spool is not None:
                known = {name, *self._settings}
                log_undeclared(self.spool.directory, (one for one in before if one not in known))
            return self._opened[name]

    def _open(self, name: str, *, existing: bool = False) -> None:
        """Open a queue, unless it is open; the caller has the lock."""
        if self.opened(name) is None:
            connection = self.connected()
            opened = connection.existing_queue if existing else connection.queue
            self._opened[name] = opened(name, **self._settings.get(name, {}))

    def _open_if_possible(self, name: str) -> None:
        try:
            self._open(name)
        except (AstyqueueError, OSError) as error:
            log_unopened(name, error)

    def open_again(self, name: str, *, existing: bool = False) -> MessageQueue:
        """Open a queue that was dropped and created again; `existing` as for `open`."""
        with self._lock:
            gone = self._opened.pop(name, None)
        if gone is not None and gone.core.spooling is not None:
            gone.spool.close()
            gone.spool.folder.forget_settings()
        return self.open(name, existing=existing)

    def connected(self, *, create: bool = True) -> Connection:
        """The connection to the store, which is opened by the first call. Closed once the app is."""
        with self._lock:
            if self._closed:
                message = "this app was closed: make a new one"
                raise Closed(message)
            if self._connection is None:
                self._spool = self.spool  # also that of the environment, whatever the directory is later
                self._connection = connect(
                    self.named_store,
                    clock=self._options.clock,
                    triggers=self.triggers,
                    observers=self._options.observers,
                    hooks=self._options.hooks,
                    create=create,
                    spool=self.spool,
                )
            return self._connection

    def weights_of(self, queues: Mapping[str, int] | Iterable[str] | None) -> dict[str, int]:
        """These queues, by default all of the app, with their weights; BadInput for one that it does not have."""
        if isinstance(queues, Mapping):
            weights = dict(queues)
        else:
            wanted = self.queues if queues is None else queues
            remedy = 'give a list of them, such as ["emails"]'
            weights = dict.fromkeys(check_several(wanted, "app.worker serves several queues", remedy), 1)
        self._check_queues(weights)
        return weights

    @property
    def has_tasks_for_processes(self) -> bool:
        """Whether a task runs in child processes."""
        return any(task.kind is Kind.PROCESS for task in self.tasks.values())

    def _check_queues(self, names: Iterable[str]) -> None:
        """BadInput for names that are not queues of this app; a pattern is not checked."""
        unknown = sorted({name for name in names if not is_pattern(name)} - {*self.queues, DEFAULT_QUEUE})
        if unknown:
            message = (
                f"this app has no queue {', '.join(map(repr, unknown))}, it has {', '.join(self.queues)}: "
                "declare it with app.queue(...)"
            )
            raise BadInput(message)

    def reconcile_all(self, *, prune: bool, dry_run: bool) -> dict[str, Reconciled]:
        """Apply the declared schedules in every queue of the store; see `App.reconcile_all`."""
        there = set(self.connected(create=not dry_run).queues())
        instructions = Instructions(becomes_current=True, prunes=prune, dry_run=dry_run)
        found: dict[str, Reconciled] = {}
        for name in sorted({*there, *self.schedules.queues}):
            created = name not in there
            declared = sorted(self.schedules.of(name))
            found[name] = (
                Reconciled(current=True, saved=declared)
                if dry_run and created
                else self.schedules.reconcile(self.open(name), instructions)
            )
        return found

    def tasks_of(self, queue: str) -> list[str]:
        """The names of the tasks that are sent to a queue."""
        return [name for name, task in self.tasks.items() if task.options.queue == queue]

    def handler_of(self, name: str) -> Handler | None:
        """The handler of a task in a worker; None if the app has no task of this name."""
        task = self.tasks.get(name)
        return task.handler if task else None

    def close(self) -> None:
        """Close the store, after the spool; what is opened later raises Closed."""
        with self._lock:
            self._closed = True
            self._opened.clear()
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
