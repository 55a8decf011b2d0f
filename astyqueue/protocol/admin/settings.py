"""The stored settings of a queue, and the list of queues."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple, NoReturn

from pydantic import JsonValue, ValidationError
from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.errors import BadSetting, LayoutDiffers, NotFound, Undecodable
from astyqueue.model.envelope import FORMAT, unframed
from astyqueue.model.priority_class import check_sorting
from astyqueue.model.settings import (
    FORWARD,
    ROWS_AT_MOST,
    Behaviour,
    Layout,
    Settings,
    bad_setting,
    check_queue_name,
    setting_name,
    setting_text,
)
from astyqueue.observe.observers import UNOBSERVED, Observers
from astyqueue.protocol.layout.rows import QUEUES, settings_row
from astyqueue.protocol.row.compare_and_set import update
from astyqueue.protocol.row.paging import PAGE_SIZE
from astyqueue.protocol.steps import Steps, read_column, read_one
from astyqueue.store import Name, Slice, Spread
from astyqueue.structured_log import log_event

#: The one column of a settings row.
SETTINGS: Final = Name(0, 0, ids.LEAST, 0)
_ONE_ROW: Final = Spread()
#: Settings that older releases do not know.
_NEWER: Final = (
    "deduplication_us",
    "lease_cap_us",
    "max_attempts_cap",
    "max_active_processes",
    "permit_lease_us",
    "last_value",
    "max_messages",
    "overflow",
    "overflow_to",
    "overflow_wait_us",
    "expires_us",
    "expires_cap_us",
    "sort_header",
    "sort_classes",
    "sort_order",
    "sort_missing",
)
_DEFAULTS: Final = Behaviour()
_log: Final = logging.getLogger("astyqueue.queue")


class Difference(NamedTuple):
    """A setting whose stored value differs from the requested one, both as users write them."""

    name: str
    stored: object
    asked: object


class OpenedSettings(NamedTuple):
    """The settings of a queue. `differs`: requested behaviour that is stored with another value."""

    settings: Settings
    created: bool
    differs: tuple[Difference, ...] = ()


def open_queue(
    name: str,
    *,
    layout: Mapping[str, object],
    behaviour: Mapping[str, object],
    spread: Spread = _ONE_ROW,
    observers: Observers = UNOBSERVED,
) -> Steps[OpenedSettings]:
    """Create a queue, or open the existing one; if two processes create it at once, one opens the other's.

    Pass only the requested fields; the layout of a new queue has `spread` for the rest. Raises LayoutDiffers if the
    stored layout differs in a requested field. Stored behaviour is not changed by a request, only by
    `change_behaviour`, so that a process that starts with an old configuration changes nothing for the others.
    """
    asked = _settings(check_queue_name(name), spread._asdict() | dict(layout), behaviour)
    yield from _check_overflow(asked)
    created, stored = yield from _load_or_create(asked, observers)
    check_layout(stored, layout)
    yield from _enter(name, observers)
    return OpenedSettings(stored, created, _differences(stored.behaviour, asked.behaviour, behaviour))


def check_layout(stored: Settings, layout: Mapping[str, object]) -> None:
    """Raise LayoutDiffers if the stored layout of a queue differs in a requested field."""
    asked = _settings(stored.name, stored.layout.model_dump() | dict(layout), {})
    if differences := _differences(stored.layout, asked.layout, layout):
        raise LayoutDiffers(stored.name, differences)


def _load_or_create(asked: Settings, observers: Observers) -> Steps[tuple[bool, Settings]]:
    """Whether this call created the settings, and the stored settings."""

    def created(stored: bytes | None) -> bytes:
        if stored is not None:
            return stored
        _check_rows(asked)
        return encode_settings(asked)

    cell = yield from update(settings_row(asked.name), SETTINGS, created, observers=observers)
    return cell.changed, decode_settings(asked.name, cell.value)


def _check_rows(asked: Settings) -> None:
    """Refuse to create a queue with too many rows for its processes to scan; an existing one can be opened."""
    if asked.layout.rows > ROWS_AT_MOST:
        layout = asked.layout
        message = (
            f"time_shards={layout.time_shards} and concurrency_shards={layout.concurrency_shards} make {layout.rows} "
            f"rows with the home rows, and a queue has {ROWS_AT_MOST} at most: take fewer time shards, each for longer "
            "(every=), or fewer concurrency shards"
        )
        raise BadSetting(message)


def load_settings(name: str, *, exact: bool = False, last: Behaviour = _DEFAULTS) -> Steps[Settings | None]:
    """The stored settings of a queue, None if it does not exist; raises Undecodable if they cannot be read.

    A single field of the behaviour that cannot be read has its value from `last`.
    """
    column = yield from read_column(settings_row(name), SETTINGS, exact=exact)
    return decode_settings(name, column.value, last) if column else None


def change_behaviour(name: str, changes: Mapping[str, object], observers: Observers = UNOBSERVED) -> Steps[Settings]:
    """Change these fields of a queue's behaviour; returns the new settings. Fields that cannot be read here are kept.

    Raises BadSetting for an invalid value, NotFound if the queue does not exist.
    """

    def changed(value: bytes | None) -> bytes:
        if value is None:
            message = f"there is no queue {name!r}"
            raise NotFound(message)
        stored = decode_settings(name, value)
        wanted = _settings(name, stored.layout.model_dump(), stored.behaviour.model_dump() | dict(changes))
        unread = {field: written for field, written in stored.unread.items() if field not in changes}
        return encode_settings(wanted.model_copy(update={"unread": unread}))

    if "overflow" in changes or "overflow_to" in changes:
        column = yield from read_column(settings_row(name), SETTINGS, exact=True)
        yield from _check_overflow(decode_settings(name, changed(column.value if column else None)))
    cell = yield from update(settings_row(name), SETTINGS, changed, observers=observers)
    return decode_settings(name, cell.value)


def _check_overflow(wanted: Settings) -> Steps[None]:
    """Raise BadSetting if `overflow_to` names a missing queue or forms a cycle."""
    if wanted.behaviour.overflow != FORWARD:
        return
    passed, target = [wanted.name], wanted.behaviour.overflow_to
    while target not in passed:
        settings = (yield from load_settings(target, exact=True)) if target else None
        if settings is None:
            whose = "" if passed[-1] == wanted.name else f" of {passed[-1]}"
            message = f"overflow_to{whose} is {target!r}, and there is no such queue: create it first"
            raise BadSetting(message)
        passed.append(target)
        if settings.behaviour.overflow != FORWARD:
            return
        target = settings.behaviour.overflow_to
    message = f"overflow_to would forward in a circle: {' to '.join([*passed, target])}"
    raise BadSetting(message)


class QueueList(NamedTuple):
    """The names of the queues of a store, in alphabetical order, and the errors of entries that cannot be read."""

    names: list[str]
    unreadable: list[Undecodable]


def read_queue_list() -> Steps[QueueList]:
    """The list of queues."""
    names: set[str] = set()
    unreadable: list[Undecodable] = []
    after, beyond = ids.LEAST, False
    while True:
        page = yield from read_one(Slice(QUEUES, SETTINGS.type, 0, after=after, beyond=beyond, limit=PAGE_SIZE))
        for column in page:
            try:
                names.add(_decode_name(column.value))
            except Undecodable as error:
                unreadable.append(error)
        if len(page) < PAGE_SIZE:
            return QueueList(sorted(names), unreadable)
        after, beyond = page[-1].name.id, True


def list_queues() -> Steps[list[str]]:
    """The names of all queues of the store, in alphabetical order; entries that cannot be read are logged."""
    listed = yield from read_queue_list()
    for error in listed.unreadable:
        log_event(_log, logging.WARNING, "queue_entry_unreadable", error=error)
    return listed.names


def delete_settings(name: str, observers: Observers = UNOBSERVED) -> Steps[None]:
    """Delete a queue's settings, then its entry in the list, if they exist.

    A process that creates the queue anew in between finds the old entry, so it is written again.
    """
    yield from update(settings_row(name), SETTINGS, lambda _: None, observers=observers)
    yield from update(QUEUES, _entry(name), lambda _: None, observers=observers)
    if (yield from read_column(settings_row(name), SETTINGS, exact=True)) is not None:
        yield from _enter(name, observers)


def _enter(name: str, observers: Observers) -> Steps[None]:
    """Enter a queue in the list, if it is not there."""
    entry = FORMAT + to_json(name)
    yield from update(QUEUES, _entry(name), lambda listed: entry if listed is None else listed, observers=observers)


def _entry(name: str) -> Name:
    return Name(SETTINGS.type, 0, ids.of_text(name), 0)


def encode_settings(settings: Settings) -> bytes:
    """The value of the settings column; older releases can read it while settings unknown to them have defaults."""
    unchanged = {
        field for field in _NEWER if getattr(settings.behaviour, field) == Behaviour.model_fields[field].default
    }
    stored = settings.model_dump(mode="json", exclude={"behaviour": unchanged})
    return FORMAT + to_json(stored | {"behaviour": stored["behaviour"] | settings.unread})


def decode_settings(name: str, value: bytes, last: Behaviour = _DEFAULTS) -> Settings:
    """The settings in a column; raises Undecodable for a newer format, damage, or an unknown layout."""
    try:
        stored = _object(from_json(unframed(value), allow_inf_nan=False))
        written = _object(stored.pop("behaviour", {}))
        settings = Settings.model_validate_json(to_json(stored), strict=True)
        if settings.name != name:
            _refuse(f"they are those of {settings.name!r:.120}")
    except ValueError as error:
        until = "The queue cannot be opened, or its settings be changed, until they can be read"
        raise Undecodable(settings_row(name), "the settings", _first_line(error), until=until) from error
    read = {field: value for field, value in written.items() if _is_behaviour(field, value)}
    unread = {field: value for field, value in written.items() if field not in read}
    known = {field: getattr(last, field) for field in unread if field in Behaviour.model_fields}
    return settings.model_copy(
        update={"behaviour": Behaviour.model_validate(known | read, strict=True), "unread": unread}
    )


def _object(value: object) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        _refuse(f"{value!r:.80} is not an object")
    return value


def _refuse(problem: str) -> NoReturn:
    raise ValueError(problem)


def _is_behaviour(field: str, value: JsonValue) -> bool:
    """Whether this release knows the field of the behaviour, and the value is valid."""
    try:
        Behaviour.model_validate({field: value}, strict=True)
    except ValidationError:
        return False
    return True


def _decode_name(value: bytes) -> str:
    try:
        return check_queue_name(from_json(unframed(value)))
    except ValueError as error:
        until = "It is skipped, and all other queues are listed, until it can be read"
        raise Undecodable(QUEUES, f"the entry {value!r:.80}", _first_line(error), until=until) from error


def _first_line(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        return str(bad_setting(error))
    return str(error)


def _settings(name: str, layout: Mapping[str, object], behaviour: Mapping[str, object]) -> Settings:
    try:
        settings = Settings(
            name=name,
            layout=Layout.model_validate(dict(layout), strict=True),
            behaviour=Behaviour.model_validate(dict(behaviour), strict=True),
        )
    except ValidationError as error:
        raise bad_setting(error) from error
    check_sorting(settings)
    return settings


def _differences(
    stored: Layout | Behaviour, asked: Layout | Behaviour, fields: Mapping[str, object]
) -> tuple[Difference, ...]:
    """The requested fields that are stored with another value, as users write them."""
    values = [(field, getattr(stored, field), getattr(asked, field)) for field in fields]
    return tuple(
        Difference(setting_name(field), setting_text(field, there), setting_text(field, wanted))
        for field, there, wanted in values
        if there != wanted
    )
