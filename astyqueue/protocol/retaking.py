"""Unique keys of dead letters that are put back: a letter has none, and takes its own again if nobody else has it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from astyqueue.errors import StoreCorrupt
from astyqueue.ids import Id
from astyqueue.model.message import MessageId
from astyqueue.protocol.along import Owner, key_name
from astyqueue.protocol.browse import contents
from astyqueue.protocol.keystate import FREE, KeyState, key_states
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Column, Name, Named, Put

#: By message: the column of its key, as it is and as it is to be; None if another message has the key, or nobody can tell who has.
Retaken = dict[Id, tuple[Column | None, Put] | None]


def retaken(row: str, dead: Sequence[MessageId]) -> Steps[Retaken]:
    """The keys that these dead letters of one row take again; letters without a unique key are not in it."""
    found = yield from contents(dead)
    owners = {
        id_.id: Owner(content.envelope.key, id_.priority, id_.id)
        for id_, content in found.items()
        if content.envelope and content.envelope.unique and content.envelope.key is not None
    }
    if not owners:
        return {}
    names = {key_name(owner.key) for owner in owners.values()}
    columns = yield from read_one(Named(row, tuple(names)), exact=True)
    try:
        states = yield from key_states(row, columns)
    except StoreCorrupt:
        states = yield from _readable_states(row, columns)
    return _first_come(owners, states, {column.name for column in columns} - states.keys())


def _readable_states(row: str, columns: Sequence[Column]) -> Steps[dict[Name, KeyState]]:
    """How those of the keys stand that can be read, or whose schedules can."""
    states: dict[Name, KeyState] = {}
    for column in columns:
        with suppress(StoreCorrupt):
            states |= yield from key_states(row, [column])
    return states


def _first_come(owners: dict[Id, Owner], states: dict[Name, KeyState], unreadable: set[Name]) -> Retaken:
    """Of several letters with one key, the first takes it."""
    keys: Retaken = {}
    gone = set(unreadable)
    for id_, owner in owners.items():
        name = key_name(owner.key)
        state = states.get(name, FREE)
        keys[id_] = None if state.owner or name in gone else (state.column, Put(name, owner.encode()))
        gone.add(name)
    return keys
