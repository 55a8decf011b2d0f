"""What somebody asks of a queue when opening it: only what was said, so that the rest comes from the store or the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadSetting
from astyqueue.model.wording import did_you_mean

#: What people write, and the stored field it stands for; durations are turned into microseconds.
_LAYOUT: Final = {name: name for name in ("time_shards", "concurrency_shards", "priorities", "placement")}
_LAYOUT_DURATIONS: Final = {"every": "time_shard_us"}
_BEHAVIOUR: Final = {name: name for name in ("max_attempts", "max_attempts_cap", "paused", "body_bytes", "history")}
_BEHAVIOUR_DURATIONS: Final = {
    "lease": "lease_us",
    "lease_cap": "lease_cap_us",
    "backoff": "backoff_us",
    "backoff_cap": "backoff_cap_us",
    "history_kept": "history_kept_us",
    "deduplication": "deduplication_us",
}

Asked = dict[str, object]


def layout_of(options: Mapping[str, object]) -> Asked:
    """The layout that these options ask for."""
    return _fields(options, _LAYOUT, _LAYOUT_DURATIONS)


def _refuse_layout(options: Mapping[str, object]) -> None:
    """Raise BadSetting for options that are fixed when a queue is created."""
    if fixed := sorted({*_LAYOUT, *_LAYOUT_DURATIONS} & set(options)):
        message = f"{', '.join(fixed)}: a layout is fixed when a queue is created; make a queue with another name for another one"
        raise BadSetting(message)


def behaviour_of(options: Mapping[str, object]) -> Asked:
    """The behaviour that these options ask for."""
    return _fields(options, _BEHAVIOUR, _BEHAVIOUR_DURATIONS)


def check_names(options: Mapping[str, object], *, to_change: bool = False) -> None:
    """Raise BadSetting for an option that no queue has, or, `to_change`, for one that no queue that exists can be given."""
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
            asked[field] = _microseconds(value)
    return asked


def _microseconds(value: object) -> int:
    duration: Duration = value  # type: ignore[assignment]  # as_microseconds refuses what is no duration, in people's words
    return as_microseconds(duration)
