"""The settings of a queue, as they are kept in the store, and the list of queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.errors import LayoutDiffers, NotFound, OutcomeUnknown, StoreUnavailable, Undecodable
from astyqueue.model.message import FORMAT
from astyqueue.model.names import check_queue_name
from astyqueue.model.settings import Behaviour, Layout, Settings
from astyqueue.model.wording import bad_setting, spelled, spelled_name
from astyqueue.protocol.pages import PAGE
from astyqueue.protocol.raising import TRIES
from astyqueue.protocol.rows import QUEUES, settings_row
from astyqueue.protocol.steps import Steps, commit, read_column, read_one
from astyqueue.store import Batch, Committed, Expectation, Name, Put, Slice, Spread

#: The one column of a settings row.
SETTINGS: Final = Name(0, 0, ids.LEAST, 0)
_ONE_ROW: Final = Spread()


class Difference(NamedTuple):
    """A setting that is stored otherwise than it was asked for, as people write it."""

    name: str
    stored: object
    asked: object


class Opened(NamedTuple):
    """The settings that count for a queue. `differs`: behaviour that was asked for and is not what is stored."""

    settings: Settings
    created: bool
    differs: tuple[Difference, ...] = ()


def open_queue(name: str, *, layout: Mapping[str, object], behaviour: Mapping[str, object], spread: Spread = _ONE_ROW) -> Steps[Opened]:
    """Create a queue, or join the one that exists; of two who create it at once, one joins the other's.

    Give only the fields that are asked for; a queue that is new is laid out by `spread` for the rest. A stored layout that
    differs in one of them raises LayoutDiffers. Stored behaviour counts, whatever is asked; it is changed by
    `change_behaviour` alone, so that a process that starts with an old configuration changes nothing for the others.
    """
    asked = _settings(check_queue_name(name), spread._asdict() | dict(layout), behaviour)
    created, stored = yield from _load_or_create(asked)
    if differences := _differences(stored.layout, asked.layout, layout):
        raise LayoutDiffers(name, differences)
    yield from _list(name)
    return Opened(stored, created, _differences(stored.behaviour, asked.behaviour, behaviour))


def _load_or_create(asked: Settings) -> Steps[tuple[bool, Settings]]:
    """Whether the settings were created here, and those that count."""
    created = False
    for _ in range(TRIES):
        stored = yield from load_settings(asked.name, exact=True)
        if stored is not None:
            return created, stored
        created = yield from _change(settings_row(asked.name), SETTINGS, (None, encode_settings(asked)))
    raise _never_still(settings_row(asked.name))


def load_settings(name: str, *, exact: bool = False) -> Steps[Settings | None]:
    """The stored settings of a queue, if it exists; those that cannot be read raise Undecodable."""
    column = yield from read_column(settings_row(name), SETTINGS, exact=exact)
    return decode_settings(name, column.value) if column else None


def change_behaviour(name: str, changes: Mapping[str, object]) -> Steps[Settings]:
    """Change these fields of a queue's behaviour, and no others; the settings that count from now on.

    A value that a queue cannot have raises BadSetting, a queue that does not exist NotFound.
    """

    def changed(stored: Settings) -> Settings:
        return _settings(name, stored.layout.model_dump(), stored.behaviour.model_dump() | dict(changes))

    return (yield from _exchange(name, changed))


def _exchange(name: str, change: Callable[[Settings], Settings]) -> Steps[Settings]:
    """Replace the stored settings by what becomes of them, unless somebody else did in between: then of theirs."""
    for _ in range(TRIES):
        column = yield from read_column(settings_row(name), SETTINGS, exact=True)
        if column is None:
            message = f"there is no queue {name!r}"
            raise NotFound(message)
        wanted = change(decode_settings(name, column.value))
        value = encode_settings(wanted)
        if value == column.value or (yield from _change(settings_row(name), SETTINGS, (column.value, value))):
            return wanted
    raise _never_still(settings_row(name))


def list_queues() -> Steps[list[str]]:
    """The names of all queues of the store, in alphabetical order."""
    names: list[str] = []
    after, beyond = ids.LEAST, False
    while True:
        page = yield from read_one(Slice(QUEUES, SETTINGS.type, 0, after=after, beyond=beyond, limit=PAGE))
        names += [_decode_name(column.value) for column in page]
        if len(page) < PAGE:
            return sorted(names)
        after, beyond = page[-1].name.id, True


def forget_settings(name: str) -> Steps[None]:
    """Forget a queue: its settings first, then its entry in the list; what is gone already is left so."""
    yield from _remove(settings_row(name), SETTINGS)
    yield from _remove(QUEUES, _entry(name))


def _entry(name: str) -> Name:
    return Name(SETTINGS.type, 0, ids.of_text(name), 0)


def _list(name: str) -> Steps[None]:
    """See to it that a queue is in the list of queues."""
    for _ in range(TRIES):
        if (yield from read_column(QUEUES, _entry(name), exact=True)):
            return
        yield from _change(QUEUES, _entry(name), (None, FORMAT + to_json(name)))
    raise _never_still(QUEUES)


def _remove(row: str, column_name: Name) -> Steps[None]:
    for _ in range(TRIES):
        column = yield from read_column(row, column_name, exact=True)
        if column is None or (yield from _change(row, column_name, (column.value, None))):
            return
    raise _never_still(row)


def _change(row: str, name: Name, values: tuple[bytes | None, bytes | None]) -> Steps[bool]:
    """Replace one value of a column by another; False if it was another one already, or if that cannot be told."""
    known, wanted = values
    batch = Batch(row, deletes=(name,)) if wanted is None else Batch(row, (Put(name, wanted),))
    try:
        outcome = yield from commit(batch, (Expectation(name, known),))
    except OutcomeUnknown:
        column = yield from read_column(row, name, exact=True)
        return (column.value if column else None) == wanted
    return isinstance(outcome, Committed)


def _never_still(row: str) -> StoreUnavailable:
    message = f"row {row}: {TRIES} tries to change it did not go through; try again when others leave it alone or the store answers"
    return StoreUnavailable(message)


def encode_settings(settings: Settings) -> bytes:
    """The value of the settings column."""
    return FORMAT + settings.model_dump_json().encode()


def decode_settings(name: str, value: bytes) -> Settings:
    """The settings that are stored so; a newer format, or damage, raises Undecodable."""
    try:
        return Settings.model_validate_json(_content(value), strict=True)
    except ValueError as error:
        raise Undecodable(settings_row(name), "the settings", _first_line(error)) from error


def _decode_name(value: bytes) -> str:
    try:
        return check_queue_name(from_json(_content(value)))
    except ValueError as error:
        raise Undecodable(QUEUES, f"the entry {value!r:.80}", _first_line(error)) from error


def _content(value: bytes) -> bytes:
    if value[:1] != FORMAT:
        message = f"format byte {value[:1].hex() or 'missing'}, and this astyqueue knows {FORMAT.hex()}"
        raise ValueError(message)
    return value[1:]


def _first_line(error: ValueError) -> str:
    """What is wrong, without pydantic's pages of detail."""
    if isinstance(error, ValidationError):
        return str(bad_setting(error))
    return str(error)


def _settings(name: str, layout: Mapping[str, object], behaviour: Mapping[str, object]) -> Settings:
    try:
        return Settings(
            name=name,
            layout=Layout.model_validate(dict(layout), strict=True),
            behaviour=Behaviour.model_validate(dict(behaviour), strict=True),
        )
    except ValidationError as error:
        raise bad_setting(error) from error


def _differences(stored: Layout | Behaviour, asked: Layout | Behaviour, fields: Mapping[str, object]) -> tuple[Difference, ...]:
    """The asked fields that are stored otherwise, in people's words."""
    values = [(field, getattr(stored, field), getattr(asked, field)) for field in fields]
    return tuple(
        Difference(spelled_name(field), spelled(field, there), spelled(field, wanted)) for field, there, wanted in values if there != wanted
    )
