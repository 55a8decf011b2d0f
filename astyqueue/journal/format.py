"""The bytes of a page: its header, twice, and then records one after another (docs/explanation/journal.md).

Numbers are little-endian, moments are microseconds since 1970. The checksum of a record starts from the page's salt and
the record's offset, so bytes that were written for another place are never taken for a record of this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, Self
from zlib import crc32

from astyqueue.journal_errors import JournalError

MAGIC: Final = b"astyjrnl"
VERSION: Final = 1
MASK: Final = 0xFFFF_FFFF

_FIELDS: Final = Struct("<8sIIQQQqQ")
_CHECKSUM: Final = Struct("<I")
_HEADER_SIZE: Final = 64
#: Where the records of a page begin: behind both copies of its header.
RECORDS_AT: Final = 2 * _HEADER_SIZE

#: Length and checksum of a record: what its own checksum does not cover.
PREFIX: Final = Struct("<II")
#: Sequence, arrival and kind: the rest of a record's header, in front of the payload.
BODY: Final = Struct("<QqI")
_RECORD: Final = Struct("<IIQqI")
#: The bytes of a record besides its payload.
OVERHEAD: Final = PREFIX.size + BODY.size
#: In front of the first part of a record in several pages: the length of the whole payload.
TOTAL: Final = Struct("<Q")

#: The upper bytes of every kind: where a record can no longer be read, the next one is found by them.
_MARK: Final = b"\x9e\xc5\xa6"
_MARK_AT: Final = OVERHEAD - len(_MARK)


class Kind(IntEnum):
    """What a record holds: a whole payload, or a part of one too large for a page."""

    WHOLE = 0xA6C5_9E00
    FIRST = 0xA6C5_9E01
    MIDDLE = 0xA6C5_9E02
    LAST = 0xA6C5_9E03


@dataclass(frozen=True, slots=True)
class PageHeader:
    """What a page says of itself.

    `first_sequence` and `first_arrival` are those of the record that begins the page or continues in it: no record of
    an earlier page has a greater one, and no record of this page a smaller one. `last_before` is the last record that
    was completed in the pages before: where a reader has not seen it, records were lost.
    """

    number: int
    page_size: int
    salt: int
    first_sequence: int
    first_arrival: int
    last_before: int

    def pack(self) -> bytes:
        """Both copies of the header."""
        stated = (self.salt, self.page_size, self.number, self.first_sequence, self.first_arrival, self.last_before)
        fields = _FIELDS.pack(MAGIC, VERSION, *stated)
        return 2 * (fields + _CHECKSUM.pack(crc32(fields))).ljust(_HEADER_SIZE, b"\0")

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        """The header from the first bytes of a page; None if both copies are unreadable.

        A page of a newer format raises `JournalError`.
        """
        for at in range(0, RECORDS_AT, _HEADER_SIZE):
            fields = data[at : at + _FIELDS.size]
            checksum = data[at + _FIELDS.size : at + _FIELDS.size + _CHECKSUM.size]
            if len(checksum) == _CHECKSUM.size and _CHECKSUM.unpack(checksum)[0] == crc32(fields):
                magic, version, salt, page_size, number, sequence, arrival, before = _FIELDS.unpack(fields)
                if magic == MAGIC:
                    _check_version(version, number)
                    return cls(number, page_size, salt, sequence, first_arrival=arrival, last_before=before)
        return None


def _check_version(version: int, number: int) -> None:
    if version != VERSION:
        message = f"page {number} has format {version}, this astyqueue reads {VERSION}: upgrade this process"
        raise JournalError(message)


class Entry(NamedTuple):
    """A record as it lies in its page, or a part of one."""

    offset: int
    end: int
    sequence: int
    arrived: int
    kind: int
    payload: bytes


def packed(entry_kind: int, sequence: int, arrived: int, payload: bytes, start: int) -> bytes:
    """The bytes of a record; `start` is the salt of its page plus its offset."""
    body = BODY.pack(sequence, arrived, entry_kind)
    checksum = crc32(payload, crc32(body, start & MASK))
    return b"".join((PREFIX.pack(OVERHEAD + len(payload), checksum), body, payload))


def entries(data: bytes, base: int, header: PageHeader) -> list[Entry]:
    """The records of a page's bytes from the offset `base` on, up to the first that is incomplete or unreadable."""
    view, size = memoryview(data), len(data)
    unpack, covered, start = _RECORD.unpack_from, PREFIX.size, header.salt + base
    # The constructor of a named tuple takes three times as long as this, in a loop that is most of what a read costs.
    made, found = tuple.__new__, list[Entry]()
    at = 0
    while at + OVERHEAD <= size:
        length, checksum, sequence, arrived, kind = unpack(data, at)
        end = at + length
        if length < OVERHEAD or end > size or crc32(view[at + covered : end], (start + at) & MASK) != checksum:
            break
        found.append(made(Entry, (base + at, base + end, sequence, arrived, kind, data[at + OVERHEAD : end])))
        at = end
    return found


def length_at(data: bytes) -> int:
    """The length that the record at the start of `data` claims to have; 0 if less than its header is there."""
    return int(PREFIX.unpack_from(data)[0]) if len(data) >= OVERHEAD else 0


def next_readable(data: bytes, base: int, header: PageHeader) -> Entry | None:
    """The first readable record behind the start of these bytes; None if there is none."""
    found = data.find(_MARK, _MARK_AT + 1)
    while found >= 0:
        at = found - _MARK_AT
        length = length_at(data[at : at + OVERHEAD])
        if readable := entries(data[at : at + length], base + at, header):
            return readable[0]
        found = data.find(_MARK, found + 1)
    return None
