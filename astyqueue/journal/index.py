"""The sparse index of a page: where a record begins, every 64 KiB. It can always be made again from the records."""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple, Self
from zlib import crc32

from astyqueue.journal.format import RECORDS_AT, Kind, PageHeader

_MAGIC: Final = b"astyjidx"
_HEAD: Final = Struct("<8sIIQQqQ")
_MARK: Final = Struct("<QqQ")
_CHECKSUM: Final = Struct("<I")
_VERSION: Final = 1
#: Bytes of a page between two entries: a search reads at most that many in vain.
_STEP: Final = 64 << 10


class By(Enum):
    """What a search compares: sequences, or moments of arrival."""

    SEQUENCE = 0
    ARRIVAL = 1


class Mark(NamedTuple):
    """A record that begins at this offset."""

    sequence: int
    arrived: int
    offset: int


class PageIndex:
    """The marks of one page, and the greatest sequence and moment in it."""

    def __init__(self, number: int, salt: int) -> None:
        """Start without records; `salt` is that of the page, which shows whether an index belongs to it."""
        self.number = number
        self.salt = salt
        self.end = RECORDS_AT
        self.last_sequence = 0
        self.last_arrived = 0
        self.marks: list[Mark] = []
        self.next_mark = RECORDS_AT

    def note(self, sequence: int, arrived: int, offset: int, kind: int) -> None:
        """Take in a record; reading cannot begin at one that only continues here."""
        self.last_sequence = sequence
        self.last_arrived = arrived
        if offset >= self.next_mark and kind in (Kind.WHOLE, Kind.FIRST):
            self.marks.append(Mark(sequence, arrived, offset))
            self.next_mark = offset + _STEP

    def forget_from(self, offset: int, sequence: int) -> None:
        """Take back what was noted from this offset on; `sequence` is that of the last record left."""
        while self.marks and self.marks[-1].offset >= offset:
            self.next_mark = self.marks.pop().offset
        self.last_sequence = sequence

    def offset_before(self, target: int, by: By) -> int:
        """Where to begin reading so that no record of at least `target` is passed."""
        position = bisect_left(self.marks, target, key=lambda mark: mark[by.value])
        return self.marks[position - 1].offset if position else RECORDS_AT

    def pack(self) -> bytes:
        """The bytes of its file."""
        head = _HEAD.pack(_MAGIC, _VERSION, self.salt, self.number, self.last_sequence, self.last_arrived, self.end)
        body = head + b"".join(_MARK.pack(*mark) for mark in self.marks)
        return body + _CHECKSUM.pack(crc32(body))

    @classmethod
    def parse(cls, data: bytes, header: PageHeader) -> Self | None:
        """The index from the bytes of its file; None if they are damaged, or of another page."""
        body, checksum = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
        if len(body) < _HEAD.size or _CHECKSUM.unpack(checksum)[0] != crc32(body):
            return None
        magic, version, salt, number, sequence, arrived, end = _HEAD.unpack_from(body)
        if (magic, version, salt, number) != (_MAGIC, _VERSION, header.salt, header.number):
            return None
        found = cls(number, salt)
        found.marks = [Mark(*mark) for mark in _MARK.iter_unpack(body[_HEAD.size :])]
        found.next_mark = found.marks[-1].offset + _STEP if found.marks else RECORDS_AT
        found.last_sequence, found.last_arrived, found.end = sequence, arrived, end
        return found
