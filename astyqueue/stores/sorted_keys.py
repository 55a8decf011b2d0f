"""A sorted set of names with cheap insertion and deletion at any place, for a hundred thousand names and more.

`sortedcontainers.SortedDict` in place of this and the store's dict inserts and reads as fast, and takes twice as long
to delete and to overwrite.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

#: A chunk is split beyond this number of names: moving half as many pointers costs less than a microsecond.
_FULL: Final = 1024


class SortedNames:
    """Encoded names in ascending order, each once, kept in chunks so that a change moves few of them."""

    def __init__(self) -> None:
        """Create an empty set."""
        self._chunks: list[list[bytes]] = []
        # The last name of each chunk, or a removed one: no name of the chunk is greater, all of the next chunk are.
        self._lasts: list[bytes] = []

    def add(self, name: bytes) -> None:
        """Add a name that is not in the set."""
        if not self._chunks:
            self._chunks.append([name])
            self._lasts.append(name)
            return
        at = min(bisect_left(self._lasts, name), len(self._chunks) - 1)
        chunk = self._chunks[at]
        insort(chunk, name)
        self._lasts[at] = max(self._lasts[at], name)
        if len(chunk) > _FULL:
            self._split(at)

    def remove(self, name: bytes) -> None:
        """Remove a name that is in the set."""
        at = bisect_left(self._lasts, name)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, name)]
        if not chunk:
            del self._chunks[at], self._lasts[at]

    def between(self, low: bytes, high: bytes) -> Iterator[bytes]:
        """The names from `low`, inclusive, to `high`, exclusive; the set must not change during the iteration."""
        start = bisect_left(self._lasts, low)
        for at in range(start, len(self._chunks)):
            chunk = self._chunks[at]
            begin = bisect_left(chunk, low) if at == start else 0
            if self._lasts[at] >= high:
                yield from chunk[begin : bisect_left(chunk, high)]
                return
            yield from chunk[begin:]

    def _split(self, at: int) -> None:
        chunk = self._chunks[at]
        half = len(chunk) // 2
        self._chunks[at : at + 1] = [chunk[:half], chunk[half:]]
        self._lasts[at : at + 1] = [chunk[half - 1], chunk[-1]]
