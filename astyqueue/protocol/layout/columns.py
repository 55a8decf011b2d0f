"""The columns of a row and the encoding of their values.

Every value begins with a format byte. Headers and timers are packed, because they are rewritten all the time; dead
columns are JSON, because operators read them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import starmap
from operator import itemgetter
from typing import Final, NamedTuple

from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.durations import LATEST
from astyqueue.errors import Undecodable
from astyqueue.ids import Id, Nonce
from astyqueue.model.envelope import FORMAT, unframed
from astyqueue.protocol.steps import Client
from astyqueue.store import Name
from astyqueue.units import NEVER, SECOND

#: Plain sends carry a write time this long ago, so that every delete of them wins although clocks differ.
STAMP_BACK: Final = 3_600 * SECOND


class Type(IntEnum):
    """The kinds of columns in a row, in their order in the store.

    LOCK: the header, the cell of rescans, and the columns of row locks. TRIGGER: schedules.
    """

    LOCK = 0
    KEY = 1
    MESSAGE = 2
    TIMER = 3
    DEAD = 4
    TRIGGER = 5
    REMOVED = 6


class State(IntEnum):
    """Why the messages of a timer are hidden; plain columns have WAITING (messages) or NONE (all others).

    A timer of state NEXT_OCCURRENCE hides no message: it is due when the schedule named by its `holder` has something
    to do. Messages of a BLOCKED timer wait for an earlier one of their group; the timer itself is never due.
    """

    NONE = 0
    WAITING = 1
    LEASED = 2
    BACKING_OFF = 3
    SNOOZED = 4
    PARKED = 5
    NEXT_OCCURRENCE = 6
    BLOCKED = 7


#: Plain numbers for the innermost loops, where access to an enumeration's member costs as much as making the name.
_MESSAGE: Final = int(Type.MESSAGE)
_WAITING: Final = int(State.WAITING)
#: Creating a named tuple this way halves the cost; names are made several times for every message.
_new: Final = tuple.__new__

HEADER: Final = Name(Type.LOCK, 0, ids.LEAST, State.NONE)
#: Scans of each range of ids: one when it is due, and three late ones for sends that arrive late.
SCANS: Final = 4
#: Characters of a reason kept in a dead column; the logs have all of it.
REASON_LENGTH: Final = 1024

Cursors = tuple[Id, ...]

_HEADER: Final = struct.Struct(">QQ8sBB")
_TIMER: Final = struct.Struct(">H8sHBB")
_ENTRY: Final = struct.Struct(">16sBH")
_MARK: Final = struct.Struct(">16sBHQ")
#: The same with a group, in timers that list a message of one.
_GROUPED_ENTRY: Final = struct.Struct(">16sBHQ")
_GROUPED_MARK: Final = struct.Struct(">16sBHQQ")
#: A timer's flags: `alone`, whether its entries and marks have groups, and `isolated`.
_ALONE: Final = 1
_GROUPED: Final = 2
_ISOLATED: Final = 4
_COUNT: Final = struct.Struct(">H")
#: The bit of an entry's attempts that says that it was superseded; attempts need fewer.
_SUPERSEDED: Final = 0x8000
#: Most bytes of a name, whose length is stored in one byte.
_NAME_BYTES: Final = 255
#: The greatest version and floor, which leaves room for the next, and the highest priority of any queue.
_GREATEST_NUMBER: Final = NEVER
HIGHEST_PRIORITY: Final = 9
_TIMER_STATES: Final = frozenset(State) - {State.NONE, State.WAITING}
#: A timer's first number is this, less what the timer lists: see `Timer.encode`.
_EMPTY: Final = 0xFFFF
#: Bytes of a group's hash.
_HASH: Final = 8


def message_name(priority: int, id_: Id) -> Name:
    """The column of a message, from its send until it is deleted."""
    return _new(Name, (_MESSAGE, priority, id_, _WAITING))


def dead_name(priority: int, id_: Id) -> Name:
    """The column that makes a message a dead letter."""
    return Name(Type.DEAD, priority, id_, State.NONE)


@dataclass(frozen=True, slots=True)
class Header:
    """The column that every commit of a row, except a settle, expects unchanged and writes with the next version.

    `floor` (microseconds): no timer is due before it. `cursors`: per priority, the position of each scan.
    """

    version: int
    floor: int
    nonce: Nonce
    owner: str
    cursors: tuple[Cursors, ...]

    def encode(self) -> bytes:
        """The value of the header column."""
        owner = _short(self.owner)
        packed = _HEADER.pack(self.version, self.floor, self.nonce, len(owner), len(self.cursors))
        return FORMAT + packed + owner + b"".join(b"".join(cursors) for cursors in self.cursors)


def decode_header(row: str, value: bytes) -> Header:
    """The header of a row; raises Undecodable if it cannot be read, and the row is not claimed from."""
    try:
        packed = unframed(value)
        version, floor, nonce, length, levels = _HEADER.unpack_from(packed)
        _in_range(max(version, floor), "its version or its floor", _GREATEST_NUMBER)
        start = _HEADER.size
        owner = packed[start : start + length].decode()
        split = _split(packed[start + length :], levels * SCANS)
    except (ValueError, struct.error) as error:
        raise Undecodable(row, "its header", str(error)) from error
    cursors = tuple(split[level * SCANS : (level + 1) * SCANS] for level in range(levels))
    return Header(version, floor, nonce, owner, cursors)


def _split(packed: bytes, count: int) -> tuple[Id, ...]:
    width = len(ids.LEAST)
    if len(packed) != count * width:
        message = f"header has {len(packed)} bytes of cursors, expected {count * width}"
        raise ValueError(message)
    return tuple(packed[at : at + width] for at in range(0, len(packed), width))


def group_hash(group: str) -> int:
    """A message group as timers store it, never 0. Two groups with one hash are treated as one group."""
    return int.from_bytes(hashlib.blake2b(group.encode(), digest_size=_HASH).digest()) or 1


class Entry(NamedTuple):
    """A message that a timer hides; `spent`: the attempts used so far.

    `superseded`: it is leased, and another message has its unique key since. It is not delivered again. `group`: the
    hash of its group once a claim has read the message; until then, and without a group, 0.
    """

    id: Id
    priority: int
    spent: int
    superseded: bool = False
    group: int = 0


class Mark(NamedTuple):
    """A message given back before its timer is due: to be delivered again from `due` (microseconds) on."""

    id: Id
    priority: int
    spent: int
    due: int
    group: int = 0


_GROUP_OF_ENTRY: Final = itemgetter(Entry._fields.index("group"))
_GROUP_OF_MARK: Final = itemgetter(Mark._fields.index("group"))


@dataclass(frozen=True, slots=True)
class Timer:
    """A column that hides messages until the time in its name.

    `nonce` identifies the claim: all timers that descend from it have the same. `made_for`: the number of messages that
    the claim put into one timer. `alone`: its holder had no other lease. `isolated`: it was claimed as a suspect, so
    its holder also claims nothing beside it.
    """

    name: Name
    entries: tuple[Entry, ...]
    nonce: Nonce
    holder: str
    made_for: int
    alone: bool = False
    isolated: bool = False
    marks: tuple[Mark, ...] = ()
    value: bytes = field(default=b"", compare=False)

    @property
    def due(self) -> int:
        """When its messages may be claimed again, in microseconds since 1970."""
        return ids.moment(self.name.id)

    @property
    def state(self) -> int:
        """Why its messages are hidden."""
        return self.name.state

    @property
    def grouped(self) -> bool:
        """Whether it lists a message of a group."""
        return any(map(_GROUP_OF_ENTRY, self.entries)) or any(map(_GROUP_OF_MARK, self.marks))

    def encode(self) -> bytes:
        """The value of the timer column.

        Servers whose clocks differ may stamp two consecutive commits with the same microsecond, and of two values
        with one stamp Cassandra keeps the greater. So the value of a timer that shrinks in place begins with a number
        that grows: the later value wins.
        """
        holder = _short(self.holder)
        superseded = [entry for entry in self.entries if entry.superseded]
        shrink_count = _EMPTY - 2 * len(self.entries) - len(self.marks) + len(superseded)
        grouped = self.grouped
        flags = self.alone * _ALONE | grouped * _GROUPED | self.isolated * _ISOLATED
        return b"".join(
            (
                FORMAT,
                _TIMER.pack(shrink_count, self.nonce, self.made_for, flags, len(holder)),
                holder,
                _COUNT.pack(len(self.entries)),
                *(_packed_with_groups(self) if grouped else _packed(self)),
            )
        )


def _packed(timer: Timer) -> list[bytes]:
    return [
        *[
            _ENTRY.pack(id_, level, spent | superseded * _SUPERSEDED)
            for id_, level, spent, superseded, _ in timer.entries
        ],
        *[_MARK.pack(*mark[:-1]) for mark in timer.marks],
    ]


def _packed_with_groups(timer: Timer) -> list[bytes]:
    return [
        *[
            _GROUPED_ENTRY.pack(id_, level, spent | superseded * _SUPERSEDED, group)
            for id_, level, spent, superseded, group in timer.entries
        ],
        *[_GROUPED_MARK.pack(*mark) for mark in timer.marks],
    ]


def decode_timer(row: str, name: Name, value: bytes) -> Timer:
    """A timer of a row; raises Undecodable if it cannot be read, and the row is not claimed from."""
    try:
        packed = unframed(value)
        _, nonce, made_for, flags, length = _TIMER.unpack_from(packed)
        start = _TIMER.size
        holder = packed[start : start + length].decode()
        (count,) = _COUNT.unpack_from(packed, start + length)
        entry, mark = (_GROUPED_ENTRY, _GROUPED_MARK) if flags & _GROUPED else (_ENTRY, _MARK)
        first = start + length + _COUNT.size
        last = first + count * entry.size
        if last > len(packed):
            _cut_short(count)
        entries = tuple(starmap(_entry, entry.iter_unpack(packed[first:last])))
        marks = tuple(starmap(Mark, mark.iter_unpack(packed[last:])))
        _check_listed(name, (*entries, *marks))
    except (ValueError, struct.error) as error:
        raise Undecodable(row, f"the timer {ids.text(name.id)}/{name.state}", str(error)) from error
    return Timer(
        name=name,
        entries=entries,
        nonce=nonce,
        holder=holder,
        made_for=made_for,
        alone=bool(flags & _ALONE),
        isolated=bool(flags & _ISOLATED),
        marks=marks,
        value=value,
    )


def _entry(id_: Id, level: int, spent: int, group: int = 0) -> Entry:
    return Entry(id_, level, spent & ~_SUPERSEDED, spent >= _SUPERSEDED, group)


def _cut_short(count: int) -> None:
    message = f"it lists {count} messages and is cut short"
    raise ValueError(message)


def _check_listed(name: Name, listed: tuple[Entry | Mark, ...]) -> None:
    """Raise ValueError for an unknown state, for an occurrence's timer that lists messages, and for invalid ids.

    Also for a BLOCKED timer that lists a message without a group, or with a mark: no claim would ever get it.
    """
    if name.state not in _TIMER_STATES or (listed and name.state == State.NEXT_OCCURRENCE):
        message = f"its state is {name.state}, and it lists {len(listed)} messages"
        raise ValueError(message)
    if name.state == State.BLOCKED and not all(isinstance(one, Entry) and one.group for one in listed):
        message = "it lists blocked messages that are in no group"
        raise ValueError(message)
    if listed:
        _in_range(max(one.priority for one in listed), "a priority in it", HIGHEST_PRIORITY)
        if max(one.id for one in listed) > ids.GREATEST:
            message = "it lists invalid ids"
            raise ValueError(message)


def _in_range(number: int, what: str, greatest: int) -> None:
    if number > greatest:
        message = f"{what} is {number}, and at most {greatest} is valid"
        raise ValueError(message)


def _short(name: str) -> bytes:
    """A name cut to 255 bytes, between two characters."""
    return name.encode()[:_NAME_BYTES].decode(errors="ignore").encode()


class Dead(NamedTuple):
    """Why a message is a dead letter: since when (microseconds), attempts, kind, reason, and its last claim's nonce."""

    at: int
    attempts: int
    kind: str
    reason: str
    claim: str

    def encode(self) -> bytes:
        """The value of the dead column; surrogates in the reason, as in undecodable file names, are escaped."""
        reason = self.reason[:REASON_LENGTH].encode(errors="backslashreplace").decode()
        return FORMAT + to_json(self._replace(reason=reason))


#: The types of a dead column's fields, in order.
_DEAD_TYPES: Final = [int, int, str, str, str]


def decode_dead(value: bytes) -> Dead:
    """Why a message is dead; of kind "undecodable" if that cannot be read, as only operators need it."""
    try:
        fields = from_json(unframed(value))
    except ValueError as error:
        return _unreadable(str(error))
    if type(fields) is list and list(map(type, fields)) == _DEAD_TYPES and ids.is_moment(fields[0]):
        return Dead._make(fields)
    return _unreadable("its fields have the wrong types")


def _unreadable(why: str) -> Dead:
    return Dead(0, 0, "undecodable", f"its dead column cannot be read: {why}", "")


def encoded(timer: Timer) -> Timer:
    """The same timer with its value encoded."""
    return replace(timer, value=timer.encode())


def visible_at(process: Client, due: int, entries: Iterable[Entry]) -> Timer:
    """A timer that makes these messages claimable at `due` (microseconds), by any process."""
    listed = tuple(entries)
    name = Name(Type.TIMER, 0, process.id_at(due), State.SNOOZED)
    return encoded(Timer(name, listed, process.nonce(), "", len(listed)))


def blocked_timer(process: Client, entries: Iterable[Entry]) -> Timer:
    """A timer for messages that wait for an earlier one of their group; its moment, in the year 5000, never comes."""
    listed = tuple(entries)
    name = Name(Type.TIMER, 0, process.id_at(LATEST), State.BLOCKED)
    return encoded(Timer(name, listed, process.nonce(), "", len(listed)))


def timer_without(timer: Timer, leaving: set[Id]) -> Timer | None:
    """The timer without these messages, under the same name; None if nothing remains."""
    entries = tuple(entry for entry in timer.entries if entry.id not in leaving)
    marks = tuple(mark for mark in timer.marks if mark.id not in leaving)
    return encoded(replace(timer, entries=entries, marks=marks)) if entries or marks else None


def timer_superseding(timer: Timer, id_: Id) -> Timer:
    """The timer in which this message is superseded, under the same name."""
    entries = tuple(entry._replace(superseded=True) if entry.id == id_ else entry for entry in timer.entries)
    return encoded(replace(timer, entries=entries))


def hidden_by(timer: Timer) -> list[Entry | Mark]:
    """The messages that a timer hides: its entries and marks."""
    return [*timer.entries, *timer.marks]
