"""What each process decides for itself about a queue: nothing in it need be the same elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from astyqueue.clock import SECOND, Clock
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadSetting
from astyqueue.protocol.columnlock import ColumnLock
from astyqueue.protocol.process import Process
from astyqueue.protocol.rowlock import RowLock, VersionGuard
from astyqueue.queue.managedlock import LockManager, ManagedLock
from astyqueue.queue.placement import PlacementFunction

_LEAST: Final = SECOND // 10
_MOST: Final = 600 * SECOND


def _guard(process: Process, clock: Clock) -> RowLock:
    del process, clock
    return VersionGuard()


@dataclass(frozen=True, slots=True)
class Ways:
    """Who goes first in its rows, how long a lock may stop one (microseconds), and by what function it places messages."""

    lock: Callable[[Process, Clock], RowLock] = _guard
    lock_timeout: int = 5 * SECOND
    place: PlacementFunction | None = None


USUAL: Final = Ways()


def with_lock(ways: Ways, lock: str | LockManager, timeout: Duration) -> Ways:
    """The same with another lock; BadSetting says what is wrong with it."""
    stops = as_microseconds(timeout)
    if not _LEAST <= stops <= _MOST:
        message = f"a row lock's timeout is {timeout!r} and must be from 100ms to 10m: a row that is locked by the dead waits for it"
        raise BadSetting(message)
    return replace(ways, lock=_making(lock, stops), lock_timeout=stops)


def _making(lock: object, timeout: int) -> Callable[[Process, Clock], RowLock]:
    if lock == "guard":
        return _guard
    if lock == "columns":
        return lambda process, _: ColumnLock(process, timeout)
    manager = _checked(lock)
    return lambda _, clock: ManagedLock(manager, clock)


def _checked(lock: object) -> LockManager:
    """What has the methods of a lock manager; anything else raises BadSetting."""
    methods = [getattr(lock, name, None) for name in ("acquire", "release")]
    if isinstance(lock, str | type) or not all(map(callable, methods)):
        message = f'{lock!r:.80} is no row lock: give "guard", "columns", or an object with acquire(row) -> bool and release(row)'
        raise BadSetting(message)
    if any(map(inspect.iscoroutinefunction, methods)):
        message = f"{lock!r:.80} is awaited, and a row lock is called in a thread of its own: make acquire and release ordinary functions"
        raise BadSetting(message)
    manager: LockManager = lock  # type: ignore[assignment]  # it has both methods, which was just seen
    return manager
