"""The store port: rows of ordered columns, and nothing else.

A store keeps tables of rows; a row is a text key and the columns under it, ordered by name. An adapter knows nothing of
messages. It promises five things, and the conformance suite (`astyqueue.testing.conformance`) holds it to them:

1. a batch touches one row and is applied whole or not at all, also when the process or the machine dies in the middle;
2. what returned is durable and seen by every read that begins later; columns come back in the order of their names;
3. a commit is applied only if every expectation holds at that moment, and no other commit comes between;
4. of two plain puts of one column the one with the later stamp stands; a commit beats every plain put stamped before it;
5. a failure says what it left behind: an error of the tree under `StoreError` other than `OutcomeUnknown` changed nothing.

Not promised: a plain send that puts again a column that was deleted since; reading several slices as of one instant;
plain sends and commits that write the same column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from astyqueue.ids import GREATEST, LEAST, Id

ENTRIES: Final = "entries"
#: Where what happened is kept for a while: only ever added to, each column with a time to live.
HISTORY: Final = "history"


class Name(NamedTuple):
    """The name of a column. Names order by type, then priority *descending*, then id, then state."""

    type: int
    priority: int
    id: Id
    state: int


class Column(NamedTuple):
    """A column as it was read; `written` is its write time in microseconds since 1970, of the store's clock or the put's stamp."""

    name: Name
    value: bytes
    written: int


class Put(NamedTuple):
    """Write a column. `stamp` is the write time a plain send claims (now, if None); after `ttl` seconds the column is gone."""

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
    """The columns of one row with exactly these names, those that exist, in the order of names."""

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
    """The commit was not applied: these are the present values of every column that was expected (`None`: absent)."""

    present: dict[Name, bytes | None]


Outcome = Committed | Refused


class Spread(NamedTuple):
    """Over how many rows a queue is spread, unless its maker says otherwise: a ring of time shards, each of them some rows wide."""

    time_shards: int = 1
    time_shard_us: int = 3_600_000_000
    concurrency_shards: int = 1


class Store(Protocol):
    """Four verbs. Safe to call from many threads at once; after `close` every verb raises `Closed`."""

    @property
    def spread(self) -> Spread:
        """What suits this store: few rows where all is in one place, many where rows are what is shared out."""
        ...

    @property
    def at_once(self) -> int:
        """How many verbs are worth calling at once: a few where the machine does the work, many where a verb waits for a network."""
        ...

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """The columns of each slice; `exact` reads are linearizable, per slice, with all commits."""
        ...

    def send(self, batch: Batch, *more: Batch) -> None:
        """Apply batches without looking at what is there, each by itself, in any order or all at once.

        Sending the same again changes nothing more. An error speaks of all of them: if it is not OutcomeUnknown, none was
        applied.
        """
        ...

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """Apply a batch if every expectation holds; its puts carry no stamps, the store gives the time of the commit."""
        ...

    def close(self) -> None:
        """Let go of everything; closing twice is allowed."""
        ...


class AsyncStore(Protocol):
    """The same four verbs, awaited."""

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
