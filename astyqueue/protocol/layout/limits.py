"""Bounds of one batch, and the division of many columns into batches within them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

#: Columns in one batch, and bytes of their values.
BATCH_COLUMNS: Final = 200
BATCH_BYTES: Final = 512 * 1024


def batches_within(sizes: Sequence[int]) -> Iterator[slice]:
    """The places of values of these sizes, in bytes, that go into one batch each; a larger one is alone."""
    first = total = 0
    for place, size in enumerate(sizes):
        if place > first and (place - first >= BATCH_COLUMNS or total + size > BATCH_BYTES):
            yield slice(first, place)
            first, total = place, 0
        total += size
    if sizes:
        yield slice(first, len(sizes))
