"""A store that is opened when it is first needed: by processes that must start while it cannot be reached."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from copy import copy
from typing import Final, TypeVar

from astyqueue.clock import Clock, SystemClock
from astyqueue.errors import Closed, StoreError, StoreGone
from astyqueue.store import Batch, Column, Expectation, Outcome, Spread, Store, Wanted
from astyqueue.stores import located, open_store
from astyqueue.units import BEGINNING, SECOND

T = TypeVar("T")

#: While the store cannot be opened, requests fail at once with the last error, and one in this time tries again.
_TRY_EVERY_US: Final = SECOND
#: Threads that carry out requests of tasks; their number is fixed before the store is open.
_AT_ONCE: Final = 32


class LazyStore:
    """The verbs of a store that a function opens, at the first request, and again after `StoreGone`.

    Every error of the function reaches the caller of a verb. Thread-safe, and after a fork too.
    """

    def __init__(self, opening: Callable[[], Store], clock: Clock | None = None) -> None:
        """`opening` opens the store; it is not called yet."""
        self._opening: Final = opening
        self._clock: Final = clock or SystemClock()
        self._store: Store | None = None
        self._closed = False
        self._error: StoreError | None = None
        self._not_before = BEGINNING
        self._locks: Final[dict[int, threading.Lock]] = {}

    def __repr__(self) -> str:
        """The store, once it is open."""
        return f"<LazyStore {self._store!r}>" if self._store else "<LazyStore, not open yet>"

    @property
    def spread(self) -> Spread:
        """That of the store, which is opened for it."""
        return self._opened().spread

    @property
    def at_once(self) -> int:
        """That of the store if it is open."""
        return self._store.at_once if self._store else _AT_ONCE

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """See `Store.read`."""
        return self._carried_out(lambda store: store.read(wanted, exact=exact))

    def send(self, batch: Batch, *more: Batch) -> None:
        """See `Store.send`."""
        self._carried_out(lambda store: store.send(batch, *more))

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """See `Store.commit`."""
        return self._carried_out(lambda store: store.commit(batch, expects))

    def close(self) -> None:
        """See `Store.close`."""
        self._closed = True  # first: a thread that opens the store meanwhile closes it
        store = self._store
        if store is not None:
            store.close()

    @property
    def _lock(self) -> threading.Lock:
        """That of this process: one that another thread had at a fork stays locked in the child."""
        return self._locks.setdefault(os.getpid(), threading.Lock())

    def _carried_out(self, verb: Callable[[Store], T]) -> T:
        while True:
            store = self._opened()
            try:
                return verb(store)
            except StoreGone:
                self._leave(store)
                raise
            except Closed:
                # Another thread found it gone, and left it before the verb began: the one opened anew carries it out.
                if self._closed or self._store is store:
                    raise

    def _opened(self) -> Store:
        store = self._store
        return store if store is not None else self._open()

    def _open(self) -> Store:
        with self._lock:
            self._check_open()
            if self._store is not None:
                return self._store
            if self._error is not None and self._clock.monotonic() < self._not_before:
                raise copy(self._error)
            try:
                self._store = self._opening()
            except StoreError as error:
                self._error = error
                self._not_before = self._clock.monotonic() + _TRY_EVERY_US
                raise
            if self._closed:
                self._store.close()
            self._check_open()
            return self._store

    def _check_open(self) -> None:
        if self._closed:
            message = "the store was closed"
            raise Closed(message)

    def _leave(self, store: Store) -> None:
        """Close a store that is gone; the next request opens it anew."""
        with self._lock:
            if self._store is store:
                self._store = None
        with contextlib.suppress(StoreError):
            store.close()


def opened_when_needed(url: str, *, clock: Clock, create: bool = True) -> LazyStore:
    """The store at a URL, opened by its first request; see `open_store`. A malformed URL raises BadSetting at once."""
    located(url)
    return LazyStore(lambda: open_store(url, clock=clock, create=create), clock)
