"""What goes along when a message goes for good: its unique key is free again, and of a repeatable send a mark is left.

Whoever has the message in hand knows both from its envelope, and changes them under its timer in the very commit that settles
it. Anybody else reads the key, and frees it on condition that it still names the message.

The key of a message that comes again is its schedule's, between the runs and during them. So the runs know nothing of the
key, but for the last: as the schedule ends, the commit that fires that run hands it the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.errors import StoreCorrupt
from astyqueue.ids import Id
from astyqueue.model.message import FORMAT, Envelope, MessageId
from astyqueue.protocol.columns import HIGHEST_PRIORITY, State, Type
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Column, Name, Named, Put

#: The first byte of the column of a key that a schedule has. A release that knows of keys of messages only cannot read such a
#: column, and neither takes nor frees the key.
OF_SCHEDULE: Final = b"\x02"
#: Seconds for which it is remembered that a repeatable send was settled, unless its envelope says for how long.
REMEMBERED: Final = 24 * 3_600
_WIDTH: Final = len(ids.LEAST)
#: Bytes of the mark by which a schedule is told from an earlier one of its name.
_MADE: Final = 8


class Along(NamedTuple):
    """The column of a key that is freed, and the mark that is left for so many seconds; None where there is none."""

    frees: Name | None = None
    leaves: Name | None = None
    seconds: int = REMEMBERED

    @property
    def mark(self) -> Put | None:
        """The mark, which goes by itself."""
        return None if self.leaves is None else Put(self.leaves, FORMAT, ttl=self.seconds)


NOTHING: Final = Along()


def goes_along(priority: int, id_: Id, envelope: Envelope) -> Along:
    """What goes along with this message."""
    frees = key_name(envelope.key) if envelope.unique and envelope.key is not None else None
    if not envelope.repeatable:
        return Along(frees)
    return Along(frees, removed_name(priority, id_), REMEMBERED if envelope.repeatable is True else envelope.repeatable)


def key_name(key: str) -> Name:
    """The column of a unique key."""
    return Name(Type.KEY, 0, ids.of_text(key), State.NONE)


def removed_name(priority: int, id_: Id) -> Name:
    """The column that tells of a repeatable send that it was settled."""
    return Name(Type.REMOVED, priority, id_, State.NONE)


class Owner(NamedTuple):
    """Which message of its row has a unique key; the key's own text tells keys of one hash apart."""

    key: str
    priority: int
    id: Id

    def message(self, row: str) -> MessageId:
        """The message that has the key."""
        return MessageId(row, self.priority, self.id)

    def encode(self) -> bytes:
        """The value of the key's column."""
        return FORMAT + bytes([self.priority]) + self.id + self.key.encode()


class ScheduleOwner(NamedTuple):
    """Which schedule of its row has a unique key: the one of that name which was made with this mark."""

    key: str
    made: str

    def encode(self) -> bytes:
        """The value of the key's column."""
        return OF_SCHEDULE + bytes.fromhex(self.made) + self.key.encode()


def decode_owner(row: str, value: bytes) -> Owner | ScheduleOwner:
    """Whose a key is; StoreCorrupt if that cannot be read, and then the key can neither be taken nor freed."""
    try:
        if value[:1] == FORMAT and len(value) > _WIDTH + 2:
            owner = Owner(value[2 + _WIDTH :].decode(), value[1], value[2 : 2 + _WIDTH])
            if owner.priority <= HIGHEST_PRIORITY and owner.id <= ids.GREATEST:
                return owner
        if value[:1] == OF_SCHEDULE and len(value) > _MADE + 1:
            return ScheduleOwner(value[1 + _MADE :].decode(), value[1 : 1 + _MADE].hex())
        why = f"format byte {value[:1].hex() or 'missing'}, {len(value)} bytes"
    except UnicodeDecodeError as error:
        why = str(error)
    message = (
        f"row {row}: the column of a unique key cannot be read ({why}). It was written by a newer astyqueue (upgrade this process) "
        "or damaged (restore it from a backup); other keys are not concerned"
    )
    raise StoreCorrupt(message)


def owned(row: str, going: Mapping[Id, Along]) -> Steps[list[Column]]:
    """Those of the keys that these messages should free which they really have, as they are now."""
    names = {along.frees: id_ for id_, along in going.items() if along.frees is not None}
    if not names:
        return []
    columns = yield from read_one(Named(row, tuple(names)), exact=True)
    return [column for column in columns if _names(row, column.value, names[column.name])]


def _names(row: str, value: bytes, id_: Id) -> bool:
    """Whether a key is this message's; one that cannot be read is left alone, for that stops nobody but who wants the key."""
    try:
        owner = decode_owner(row, value)
    except StoreCorrupt:
        return False
    return isinstance(owner, Owner) and owner.id == id_
