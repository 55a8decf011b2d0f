# Written by `make aio` from astyqueue/queue/connection.py: change that, or tools/async_classes/twins.py.
"""The short way to a queue: `(await connect(url)).queue(name)`."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Self

from astyqueue import ids
from astyqueue.aio.queue import MessageQueue
from astyqueue.clock import Clock, CorrectedClock, SystemClock
from astyqueue.model.presence import Presence, WorkerCommand
from astyqueue.observe.observers import Observer, Observers
from astyqueue.protocol.admin.settings import list_queues
from astyqueue.protocol.coordination.presence import read_presences, request
from astyqueue.protocol.steps import arun
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.connection import Connection as Blocking
from astyqueue.queue.hooks import Hook
from astyqueue.queue.row_sharing.idle_queues import ActivityWatch
from astyqueue.spool import ConnectionSpools, GivenSpool, SpoolOptions
from astyqueue.store import Store
from astyqueue.stores import open_store
from astyqueue.stores.async_adapter import as_async, opened_in_thread
from astyqueue.stores.lazy_store import opened_when_needed
from astyqueue.triggers import Triggers
from astyqueue.waiting import in_thread


class Connection:
    """An open store and the queues in it."""

    def __init__(
        self,
        store: Store,
        clock: Clock | None,
        triggers: Triggers | None = None,
        observers: Iterable[Observer] = (),
        *,
        hooks: Iterable[Hook] = (),
        spools: ConnectionSpools | None = None,
    ) -> None:
        """Use `await connect(url)`."""
        self._blocking = store
        self.store = as_async(store)
        self.triggers = Triggers() if triggers is None else triggers
        self.clock = clock or CorrectedClock()
        self._observers = tuple(observers)
        self._hooks = tuple(hooks)
        self._spools = spools
        self._watch = ActivityWatch(self.clock)

    @property
    def blocking(self) -> Blocking:
        """The same connection for threads: its calls block."""
        given = self._blocking, self.clock, self.triggers, self._observers
        return Blocking(*given, hooks=self._hooks, spools=self._spools)

    async def queue(self, name: str, **settings: object) -> MessageQueue:
        """The queue of this name, created if it is new; settings are those of `MessageQueue.builder().options(...)`.

        Behaviour settings apply only if the queue is new; LayoutDiffers if its layout differs from a setting. With a
        spool, open each queue once: each call takes a thread, and a folder of its own in the spool.
        """
        return await self._builder(name, settings).build()

    async def existing_queue(self, name: str, **settings: object) -> MessageQueue:
        """The queue of this name, as it is stored; NotFound if the store does not have it: nothing is created.

        LayoutDiffers if it has another layout than the one given. Otherwise as `queue`.
        """
        return await self._builder(name, settings).existing().build()

    async def release(self, queue: MessageQueue) -> None:
        """Close a queue of this connection, as a dispatcher does with one that a pattern found and that has left."""
        await queue.close()

    def _builder(self, name: str, settings: Mapping[str, object]) -> QueueBuilder[Awaitable[MessageQueue]]:
        builder = MessageQueue.builder().store(self._blocking).clock(self.clock).triggers(self.triggers)
        builder.watch(self._watch.here()).observer(*self._observers).hook(*self._hooks)
        if self._spools is not None:
            builder.spooled(self._spools)
        return builder.name(name).options(**settings)

    async def queues(self) -> list[str]:
        """The names of the queues in this store."""
        observers = Observers(self._observers, monotonic=self.clock.monotonic)
        observers.check_log_levels()
        return await arun(list_queues(), self.store, observers)

    async def workers(self) -> list[Presence]:
        """The workers and dispatchers that reported to this store lately, stale ones too, ordered by name."""
        return await arun(read_presences(), self.store)

    async def command(self, worker: str, command: WorkerCommand | str) -> None:
        """Have the worker of exactly this name "drain", be "quiet", "resume", or log the "stacks" of its threads.

        It follows with its next heartbeat, within 15 s by default.
        """
        await arun(request(worker, WorkerCommand(command), ids.nonce()), self.store)

    def __repr__(self) -> str:
        """The store."""
        return f"<Connection to {self.store!r}>"

    async def close(self) -> None:
        """Close the store: from then on each call of a queue of this connection raises Closed.

        Close a queue itself first if it has a permit of a queue with `max_active_processes`, which else ends with
        `permit_lease`.

        What is in its spools is forwarded first, for a spool's `drain` (5 s by default); the rest stays on the disk
        for the next process.
        """
        try:
            if self._spools is not None:
                await in_thread(self._spools.close)
        finally:
            await self.store.close()

    async def __aenter__(self) -> Self:
        """Close on leaving the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Call `close`."""
        await self.close()


async def connect(
    url: str,
    *,
    clock: Clock | None = None,
    triggers: Triggers | None = None,
    observers: Iterable[Observer] = (),
    hooks: Iterable[Hook] = (),
    create: bool = True,
    spool: GivenSpool | None = None,
) -> Connection:
    """Open the store at a URL, such as "sqlite:///mail.db" (relative), "sqlite:////var/mail.db" or "memory://name".

    A missing SQLite file is created; with `create=False`, for read-only tools, WrongSchema is raised instead.
    `observers` get the events of the queues of this connection. `hooks` are called at their sends and settles, in this
    order, and may refuse either.

    With a `spool`, a folder or `SpoolOptions.of(folder, cap="4GiB")`, its queues send into the local disk, from where a
    thread of each forwards to the store: no send waits for it. It is opened by the first request, so that queues which
    the folder knows are opened while it is away. Close the connection, so that it forwards what waits.
    """
    used = clock or SystemClock()
    if spool is None:
        opened = await opened_in_thread(partial(open_store, url, clock=used, create=create))
        return Connection(opened, clock, triggers, observers, hooks=hooks)
    spools = ConnectionSpools(SpoolOptions.given(spool))
    return Connection(
        opened_when_needed(url, clock=used, create=create), clock, triggers, observers, hooks=hooks, spools=spools
    )
