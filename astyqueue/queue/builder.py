"""Saying what queue is wanted, step by step, before anything is opened."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Generic, Self, TypeVar

from astyqueue.clock import Clock, CorrectedClock, SystemClock
from astyqueue.durations import Duration
from astyqueue.errors import BadSetting
from astyqueue.model.names import check_queue_name
from astyqueue.model.settings import FUNCTION, SINGLE
from astyqueue.protocol.settings import open_queue
from astyqueue.protocol.steps import Steps
from astyqueue.queue.asked import Asked, behaviour_of, check_names, layout_of
from astyqueue.queue.core import Core
from astyqueue.queue.hooks import Hook
from astyqueue.queue.managedlock import LockManager
from astyqueue.queue.placement import PlacementFunction, checked_function
from astyqueue.queue.ways import USUAL, with_lock
from astyqueue.store import Spread, Store
from astyqueue.stores import DriverSession, open_store
from astyqueue.triggers import Triggers

Q = TypeVar("Q")
_log: Final = logging.getLogger("astyqueue.queue")


class QueueBuilder(Generic[Q]):
    """Collects what is wanted; `build()` opens the store and creates the queue, or joins the one that exists.

    A layout (shards, priorities) is fixed when a queue is created; asking for another one later raises LayoutDiffers.
    Behaviour (lease, attempts, backoff) is stored with the queue: what is asked here counts when the queue is new, and
    is changed later by `queue.configure(...)`.
    """

    def __init__(self, build: Callable[[QueueBuilder[Q]], Q]) -> None:
        """`build` opens what was collected, in the world of threads or of tasks."""
        self._build = build
        self._store: str | Store | DriverSession | None = None
        self._name: str | None = None
        self._clock: Clock | None = None
        self._hooks: list[Hook] = []
        self._triggers = Triggers()
        self._fires = True
        self._ways = USUAL
        self._options: dict[str, object] = {}

    def store(self, store: str | Store | DriverSession) -> Self:
        """Where the queue lives: a URL such as "sqlite:///mail.db" or "memory://", or a store that is open already.

        A session of Cassandra's driver will do as well, with its keyspace set; it stays yours to close.
        """
        self._store = store
        return self

    def name(self, name: str) -> Self:
        """The queue's name: letters, digits, '.', '_' and '-'."""
        self._name = name
        return self

    def time_shards(self, count: int, *, every: Duration = "1h") -> Self:
        """Spread messages over a ring of `count` rows by their time, `every` so long the next."""
        return self.options(time_shards=count, every=every)

    def concurrency_shards(self, count: int) -> Self:
        """Spread messages of one time over so many rows."""
        return self.options(concurrency_shards=count)

    def placement(self, placement: str | PlacementFunction) -> Self:
        """Which row a message goes to: "time" (its time, and its key if it has one), "key", "single", or a function of your own.

        A function gets a `Placing` and gives a concurrency shard, the same each time it is asked about the same message.
        """
        if isinstance(placement, str):
            return self.options(placement=placement)
        self._ways = replace(self._ways, place=checked_function(placement))
        return self.options(placement=FUNCTION)

    def row_lock(self, lock: str | LockManager, *, timeout: Duration = "5s") -> Self:
        """Who goes first in a row: "guard" (as usual), "columns", or a lock manager of your own with `acquire` and `release`.

        A lock that nobody lets go of stops a row for `timeout`. Commits are guarded under all of them, so a lock that fails costs
        delay, and processes may have different ones.
        """
        self._ways = with_lock(self._ways, lock, timeout)
        return self

    def priorities(self, count: int) -> Self:
        """How many priorities there are, from 0 up; the greatest goes first."""
        return self.options(priorities=count)

    def lease(self, lease: Duration, *, cap: Duration | None = None) -> Self:
        """How long a delivery is its taker's before the message is handed out again, and the longest that a message may ask for."""
        return self.options(lease=lease, lease_cap=cap)

    def max_attempts(self, count: int, *, cap: int | None = None) -> Self:
        """How many attempts a message has before it is a dead letter, and the most that a message may ask for."""
        return self.options(max_attempts=count, max_attempts_cap=cap)

    def backoff(self, first: Duration, *, cap: Duration = "10m") -> Self:
        """The pause after a failed attempt: doubled each time, up to `cap`, shortened by up to half at random."""
        return self.options(backoff=first, backoff_cap=cap)

    def history(self, history: str, *, kept: Duration | None = None) -> Self:
        """Which events are kept ("none", "failures" or "all"), and for how long."""
        return self.options(history=history, history_kept=kept)

    def options(self, **options: object) -> Self:
        """The same settings by name, as `connect(url).queue(name, ...)` takes them; one that is None is as if it were left out."""
        check_names(options)
        self._options.update({name: value for name, value in options.items() if value is not None})
        return self

    def clock(self, clock: Clock | None) -> Self:
        """Go by this clock and no other; tests hand in a `TimeMachine`. Without it, this machine's, corrected by the store's."""
        self._clock = clock
        return self

    def hook(self, *hooks: Hook) -> Self:
        """Tell these hooks of sends and settles, and let them refuse."""
        self._hooks.extend(hooks)
        return self

    def triggers(self, triggers: Triggers) -> Self:
        """Understand these triggers of your own in schedules."""
        self._triggers = triggers
        return self

    def fires(self, fires: bool) -> Self:  # noqa: FBT001 - `.fires(False)` says it
        """Whether whoever takes messages here also fires the schedules of the queue, as is usual; with False others must."""
        self._fires = fires
        return self

    def build(self) -> Q:
        """Open the store and the queue."""
        return self._build(self)

    @property
    def owns_store(self) -> bool:
        """Whether the store is opened for this queue, so that closing the queue closes it."""
        return isinstance(self._store, str | DriverSession)

    def open_store(self) -> Store:
        """The store that was named, opened if need be; what can be refused without it is refused before."""
        if self._store is None:
            message = 'no store was named: .store("sqlite:///mail.db"), for example'
            raise BadSetting(message)
        self._asked()
        return open_store(self._store, clock=self._clock or SystemClock()) if isinstance(self._store, str | DriverSession) else self._store

    def _asked(self) -> tuple[str, Asked, Asked]:
        """The name, the layout and the behaviour that are asked for."""
        if self._name is None:
            message = 'the queue has no name: .name("emails"), for example'
            raise BadSetting(message)
        return check_queue_name(self._name), layout_of(self._options), behaviour_of(self._options)

    def opening(self, spread: Spread) -> Steps[Core]:
        """Create the queue, or join the one that exists under this name and layout; `spread` is what suits the store."""
        name, layout, behaviour = self._asked()
        one_row = layout.get("placement") == SINGLE
        opened = yield from open_queue(name, layout=layout, behaviour=behaviour, spread=Spread() if one_row else spread)
        for setting, stored, asked in opened.differs:
            _log.warning(
                "queue %s exists, and its stored %s=%s stands, not the %s asked for here; 'astyqueue queues set %s %s=%s' changes it",
                name,
                setting,
                stored,
                asked,
                name,
                setting,
                asked,
            )
        clock = self._clock or CorrectedClock()
        return Core(opened.settings, clock, self._hooks, triggers=self._triggers, fires=self._fires, ways=self._ways)
