"""Wrappers of a store that inject faults or record its requests."""

from __future__ import annotations

import itertools
from typing import cast

from astyqueue.errors import StoreError
from astyqueue.protocol.steps import Commit, Read, Request, Send, perform
from astyqueue.store import Batch, Column, Expectation, Outcome, Spread, Store, Wanted


class Faulty:
    """A wrapper that delegates to `store`; to inject faults, override `perform`, which every request passes."""

    def __init__(self, store: Store) -> None:
        """Wrap `store`; `close` closes it."""
        self._store = store

    @property
    def spread(self) -> Spread:
        """That of the wrapped store."""
        return self._store.spread

    @property
    def at_once(self) -> int:
        """That of the wrapped store."""
        return self._store.at_once

    def perform(self, request: Request) -> object:
        """Have the wrapped store carry out a request."""
        return perform(request, self._store)

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """See `Store.read`."""
        return cast("list[list[Column]]", self.perform(Read(wanted, exact)))

    def send(self, batch: Batch, *more: Batch) -> None:
        """See `Store.send`."""
        self.perform(Send(batch, more))

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """See `Store.commit`."""
        return cast("Outcome", self.perform(Commit(batch, expects)))

    def close(self) -> None:
        """Close the wrapped store."""
        self._store.close()


class Recording(Faulty):
    """Records every request in `requests`, in the order in which they began."""

    def __init__(self, store: Store) -> None:
        """Wrap `store`."""
        super().__init__(store)
        self.requests: list[Request] = []

    def perform(self, request: Request) -> object:
        """Record the request, then carry it out."""
        self.requests.append(request)
        return super().perform(request)


class Failing(Faulty):
    """Raises `error` once: at request number `at`, counted from 1 among requests `of` these kinds.

    With `applied` the request is carried out first, as when only the answer is lost.
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
        """Wrap `store`; all other requests are carried out."""
        super().__init__(store)
        self._error = error
        self._at = at
        self._of = of
        self._applied = applied
        self._numbers = itertools.count(1)

    def perform(self, request: Request) -> object:
        """Carry out the request, or raise the error."""
        if not isinstance(request, self._of) or next(self._numbers) != self._at:
            return super().perform(request)
        if self._applied:
            super().perform(request)
        raise self._error
