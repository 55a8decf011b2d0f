"""A store that counts the commits that pass through it."""

from __future__ import annotations

import itertools
from typing import Final

from astyqueue.protocol.layout.columns import HEADER
from astyqueue.store import Batch, Column, Expectation, Outcome, Spread, Store, Wanted


class Counting:
    """Hands everything on. A commit that expects the header is an attempt at the row's lock, whatever comes of it."""

    def __init__(self, store: Store) -> None:
        """Count what goes to this store."""
        self._store = store
        self._attempts: Final = itertools.count()
        self._commits: Final = itertools.count()

    @property
    def spread(self) -> Spread:
        """As the store behind it."""
        return self._store.spread

    @property
    def at_once(self) -> int:
        """As the store below."""
        return self._store.at_once

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """As the store behind it."""
        return self._store.read(wanted, exact=exact)

    def send(self, batch: Batch, *more: Batch) -> None:
        """As the store behind it."""
        self._store.send(batch, *more)

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """As the store behind it, and counted."""
        next(self._commits)
        if any(expected.name == HEADER for expected in expects):
            next(self._attempts)
        return self._store.commit(batch, expects)

    def close(self) -> None:
        """As the store behind it."""
        self._store.close()

    def counted(self) -> tuple[int, int]:
        """Attempts at a lock, and all commits; this ends the counting."""
        return next(self._attempts), next(self._commits)
