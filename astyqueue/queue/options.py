"""The options of a caller that opens a queue: settings to create or compare, and options of this process only."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from astyqueue.clock import Clock
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput, BadSetting
from astyqueue.model.settings import did_you_mean
from astyqueue.protocol.coordination.row_lock import ColumnLock, RowLock, VersionGuard
from astyqueue.protocol.steps import Client
from astyqueue.queue.producing.placement import PlacementFunction
from astyqueue.queue.row_sharing.external_lock import CallingThread, LockManager, ManagedLock
from astyqueue.units import SECOND

#: Option names and the stored fields they set; durations become microseconds.
_LAYOUT: Final = {name: name for name in ("time_shards", "concurrency_shards", "priorities", "placement")}
_LAYOUT_DURATIONS: Final = {"every": "time_shard_us"}
_BEHAVIOUR: Final = {
    name: name
    for name in (
        "max_attempts",
        "max_attempts_cap",
        "paused",
        "body_bytes",
        "history",
        "max_active_processes",
        "last_value",
        "max_messages",
        "overflow",
        "overflow_to",
        "sort_header",
        "sort_classes",
        "sort_order",
        "sort_missing",
    )
}
_BEHAVIOUR_DURATIONS: Final = {
    "lease": "lease_us",
    "lease_cap": "lease_cap_us",
    "backoff": "backoff_us",
    "backoff_cap": "backoff_cap_us",
    "history_kept": "history_kept_us",
    "deduplication": "deduplication_us",
    "permit_lease": "permit_lease_us",
    "overflow_wait": "overflow_wait_us",
    "expires": "expires_us",
    "expires_cap": "expires_cap_us",
}

Asked = dict[str, object]


_LEAST: Final = SECOND // 10
_MOST: Final = 600 * SECOND


def layout_of(options: Mapping[str, object]) -> Asked:
    """The layout fields among these options."""
    return _fields(options, _LAYOUT, _LAYOUT_DURATIONS)


def _refuse_layout(options: Mapping[str, object]) -> None:
    """Raise BadSetting for options that are fixed when a queue is created."""
    if fixed := sorted({*_LAYOUT, *_LAYOUT_DURATIONS} & set(options)):
        message = f"{', '.join(fixed)}: a layout is fixed when a queue is created; create one of another name"
        raise BadSetting(message)


def behaviour_of(options: Mapping[str, object]) -> Asked:
    """The behaviour fields among these options."""
    return _fields(options, _BEHAVIOUR, _BEHAVIOUR_DURATIONS)


def check_names(options: Mapping[str, object], *, to_change: bool = False) -> None:
    """Raise BadSetting for an unknown option or, with `to_change`, for one that is fixed when a queue is created."""
    if to_change:
        _refuse_layout(options)
    known = {*_BEHAVIOUR, *_BEHAVIOUR_DURATIONS} | (set() if to_change else {*_LAYOUT, *_LAYOUT_DURATIONS})
    if unknown := sorted(set(options) - known):
        hint = did_you_mean(unknown[0], known) or f"; it has {', '.join(sorted(known))}"
        message = f"a queue has no setting {', '.join(map(repr, unknown))}{hint}"
        raise BadSetting(message)


def _fields(options: Mapping[str, object], plain: dict[str, str], durations: dict[str, str]) -> Asked:
    asked: Asked = {field: options[name] for name, field in plain.items() if options.get(name) is not None}
    for name, field in durations.items():
        if (value := options.get(name)) is not None:
            asked[field] = _microseconds(value, name)
    return asked


def _microseconds(value: object, name: str) -> int:
    duration: Duration = value  # type: ignore[assignment]  # as_microseconds checks it
    try:
        return as_microseconds(duration)
    except BadInput as error:
        message = f"{name}: {error}"
        raise BadSetting(message) from error


def _guard(process: Client, clock: Clock) -> RowLock:
    del process, clock
    return VersionGuard()


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options of one process: row lock, time after which a lock is ignored (microseconds), placement function."""

    lock: Callable[[Client, Clock], RowLock] = _guard
    lock_timeout: int = 5 * SECOND
    place: PlacementFunction | None = None


DEFAULT_OPTIONS: Final = ClientOptions()


def with_lock(client_options: ClientOptions, lock: str | LockManager, timeout: Duration) -> ClientOptions:
    """The same options with another lock; BadSetting if the lock or its timeout is invalid."""
    stops = as_microseconds(timeout)
    if not _LEAST <= stops <= _MOST:
        message = f"row lock timeout {timeout!r} must be from 100ms to 10m: a crashed holder blocks its row that long"
        raise BadSetting(message)
    return replace(client_options, lock=_making(lock, stops), lock_timeout=stops)


def _making(lock: object, timeout: int) -> Callable[[Client, Clock], RowLock]:
    if lock == "guard":
        return _guard
    if lock == "columns":
        return lambda process, _: ColumnLock(process, timeout)
    manager = _checked(lock)
    return lambda _, clock: ManagedLock(clock, CallingThread(manager).hand_in)


def _checked(lock: object) -> LockManager:
    """An object with the methods of a lock manager; anything else raises BadSetting."""
    methods = [getattr(lock, name, None) for name in ("acquire", "release")]
    if isinstance(lock, str | type) or not all(map(callable, methods)):
        given = f"{lock!r:.80} is not a row lock"
        message = f'{given}: give "guard", "columns", or an object with acquire(row) -> bool and release(row)'
        raise BadSetting(message)
    if any(map(inspect.iscoroutinefunction, methods)):
        message = (
            f"{lock!r:.80} has coroutine methods, but a row lock is called in a thread of its own: "
            "make acquire and release ordinary functions"
        )
        raise BadSetting(message)
    manager: LockManager = lock  # type: ignore[assignment]  # it has both methods: checked above
    return manager
