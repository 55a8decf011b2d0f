"""Stores that break one promise each; `test_suite` runs the conformance suite on them and wants it to notice."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from astyqueue.store import ENTRIES, HISTORY, Batch, Column, Committed, Expectation, Outcome, Refused, Slice, Wanted
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.testing.conformance import StoreConformance


class Blind(MemoryStore):
    """Commits whatever was expected."""

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        return super().commit(batch, ()) if expects else Committed()


class Hasty(MemoryStore):
    """Deletes before it looks."""

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        expected = {expectation.name for expectation in expects}
        super().send(Batch(batch.row, deletes=tuple(name for name in batch.deletes if name not in expected)))
        return super().commit(batch, expects)


class Taciturn(MemoryStore):
    """Tells of the first expectation only."""

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        outcome = super().commit(batch, expects)
        return Refused(dict(list(outcome.present.items())[:1])) if isinstance(outcome, Refused) else outcome


class Reading(MemoryStore):
    """Changes each slice before it reads it, or what it got."""

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        changed = tuple(self.changed(each) if isinstance(each, Slice) else each for each in wanted)
        return [self.told(columns) for columns in super().read(changed, exact=exact)]

    def changed(self, wanted: Slice) -> Slice:
        return wanted

    def told(self, columns: list[Column]) -> list[Column]:
        return columns


class Inclusive(Reading):
    """Does not know `beyond`."""

    def changed(self, wanted: Slice) -> Slice:
        return replace(wanted, beyond=False)


class Boundless(Reading):
    """Does not know `until`."""

    def changed(self, wanted: Slice) -> Slice:
        return replace(wanted, until=Slice("", 0).until)


class Unlimited(Reading):
    """Does not know `limit`."""

    def changed(self, wanted: Slice) -> Slice:
        return replace(wanted, limit=None)


class Levelling(Reading):
    """Gets lower priorities first."""

    def told(self, columns: list[Column]) -> list[Column]:
        return sorted(
            columns, key=lambda column: (column.name.type, column.name.priority, column.name.id, column.name.state)
        )


class Generous(Reading):
    """Gets values that nobody asked for."""

    def changed(self, wanted: Slice) -> Slice:
        return replace(wanted, values=True)


class Timeless(Reading):
    """Says that everything was written at the beginning of time."""

    def told(self, columns: list[Column]) -> list[Column]:
        return [column._replace(written=0) for column in columns]


class Stampless(MemoryStore):
    """Lets the last to come stand."""

    def send(self, *batches: Batch) -> None:
        super().send(*[replace(batch, puts=tuple(put._replace(stamp=None) for put in batch.puts)) for batch in batches])


class Undying(MemoryStore):
    """Keeps everything for good."""

    def send(self, *batches: Batch) -> None:
        super().send(*[replace(batch, puts=tuple(put._replace(ttl=None) for put in batch.puts)) for batch in batches])


class Halving(MemoryStore):
    """Loses the second half of a batch that is large."""

    def send(self, *batches: Batch) -> None:
        super().send(*[replace(batch, deletes=batch.deletes[:100], puts=batch.puts[:100]) for batch in batches])


class Single(MemoryStore):
    """Sends the first of several batches only."""

    def send(self, *batches: Batch) -> None:
        super().send(batches[0])


class Jumbling(MemoryStore):
    """Keeps everything in one table."""

    def send(self, *batches: Batch) -> None:
        super().send(*[replace(batch, table=HISTORY) if batch.table == ENTRIES else batch for batch in batches])

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        return super().read(
            tuple(replace(each, table=HISTORY) if each.table == ENTRIES else each for each in wanted), exact=exact
        )


class Open(MemoryStore):
    """Goes on after it was closed."""

    def close(self) -> None:
        return


BROKEN: Final = (
    Blind,
    Hasty,
    Taciturn,
    Inclusive,
    Boundless,
    Unlimited,
    Levelling,
    Generous,
    Timeless,
    Stampless,
    Undying,
    Halving,
    Single,
    Jumbling,
    Open,
)


@pytest.mark.parametrize("kind", [MemoryStore, *BROKEN], ids=lambda kind: kind.__name__)
class TestBrokenStores(StoreConformance):
    @pytest.fixture
    def store(self, clock: TimeMachine, kind: type[MemoryStore]) -> MemoryStore:
        return kind(clock)
