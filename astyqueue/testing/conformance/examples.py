"""Example columns, and helpers that write and read them."""

from __future__ import annotations

from typing import Final

from astyqueue import ids
from astyqueue.clock import Clock
from astyqueue.store import Batch, Expectation, Name, Named, Put, Slice, Store, Wanted
from astyqueue.units import SECOND

ROW: Final = "conformance:0:0"
#: Written by commits only; every other column here is written by plain sends only, as `Store` requires.
COUNTER: Final = Name(0, 0, ids.LEAST, 0)
LOCK: Final = Name(0, 0, ids.first_at(0), 3)
KIND: Final = 2
OTHER_KIND: Final = 3

_FIRST: Final = 1_700_000_000 * SECOND
_TAIL: Final = bytes(8)


def name(order: int, *, priority: int = 0, kind: int = KIND, state: int = 1, tail: bytes = _TAIL) -> Name:
    """A name whose id is that of moment number `order`."""
    return Name(kind, priority, ids.first_at(_FIRST + order)[:8] + tail, state)


def names(count: int) -> tuple[Name, ...]:
    """The first `count` names, in order."""
    return tuple(name(order) for order in range(count))


def past(clock: Clock) -> int:
    """A stamp an hour ago, earlier than every commit and delete even where clocks differ."""
    return clock.now() - 3600 * SECOND


def put_all(store: Store, clock: Clock, some: tuple[Name, ...], *, row: str = ROW) -> None:
    """Send columns whose values are their ids."""
    store.send(Batch(row, puts=tuple(Put(each, each.id, stamp=past(clock)) for each in some)))


def everything(row: str = ROW) -> tuple[Wanted, ...]:
    """Slices of all types of columns used here."""
    return tuple(Slice(row, kind) for kind in (0, KIND, OTHER_KIND))


def contents(store: Store, row: str = ROW) -> dict[Name, bytes]:
    """All columns of a row."""
    return {column.name: column.value for columns in store.read(everything(row), exact=True) for column in columns}


def found(store: Store, wanted: Wanted) -> list[Name]:
    """The names in a slice, in the order of the answer."""
    (columns,) = store.read((wanted,))
    return [column.name for column in columns]


def value(store: Store, wanted: Name, row: str = ROW) -> bytes | None:
    """The value of one column, None when it is absent."""
    (columns,) = store.read((Named(row, (wanted,)),), exact=True)
    return columns[0].value if columns else None


def having(wanted: Name, expected: bytes | None) -> tuple[Expectation, ...]:
    """One expectation."""
    return (Expectation(wanted, expected),)
