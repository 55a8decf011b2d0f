"""The store port: rows of ordered columns, and nothing else.

A store keeps tables of rows; a row is a text key and the columns under it, ordered by name. An adapter knows nothing of
messages. It promises five things, and the conformance suite (`astyqueue.testing.conformance`) holds it to them:

1. A batch touches one row and is applied whole or not at all, also when the process or the machine dies in the middle.

2. A write that returned is durable, and every read that begins later sees it; columns come back in the order of their
   names.

3. A commit is applied only if every expectation holds at that moment, and no other commit comes between.

4. Of two plain puts of one column the one with the later stamp wins; a commit beats every plain put stamped before it.

5. A failure states its effect: after an error of the tree under `StoreError` other than `OutcomeUnknown`, nothing
   changed.

Not promised: whether a plain send brings back a column that was deleted since; that several slices are read as of one
instant; which value a column has that a plain send and a commit wrote, beyond 4.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from astyqueue.ids import GREATEST, LEAST, Id
from astyqueue.units import SECOND

ENTRIES: Final = "entries"
#: The table of the history: append-only, each column with a time to live.
HISTORY: Final = "history"


class Name(NamedTuple):
    """The name of a column. Names order by type, then priority *descending*, then id, then state."""

    type: int
    priority: int
    id: Id
    state: int


class Column(NamedTuple):
    """A column as read; `written` is its write time (microseconds since 1970): the store's or the put's stamp."""

    name: Name
    value: bytes
    written: int


class Put(NamedTuple):
    """Write a column. `stamp` is the write time of a plain send (None: now); the column expires after `ttl` seconds."""

    name: Name
    value: bytes
    stamp: int | None = None
    ttl: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes of one row, applied together or not at all; no name may be both put and deleted."""

    row: str
    puts: tuple[Put, ...] = ()
    deletes: tuple[Name, ...] = ()
    table: str = ENTRIES


@dataclass(frozen=True, slots=True)
class Slice:
    """Columns of one row and one type, from `after` to `until` by id.

    With a `priority`, the columns of that priority in ascending order of (id, state); without one, those of all
    priorities, in the order of names. `after` is inclusive unless `beyond`; `until` is exclusive.
    """

    row: str
    type: int
    priority: int | None = None
    after: Id = LEAST
    until: Id = GREATEST
    limit: int | None = None
    beyond: bool = False
    values: bool = True
    table: str = ENTRIES


@dataclass(frozen=True, slots=True)
class Named:
    """The existing columns of one row with exactly these names, in the order of names."""

    row: str
    names: tuple[Name, ...]
    values: bool = True
    table: str = ENTRIES


Wanted = Slice | Named


class Expectation(NamedTuple):
    """This column has exactly these bytes, or is absent (`None`)."""

    name: Name
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit was applied."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The commit was not applied; `present` has the current value of every expected column (`None`: absent)."""

    present: dict[Name, bytes | None]


Outcome = Committed | Refused


class Spread(NamedTuple):
    """The default layout of a queue's rows: a ring of time shards, each with a number of concurrency shards."""

    time_shards: int = 1
    time_shard_us: int = 3_600 * SECOND
    concurrency_shards: int = 1


class Store(Protocol):
    """Four verbs. Safe to call from many threads at once; after `close` every verb raises `Closed`."""

    @property
    def spread(self) -> Spread:
        """The default for this store: few rows on a single machine, many where rows are distributed over nodes."""
        ...

    @property
    def at_once(self) -> int:
        """How many concurrent calls are useful: few if this machine does the work, many if they wait for a network."""
        ...

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """The columns of each slice; `exact` reads are linearizable, per slice, with all commits."""
        ...

    def send(self, batch: Batch, *more: Batch) -> None:
        """Apply batches without reading first, each on its own, in any order or concurrently.

        Sending the same batch again has no further effect. An error other than OutcomeUnknown means none was applied.
        """
        ...

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """Apply a batch if every expectation holds; its puts have no stamps: the store sets the time of the commit."""
        ...

    def close(self) -> None:
        """Release all resources; closing twice is allowed."""
        ...


class OpenTransaction(Store, Protocol):
    """The verbs of a store as parts of one transaction, which other statements on its connection belong to."""

    @property
    def connection(self) -> Any:  # noqa: ANN401 - each such store has connections of its own kind
        """The connection, for statements of the caller."""
        ...

    def savepoint(self) -> AbstractContextManager[None]:
        """Undo what its block changed if that raises; the transaction goes on."""
        ...


@runtime_checkable
class TransactionalStore(Protocol):
    """What a store has besides its verbs if a caller's own writes and those of a queue can be one transaction."""

    def refuse_in_transaction(self) -> None:
        """Raise BadInput if the calling thread has a transaction open, for whose end another change would wait."""
        ...

    def transaction(self) -> AbstractContextManager[OpenTransaction]:
        """A transaction, committed when its block ends, rolled back if that raises; the only writer meanwhile."""
        ...


class AsyncStore(Protocol):
    """The same four verbs, awaited by tasks of any event loop.

    Cancelling a task does not cancel a request that has begun: the store completes it, and its result is dropped.
    """

    async def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """As `Store.read`."""
        ...

    async def send(self, batch: Batch, *more: Batch) -> None:
        """As `Store.send`."""
        ...

    async def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """As `Store.commit`."""
        ...

    async def close(self) -> None:
        """As `Store.close`."""
        ...


@runtime_checkable
class AsyncCapableStore(Protocol):
    """What a store has besides its verbs if it has a way of its own to carry them out for tasks."""

    def as_async(self) -> AsyncStore:
        """The same store with its verbs awaited, always the same object; closing either closes both."""
        ...
