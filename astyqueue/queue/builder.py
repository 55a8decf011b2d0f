"""The builder that collects a queue's settings before anything is opened."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Generic, Self, TypeVar

from astyqueue.clock import Clock, CorrectedClock, SystemClock
from astyqueue.durations import Duration
from astyqueue.errors import BadSetting, NotFound
from astyqueue.journal.settings import Size
from astyqueue.model.settings import FUNCTION, SINGLE, Settings, check_queue_name
from astyqueue.observe.observers import UNOBSERVED, Observer, Observers
from astyqueue.protocol.admin.settings import (
    Difference,
    check_layout,
    decode_settings,
    encode_settings,
    load_settings,
    open_queue,
)
from astyqueue.protocol.steps import Steps, run
from astyqueue.queue.hooks import Hook
from astyqueue.queue.options import DEFAULT_OPTIONS, Asked, behaviour_of, check_names, layout_of, with_lock
from astyqueue.queue.producing.placement import PlacementFunction, checked_function
from astyqueue.queue.producing.spooled import Spooling
from astyqueue.queue.row_sharing.external_lock import LockManager
from astyqueue.queue.row_sharing.idle_queues import ActivityWatch
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.spool import ConnectionSpools, Spool, SpoolFolder, SpoolOptions
from astyqueue.store import Spread, Store
from astyqueue.stores import DriverSession, open_store
from astyqueue.stores.lazy_store import LazyStore, opened_when_needed
from astyqueue.structured_log import log_event
from astyqueue.triggers import Triggers

Q = TypeVar("Q")
_log: Final = logging.getLogger("astyqueue.queue")


class QueueBuilder(Generic[Q]):
    """Collects settings; `build()` opens the store and creates the queue, or joins the existing one.

    The layout (shards, priorities) is fixed when the queue is created; a different one later raises LayoutDiffers.
    Behaviour (lease, attempts, backoff) is stored with the queue: the values given here apply only if the queue is new;
    change them later with `queue.configure(...)`.
    """

    def __init__(self, build: Callable[[QueueBuilder[Q]], Q]) -> None:
        """`build` opens the queue for threads or for tasks."""
        self._build = build
        self._store: str | Store | DriverSession | None = None
        self._name: str | None = None
        self._clock: Clock | None = None
        self._hooks: list[Hook] = []
        self._observers: list[Observer] = []
        self._triggers = Triggers()
        self._fires = True
        self._creates = True
        self._client_options = DEFAULT_OPTIONS
        self._options: dict[str, object] = {}
        self._spool: SpoolOptions | None = None
        self._spools: ConnectionSpools | None = None
        self._watch: ActivityWatch | None = None

    def store(self, store: str | Store | DriverSession) -> Self:
        """The queue's store: a URL such as "sqlite:///mail.db" or "memory://", or a store that is already open.

        A session of Cassandra's driver with its keyspace set also works; closing it stays the caller's job.
        """
        self._store = store
        return self

    def name(self, name: str) -> Self:
        """The queue's name: letters, digits, '.', '_' and '-'."""
        self._name = name
        return self

    def time_shards(self, count: int, *, every: Duration = "1h") -> Self:
        """Spread messages by their time over a ring of `count` rows; the next row follows after each `every`."""
        return self.options(time_shards=count, every=every)

    def concurrency_shards(self, count: int) -> Self:
        """Spread messages of the same time over `count` rows."""
        return self.options(concurrency_shards=count)

    def placement(self, placement: str | PlacementFunction) -> Self:
        """The rule for a message's row: "time" (its time, and its key if any), "key", "single", or your function.

        A function gets a `PlacementRequest` and returns a concurrency shard, always the same one for the same message.
        """
        if isinstance(placement, str):
            return self.options(placement=placement)
        self._client_options = replace(self._client_options, place=checked_function(placement))
        return self.options(placement=FUNCTION)

    def row_lock(self, lock: str | LockManager, *, timeout: Duration = "5s") -> Self:
        """The row lock: "guard" (default), "columns", or your own lock manager with `acquire` and `release`.

        A lock that is never released blocks its row for `timeout`. Commits are guarded whatever the lock, so a failing
        lock costs only delay, and processes may use different ones.
        """
        self._client_options = with_lock(self._client_options, lock, timeout)
        return self

    def priorities(self, count: int) -> Self:
        """The number of priorities, from 0 up; the greatest is delivered first."""
        return self.options(priorities=count)

    def lease(self, lease: Duration, *, cap: Duration | None = None) -> Self:
        """The time until an unsettled message is delivered again, and the longest lease a message may request."""
        return self.options(lease=lease, lease_cap=cap)

    def max_attempts(self, count: int, *, cap: int | None = None) -> Self:
        """The number of attempts before a message becomes a dead letter, and the most that a message may request."""
        return self.options(max_attempts=count, max_attempts_cap=cap)

    def backoff(self, first: Duration, *, cap: Duration = "10m") -> Self:
        """The pause after a failed attempt: doubled each time, up to `cap`, shortened by up to half at random."""
        return self.options(backoff=first, backoff_cap=cap)

    def history(self, history: str, *, kept: Duration | None = None) -> Self:
        """Which events are kept ("none", "failures" or "all"), and for how long."""
        return self.options(history=history, history_kept=kept)

    def existing(self) -> Self:
        """Open the queue only if the store has it; otherwise `build` raises NotFound, and creates nothing."""
        self._creates = False
        return self

    def options(self, **options: object) -> Self:
        """The same settings by name, as `connect(url).queue(name, ...)` takes them; None means not given."""
        check_names(options)
        self._options.update({name: value for name, value in options.items() if value is not None})
        return self

    def clock(self, clock: Clock | None) -> Self:
        """Use this clock; tests pass a `TimeMachine`. Default: this machine's clock, corrected by the store's."""
        self._clock = clock
        return self

    def hook(self, *hooks: Hook) -> Self:
        """Call these hooks at sends and settles; they may refuse either."""
        self._hooks.extend(hooks)
        return self

    def observer(self, *observers: Observer) -> Self:
        """Pass these observers every request to the store, and what claims, settles and firings did."""
        self._observers.extend(observers)
        return self

    def watch(self, watch: ActivityWatch) -> Self:
        """Read the activity log together with the other queues of a connection; `Connection.queue` calls this."""
        self._watch = watch
        return self

    def spooled(self, spools: ConnectionSpools) -> Self:
        """Send into a spool that is closed with those of the other queues; `Connection.queue` calls this."""
        self._spools = spools
        self._spool = spools.options
        return self

    def triggers(self, triggers: Triggers) -> Self:
        """Register your own trigger types for schedules."""
        self._triggers = triggers
        return self

    def fires(self, fires: bool) -> Self:  # noqa: FBT001 - `.fires(False)` says it
        """Whether consumers in this process also fire the queue's schedules. Default: True; if False, others must."""
        self._fires = fires
        return self

    def spool(
        self,
        directory: str | os.PathLike[str],
        *,
        cap: Size | None = "1GiB",
        when_full: str = "block",
        durability: str = "batch",
        batch_delay: Duration = "10ms",
        drain: Duration = "5s",
    ) -> Self:
        """Send into a folder of the local disk, from where a thread forwards to the store: no send waits for it.

        A send returns when its message survives a kill of the process; with `durability` "batch" it is on the disk
        `batch_delay` later, with "each" at once. A process with more than `cap` on the disk waits ("block"), raises
        SpoolFull ("raise") or drops its oldest messages ("drop_oldest"). Closing the queue forwards for `drain`.

        Once the folder knows the queue, `build` opens no connection. Any number of processes may share a folder.
        """
        self._spool = SpoolOptions.of(
            directory, cap=cap, when_full=when_full, durability=durability, batch_delay=batch_delay, drain=drain
        )
        return self

    @property
    def observers(self) -> Observers:
        """The observers of the queue, also of the requests that open it."""
        clock = self._clock or SystemClock()
        observers = Observers(self._observers, queue=self._name or "", monotonic=clock.monotonic)
        observers.check_log_levels()
        return observers

    def build(self) -> Q:
        """Open the store and the queue."""
        return self._build(self)

    @property
    def owns_store(self) -> bool:
        """Whether the store is opened for this queue, so that closing the queue closes it."""
        return isinstance(self._store, str | DriverSession)

    def open_store(self) -> Store:
        """The store, opened if it is not open yet. Invalid settings raise BadSetting before anything is opened.

        With a spool that knows the queue, a store is only opened by the first request.
        """
        if self._store is None:
            message = 'no store was named: .store("sqlite:///mail.db"), for example'
            raise BadSetting(message)
        place, clock = self._store, self._clock or SystemClock()
        if not isinstance(place, str | DriverSession):
            self._requested()
            return place
        if self._spooled_settings() is None:
            self._requested()
            return open_store(place, clock=clock)
        if isinstance(place, str):
            return opened_when_needed(place, clock=clock)
        return LazyStore(lambda: open_store(place, clock=clock), clock)

    def _spooled_settings(self) -> Settings | None:
        """The settings of the queue that its spool has; LayoutDiffers if they are not the requested ones."""
        name, layout, _ = self._requested()
        stored = _stored_in(SpoolFolder(self._spool.directory, name)) if self._spool else None
        if stored is None:
            return None
        settings = decode_settings(name, stored)
        check_layout(settings, layout)
        return settings

    def _requested(self) -> tuple[str, Asked, Asked]:
        """The requested name, layout and behaviour."""
        if self._name is None:
            message = 'the queue has no name: .name("emails"), for example'
            raise BadSetting(message)
        return check_queue_name(self._name), layout_of(self._options), behaviour_of(self._options)

    def opening(self, store: Store, observers: Observers = UNOBSERVED) -> Steps[QueueRuntime]:
        """Create the queue, or join the existing one of this name and layout; with a spool that knows it, neither.

        An `existing` one is looked for in the store, whatever a spool knows.
        """
        known = self._spooled_settings() if self._creates else None
        settings = known or (yield from self._stored_settings(store.spread))
        clock = self._clock or CorrectedClock()
        runtime = QueueRuntime(
            settings,
            clock,
            self._hooks,
            triggers=self._triggers,
            fires=self._fires,
            client_options=self._client_options,
            observers=observers,
            spooling=self._spooling(settings, store, observers, opened=known is None),
            watch=self._watch,
        )
        if known is None:
            runtime.settings_sync.stored(settings)
        return runtime

    def _stored_settings(self, spread: Spread) -> Steps[Settings]:
        """The settings of the queue in the store, which is created if it may be; `spread` is what suits the store."""
        name, layout, behaviour = self._requested()
        if not self._creates:
            return (yield from _existing_settings(name, layout))
        one_row = layout.get("placement") == SINGLE
        opened = yield from open_queue(name, layout=layout, behaviour=behaviour, spread=Spread() if one_row else spread)
        for difference in opened.differs:
            _warn_of(difference, name)
        return opened.settings

    def _spooling(self, settings: Settings, store: Store, observers: Observers, *, opened: bool) -> Spooling | None:
        if self._spool is None:
            return None
        spool = Spool(self._spool, settings.name, self._clock, among=self._spools)
        spool.folder.save_settings(encode_settings(settings))
        return Spooling(spool, store, lambda steps: run(steps, store, observers), opened)


def _stored_in(folder: SpoolFolder) -> bytes | None:
    try:
        return folder.load_settings()
    except PermissionError as error:
        message = f"the folder {folder.path} belongs to another user: processes of one user share a spool"
        raise BadSetting(message) from error


def _existing_settings(name: str, layout: Asked) -> Steps[Settings]:
    """The settings of a queue in the store; NotFound without any, LayoutDiffers if they are not the requested ones."""
    stored = yield from load_settings(name, exact=True)
    if stored is None:
        message = f"there is no queue {name!r} in this store: it was not created yet, or it was dropped"
        raise NotFound(message)
    check_layout(stored, layout)
    return stored


def _warn_of(difference: Difference, queue: str) -> None:
    """Log that a setting was requested and is stored with another value."""
    setting, stored, requested = difference
    log_event(
        _log,
        logging.WARNING,
        "requested_setting_ignored",
        queue=queue,
        setting=setting,
        stored=stored,
        requested=requested,
        remedy=f"astyqueue queues set {queue} {setting}={requested}",
    )
