"""What commits put into a row, and two promises about it: a key has one owner, and each message is created once.

A message that is superseded while it is leased is no owner any more: its key is that of the message that took it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.model.envelope import decode
from astyqueue.model.schedule import Schedule
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.layout.schedule_column import decode_schedule, trigger_name
from astyqueue.protocol.layout.unique_key import KeyOwner, KeyOwningSchedule, decode_owner, key_name
from astyqueue.store import Name
from astyqueue.stores import column_name_codec
from tests.simulation.cassandra.storage import DELETED, Cell, Changes


@dataclass(slots=True)
class KeyModel:
    """The keys, schedules and messages that commits put into one row.

    `succeeded` are messages whose key another one took over, in the commit that put it.
    """

    row: str
    keys: dict[Name, KeyOwner | KeyOwningSchedule] = field(default_factory=dict)
    schedules: dict[Name, Schedule] = field(default_factory=dict)
    inserted: set[Id] = field(default_factory=set)
    inserted_twice: list[Id] = field(default_factory=list)
    succeeded: set[Id] = field(default_factory=set)
    _unique: dict[Id, Name] = field(default_factory=dict)

    def follow(self, changes: Changes) -> bool:
        """Apply a commit; returns whether it concerns keys, or messages that have one."""
        touched = False
        for encoded, cell in changes.items():
            if encoded[0] in _OURS:
                touched |= self._apply(column_name_codec.decode(encoded), cell)
        return touched

    def _apply(self, name: Name, cell: Cell) -> bool:
        deleted = cell.kind == DELETED
        match name.type, deleted:
            case Type.KEY, True:
                self.keys.pop(name, None)
            case Type.KEY, False:
                self._give(name, decode_owner(self.row, cell.value))
            case Type.TRIGGER, True:
                self.schedules.pop(name, None)
            case Type.TRIGGER, False:
                self.schedules[name] = decode_schedule(self.row, cell.value)
            case Type.MESSAGE, False:
                self._insert(name.id, cell.value)
        return name.type == Type.KEY or name.id in self._unique

    def _give(self, name: Name, owner: KeyOwner | KeyOwningSchedule) -> None:
        before = self.keys.get(name)
        self.keys[name] = owner
        if isinstance(owner, KeyOwner):
            self.succeeded.discard(owner.id)
            if isinstance(before, KeyOwner) and before.id != owner.id:
                self.succeeded.add(before.id)

    def _insert(self, id_: Id, value: bytes) -> None:
        if id_ in self.inserted:
            self.inserted_twice.append(id_)
        self.inserted.add(id_)
        envelope = decode(value)
        if envelope.unique and envelope.key is not None:
            self._unique[id_] = key_name(envelope.key)

    def wrong_keys(self, ended: set[Id], superseded: set[Id]) -> Iterator[str]:
        """What is wrong with the keys.

        Each living unique message must own its key, unless it is superseded: then another message must have taken it.
        Each key must belong to a living message or to a schedule.
        """
        for id_, name in self._unique.items():
            owner = self.keys.get(name)
            owns = isinstance(owner, KeyOwner) and owner.id == id_
            if id_ in superseded:
                if owns or id_ not in self.succeeded:
                    yield f"{ids.text(id_)} is superseded, and no other message took its key"
            elif id_ not in ended and not owns:
                wrong = f"{ids.text(id_)} lives, and its unique key is not its own"
                yield f"{wrong}: another message could have the key as well"
        for owner in self.keys.values():
            if isinstance(owner, KeyOwningSchedule):
                schedule = self.schedules.get(trigger_name(owner.key))
                if schedule is None or schedule.creation_nonce != owner.creation_nonce:
                    yield f"the key {owner.key!r} is a schedule's that is gone: no send can get the key"
            elif owner.id in ended or owner.id not in self.inserted:
                wrong = f"the key {owner.key!r} names {ids.text(owner.id)}, which is gone or dead"
                yield f"{wrong}: no send can get the key"


#: The types of the columns that this model follows.
_OURS = frozenset({Type.KEY, Type.MESSAGE, Type.DEAD, Type.TRIGGER})
