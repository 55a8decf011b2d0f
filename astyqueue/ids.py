"""Ids ordered by time: TimeUUIDs, stored as sixteen bytes that sort the way Cassandra sorts a timeuuid.

Cassandra compares the 60-bit time first and then the other eight bytes, each as a *signed* byte. An `Id` has the time,
big-endian, in its first eight bytes, then the other eight with their top bits flipped, so that comparing the bytes of
two ids gives the same order in every store.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import uuid
from typing import Final, NewType

from astyqueue.clock import Clock
from astyqueue.units import SECOND

#: An id as sortable bytes; `text` and `parse` turn it into the usual form of a UUID and back.
Id = bytes
#: Eight random bytes that identify one commit or one claim: drawn here, read back from headers, timers and receipts.
#: Bytes to the store; to a type checker no id, no name and no value of a column.
Nonce = NewType("Nonce", bytes)

#: Ticks of 100 ns from the Gregorian reform (1582-10-15), where TimeUUIDs begin, to 1970.
_GREGORIAN: Final = 0x01B21DD213814000
_TICKS: Final = 10
_LAST_TICK: Final = (1 << 60) - 1
_EARLIEST: Final = -_GREGORIAN // _TICKS
_LATEST: Final = (_LAST_TICK - _GREGORIAN) // _TICKS
#: How far a clock may fall behind the last id before a source follows it back: more than routine clock corrections.
_SET_BACK: Final = SECOND * _TICKS
_FLIP: Final = 0x8080808080808080
_VERSION: Final = 1
_RFC_VARIANT: Final = 0x8000000000000000
_MULTICAST: Final = 0x0000010000000000
_LENGTH: Final = 16
#: The bits of a tail that count up, and how many of their values must be left for another block.
_COUNTER: Final = (1 << 40) - 1
_ROOM: Final = 1 << 32
#: The bits of an id that distinguish items listed at one moment.
_NUMBER: Final = (1 << 30) - 1

#: The least and the greatest id; bounds of slices.
LEAST: Final[Id] = bytes(_LENGTH)
GREATEST: Final[Id] = b"\x0f" + b"\xff" * (_LENGTH - 1)


class IdSource:
    """Ids of this process: every id for the present is greater than the one before it, and none is ahead of the clock.

    Ids of one moment share its time and count up in the rest, so any number may be drawn at one reading of the clock.
    Both have an exception when the clock is set back. By a second or less, ids keep the last moment until the clock has
    caught up, so they are ahead of it by as much. By more, ids restart from the clock, with a new random tail so that
    no id repeats. Messages sent then are due when they are sent, not when the clock has caught up.
    """

    def __init__(self, clock: Clock) -> None:
        """Draw a random node, so that two processes never make the same id."""
        self._clock = clock
        self._lock = threading.Lock()
        self._tick = 0
        self._tail = _random_tail()

    def block(self, count: int, due: int = 0) -> list[Id]:
        """`count` ids, ascending, for the later of `due` (microseconds) and now.

        Each block of future ids gets a random tail, so that two blocks for the same due moment never collide.
        """
        if due > self._clock.now():
            return _run(_tick(due), _random_tail(), count)
        with self._lock:  # the clock is read under it: else a paused thread would look like a clock that was set back
            self._follow(_tick(self._clock.now()))
            first = self._tail
            self._tail += count
            return _run(self._tick, first, count)

    def _follow(self, tick: int) -> None:
        """Advance to the clock's tick, unless it is slightly behind. The caller has the lock."""
        if self._tick - tick > _SET_BACK or self._tail & _COUNTER > _COUNTER - _ROOM:
            self._tail = _random_tail()
            self._tick = tick
        self._tick = max(self._tick, tick)


def _tick(moment: int) -> int:
    """The tick of a moment, clamped to the years 1582 to 5236, for which there are ids."""
    return min(max(0, moment * _TICKS + _GREGORIAN), _LAST_TICK)


def _run(tick: int, tail: int, count: int) -> list[Id]:
    first = tick << 64 | tail
    return [each.to_bytes(_LENGTH) for each in range(first, first + count)]


def _random_tail() -> int:
    """The clock sequence and node of a TimeUUID, random, in sortable form, with the bits that the standard requires."""
    tail = (secrets.randbits(62) | _RFC_VARIANT | _MULTICAST) ^ _FLIP
    return tail & ~(_COUNTER ^ _COUNTER >> 1)


def at(moment: int) -> Id:
    """An id for exactly this moment (microseconds since 1970), with a random tail."""
    return _run(_tick(moment), _random_tail(), 1)[0]


def first_at(moment: int) -> Id:
    """The lower bound of the ids of this moment and later ones; greater than all earlier ids."""
    return _tick(moment).to_bytes(8) + bytes(8)


def is_moment(value: object) -> bool:
    """Whether this is a moment (microseconds since 1970) that an id can represent."""
    return type(value) is int and _EARLIEST <= value <= _LATEST


def moment(id_: Id) -> int:
    """The time of an id in microseconds since 1970."""
    return (int.from_bytes(id_[:8]) - _GREGORIAN) // _TICKS


def as_uuid(id_: Id) -> uuid.UUID:
    """The TimeUUID (version 1) of an id."""
    ticks = int.from_bytes(id_[:8])
    low, middle, high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 | _VERSION << 12
    return uuid.UUID(int=low << 96 | middle << 80 | high << 64 | int.from_bytes(id_[8:]) ^ _FLIP)


def from_uuid(value: uuid.UUID) -> Id:
    """The id of a TimeUUID; another version of UUID raises ValueError."""
    if value.version != _VERSION:
        message = f"{value} is not a TimeUUID (version 1)"
        raise ValueError(message)
    return value.time.to_bytes(8) + (value.int & 0xFFFFFFFFFFFFFFFF ^ _FLIP).to_bytes(8)


def text(id_: Id) -> str:
    """The usual text of an id's UUID: of `as_uuid`, in a fifth of the time."""
    ticks, rest = id_[:8].hex(), f"{int.from_bytes(id_[8:]) ^ _FLIP:016x}"
    return f"{ticks[8:]}-{ticks[4:8]}-{_VERSION}{ticks[1:4]}-{rest[:4]}-{rest[4:]}"


def parse(written: str) -> Id:
    """The id of a text from `text`; anything else raises ValueError."""
    return from_uuid(uuid.UUID(written))


def nonce() -> Nonce:
    """Eight random bytes that identify a commit or claim."""
    return Nonce(secrets.token_bytes(8))


def of_text(written: str) -> Id:
    """An id derived from this text by a hash, for columns that are looked up by a text of any length."""
    digest = hashlib.blake2b(written.encode(), digest_size=_LENGTH).digest()
    tail = (int.from_bytes(digest[8:]) & 0x3FFFFFFFFFFFFFFF | _RFC_VARIANT) ^ _FLIP
    return (int.from_bytes(digest[:8]) & 0x0FFFFFFFFFFFFFFF).to_bytes(8) + tail.to_bytes(8)


def derived(moment: int, written: str) -> Id:
    """An id derived from this moment and text; it never equals a random id."""
    return first_at(moment)[:8] + (int.from_bytes(of_text(written)[8:]) & ~_MULTICAST).to_bytes(8)


def listed(written: str, moment: int, number: int = 0) -> Id:
    """The id of an index entry: entries of one text are adjacent, ordered by moment.

    `number` (30 bits) distinguishes entries of one moment; without it the id is their lower bound.
    """
    place = int.from_bytes(of_text(written)[3:8]) << 82 | max(0, moment) << 30 | number & _NUMBER
    return (place >> 62).to_bytes(8) + (place & (1 << 62) - 1).to_bytes(8)


def listed_moment(id_: Id) -> int:
    """The moment of an index entry."""
    place = int.from_bytes(id_[:8]) << 62 | int.from_bytes(id_[8:])
    return place >> 30 & (1 << 52) - 1


def is_derived(id_: Id) -> bool:
    """Whether an id was derived: random ids have the multicast bit set, which marks their node as invented."""
    return not int.from_bytes(id_[8:]) & _MULTICAST


def before(id_: Id) -> Id:
    """The greatest id below this one."""
    return (int.from_bytes(id_) - 1).to_bytes(_LENGTH)


def after(id_: Id) -> Id:
    """The least id above this one."""
    return (int.from_bytes(id_) + 1).to_bytes(_LENGTH)
