"""The bytes of a page are those of the page on the format: journals of earlier releases can be read."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest

from astyqueue.journal.format import OVERHEAD, RECORDS_AT, Entry, Kind, PageHeader, entries, next_readable, packed
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening
from tests.unit.test_docs import table_below

HEADER: Final = PageHeader(
    number=3, page_size=4096, salt=0xFFFF_FFF0, first_sequence=7, first_arrival=1_000_000, last_before=6
)
EXPLANATION: Final = Path(__file__).parents[3] / "docs/explanation/journal.md"


def test_a_header_has_the_bytes_that_the_table_says_twice() -> None:
    fields = struct.pack("<8sIIQQQqQ", b"astyjrnl", 1, 0xFFFF_FFF0, 4096, 3, 7, 1_000_000, 6)
    assert HEADER.pack() == 2 * (fields + struct.pack("<I", crc32(fields)) + bytes(4))
    assert PageHeader.parse(HEADER.pack()) == HEADER


def test_a_record_has_the_bytes_that_the_table_says() -> None:
    body = struct.pack("<QqB", 7, 1_000_000, 0) + b"\x9e\xc5\xa6" + b"payload"
    checksum = crc32(body, (0xFFFF_FFF0 + 128) % (1 << 32))
    record = packed(Kind.WHOLE, 7, 1_000_000, b"payload", HEADER.salt + 128)
    assert record == struct.pack("<II", 28 + 7, checksum) + body
    assert entries(record, 128, HEADER) == [Entry(128, 163, 7, 1_000_000, Kind.WHOLE, b"payload")]


@pytest.mark.parametrize(
    ("heading", "size"), [("## The bytes of a page", 64), ("Records follow at offset 128", OVERHEAD)]
)
def test_the_tables_of_the_format_add_up(heading: str, size: int) -> None:
    rows = table_below(EXPLANATION, heading)
    assert sum(int(row[0]) for row in rows if row[0].isdigit()) == size


def test_a_record_at_another_offset_or_of_another_page_is_not_readable() -> None:
    record = packed(Kind.WHOLE, 7, 1, b"payload", HEADER.salt + 128)
    other = PageHeader(3, 4096, 1, 7, 1, 6)
    assert entries(record, 129, HEADER) == entries(record, 128, other) == []


def test_behind_unreadable_bytes_the_next_record_is_found_wherever_it_begins() -> None:
    record = packed(Kind.WHOLE, 8, 1, b"payload", HEADER.salt + 200)
    for noise in (bytes(72), b"\xa6\xc5\x9e\x9e\xc5\xa6" * 12):
        found = next_readable(noise + record, 128, HEADER)
        assert found is not None
        assert (found.offset, found.sequence) == (200, 8)
    assert next_readable(bytes(500), 128, HEADER) is None


def test_what_an_append_writes_is_what_the_format_packs(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened(page_size=4096)
    first, second = journal.append(b""), journal.append(b"payload")
    content = bytes(disk.names_seen[FOLDER / "journal-1.page"].seen)
    header = PageHeader.parse(content)
    assert header is not None
    expected = packed(Kind.WHOLE, *first, b"", header.salt + RECORDS_AT)
    expected += packed(Kind.WHOLE, *second, b"payload", header.salt + RECORDS_AT + OVERHEAD)
    assert content == header.pack() + expected
