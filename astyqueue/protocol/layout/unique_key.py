"""Columns that change when a message is deleted: its unique key is freed, and an idempotent send leaves a mark.

The process that leased the message knows both from its envelope, and changes them in the commit that settles it, under
its timer. Any other process reads the key, and frees it on condition that it still names the message.

The key of a message that a schedule repeats belongs to the schedule, during runs and between them. Runs do not know the
key, except the last: the commit that fires it and ends the schedule makes that run the key's owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.errors import StoreCorrupt
from astyqueue.ids import Id
from astyqueue.model.envelope import FORMAT, Envelope, MessageId, unframed
from astyqueue.protocol.layout.columns import HIGHEST_PRIORITY, State, Type
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Column, Name, Named, Put

#: The first byte of a key's column whose owner is a schedule. Releases without such keys cannot read the column, so
#: they neither take nor free the key.
OF_SCHEDULE: Final = b"\x02"
#: Default seconds for which the mark of a settled idempotent send lasts.
REMEMBERED: Final = 24 * 3_600
_WIDTH: Final = len(ids.LEAST)
#: Bytes of `creation_nonce`, which distinguishes a schedule from an earlier one of the same name.
_MADE: Final = 8


class SettleEffects(NamedTuple):
    """The column of a key to free, and the column of a mark to write, which lasts `seconds`; None: nothing to do."""

    frees: Name | None = None
    leaves: Name | None = None
    seconds: int = REMEMBERED

    @property
    def mark(self) -> Put | None:
        """The mark to write, with its time to live; None if there is none."""
        return None if self.leaves is None else Put(self.leaves, FORMAT, ttl=self.seconds)


NOTHING: Final = SettleEffects()


def settle_effects(priority: int, id_: Id, envelope: Envelope) -> SettleEffects:
    """The columns to change when this message is settled."""
    frees = key_name(envelope.key) if envelope.unique and envelope.key is not None else None
    if not envelope.repeatable:
        return SettleEffects(frees)
    return SettleEffects(
        frees, removed_name(priority, id_), REMEMBERED if envelope.repeatable is True else envelope.repeatable
    )


def key_name(key: str) -> Name:
    """The column of a unique key."""
    return Name(Type.KEY, 0, ids.of_text(key), State.NONE)


def removed_name(priority: int, id_: Id) -> Name:
    """The column that marks an idempotent send as settled."""
    return Name(Type.REMOVED, priority, id_, State.NONE)


class KeyOwner(NamedTuple):
    """The message that has a unique key, in the same row; the key's text distinguishes keys of the same hash."""

    key: str
    priority: int
    id: Id

    def message(self, row: str) -> MessageId:
        """The message that has the key."""
        return MessageId(row, self.priority, self.id)

    def encode(self) -> bytes:
        """The value of the key's column."""
        return FORMAT + bytes([self.priority]) + self.id + self.key.encode()


class KeyOwningSchedule(NamedTuple):
    """The schedule that has a unique key, in the same row: the one that was made with this nonce."""

    key: str
    creation_nonce: str

    def encode(self) -> bytes:
        """The value of the key's column."""
        return OF_SCHEDULE + bytes.fromhex(self.creation_nonce) + self.key.encode()


def decode_owner(row: str, value: bytes) -> KeyOwner | KeyOwningSchedule:
    """The owner of a key; raises StoreCorrupt if it cannot be read: the key can then neither be taken nor freed."""
    try:
        return _owning_schedule(value) if value[:1] == OF_SCHEDULE else _owning_message(unframed(value))
    except ValueError as error:
        message = (
            f"row {row}: the column of a unique key cannot be read ({error}). It was written by a newer astyqueue "
            "(upgrade this process) or damaged (restore it from a backup); other keys are not affected"
        )
        raise StoreCorrupt(message) from error


def _owning_message(content: bytes) -> KeyOwner:
    owner = KeyOwner(content[1 + _WIDTH :].decode(), content[0] if content else 0, content[1 : 1 + _WIDTH])
    if owner.key and owner.priority <= HIGHEST_PRIORITY and owner.id <= ids.GREATEST:
        return owner
    message = f"it names no message, in {len(content)} bytes"
    raise ValueError(message)


def _owning_schedule(value: bytes) -> KeyOwningSchedule:
    owner = KeyOwningSchedule(value[1 + _MADE :].decode(), value[1 : 1 + _MADE].hex())
    if owner.key:
        return owner
    message = f"it names no schedule, in {len(value)} bytes"
    raise ValueError(message)


def owned_keys(row: str, going: Mapping[Id, SettleEffects]) -> Steps[list[Column]]:
    """The columns, as they are now, of the keys to free that still name their message.

    Of several messages with a key, one may own it; the others were superseded.
    """
    names: dict[Name, set[Id]] = {}
    for id_, effects in going.items():
        if effects.frees is not None:
            names.setdefault(effects.frees, set()).add(id_)
    if not names:
        return []
    columns = yield from read_one(Named(row, tuple(names)), exact=True)
    return [column for column in columns if _names_one_of(row, column.value, names[column.name])]


def _names_one_of(row: str, value: bytes, messages: set[Id]) -> bool:
    """Whether a key names one of these messages; one that cannot be read is left alone: it affects only its users."""
    try:
        owner = decode_owner(row, value)
    except StoreCorrupt:
        return False
    return isinstance(owner, KeyOwner) and owner.id in messages
