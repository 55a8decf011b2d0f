"""Stores that misbehave on purpose, around a store that does not."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import cast

from astyqueue.errors import StoreError
from astyqueue.protocol.columns import Type
from astyqueue.protocol.steps import Commit, Read, Request, Send, perform
from astyqueue.store import Batch, Column, Expectation, Outcome, Spread, Store, Wanted


class Faulty:
    """A store that does what the one below does; to spoil it, override `perform`, through which every request goes."""

    def __init__(self, store: Store) -> None:
        """Around this store."""
        self._store = store

    @property
    def spread(self) -> Spread:
        """As the store below."""
        return self._store.spread

    @property
    def at_once(self) -> int:
        """As the store that is wrapped has it."""
        return self._store.at_once

    def perform(self, request: Request) -> object:
        """Have the store below carry out a request."""
        return perform(request, self._store)

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """As the port says."""
        return cast("list[list[Column]]", self.perform(Read(wanted, exact)))

    def send(self, batch: Batch, *more: Batch) -> None:
        """As the port says."""
        self.perform(Send(batch, more))

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """As the port says."""
        return cast("Outcome", self.perform(Commit(batch, expects)))

    def close(self) -> None:
        """Close the store below."""
        self._store.close()


class Unguarded(Faulty):
    """Commits without the expectations on columns of these types: a test that passes on it does not need that guard."""

    def __init__(self, store: Store, *, types: Iterable[int] = (Type.LOCK,)) -> None:
        """By type of column: the headers, unless told otherwise."""
        super().__init__(store)
        self._types = frozenset(types)

    def perform(self, request: Request) -> object:
        """Commits are applied if the expectations that are left hold."""
        if isinstance(request, Commit):
            left = tuple(expected for expected in request.expects if expected.name.type not in self._types)
            request = Commit(request.batch, left)
        return super().perform(request)


class Recording(Faulty):
    """Keeps every request in `requests`, in the order in which they began."""

    def __init__(self, store: Store) -> None:
        """Nothing is recorded yet."""
        super().__init__(store)
        self.requests: list[Request] = []

    def perform(self, request: Request) -> object:
        """Recorded, then done."""
        self.requests.append(request)
        return super().perform(request)


class Failing(Faulty):
    """Raises an error once: at the request with this number, counted from 1 among requests `of` these kinds.

    With `applied` the request is done first, as when only the answer is lost.
    """

    def __init__(
        self,
        store: Store,
        error: StoreError,
        *,
        at: int = 1,
        of: tuple[type[Read | Send | Commit], ...] = (Read, Send, Commit),
        applied: bool = False,
    ) -> None:
        """Every other request is done as usual."""
        super().__init__(store)
        self._error = error
        self._at = at
        self._of = of
        self._applied = applied
        self._numbers = itertools.count(1)

    def perform(self, request: Request) -> object:
        """Done, unless this is the one that fails."""
        if not isinstance(request, self._of) or next(self._numbers) != self._at:
            return super().perform(request)
        if self._applied:
            super().perform(request)
        raise self._error
