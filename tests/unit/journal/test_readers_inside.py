"""Readers that are inside a page, which keeps it from being reclaimed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from astyqueue.journal import BYTES, Journal
from astyqueue.journal_errors import JournalFull
from tests.unit.journal.conftest import Opening

#: One record in each page of a test.
LARGE: Final = b"x" * 90


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Have reference counting alone end what is dropped."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_a_reader_that_was_left_half_way_keeps_no_page(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, page_size=256, codec=BYTES, cap=2 * 256, when_full="raise")

    def first() -> bytes:
        for record in journal.read():
            return record.value
        raise AssertionError

    with journal, without_collector():
        *_, last = [journal.append(LARGE), journal.append(LARGE)]
        assert first() == LARGE
        journal.cursor("mail").commit(last)
        assert journal.append(LARGE).sequence == 3


def test_a_full_journal_names_the_page_that_a_reader_keeps(opened: Opening) -> None:
    journal = opened(cap=2 * 256, when_full="raise")
    *_, last = [journal.append(LARGE), journal.append(LARGE)]
    reader = journal.read()
    next(reader)
    journal.cursor("mail").commit(last)
    with pytest.raises(JournalFull, match="a reader inside page 1 keeps it: close that reader"):
        journal.append(LARGE)
    reader.close()
    assert journal.append(LARGE).sequence == 3
