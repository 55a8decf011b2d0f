"""Stores that each break one promise: a test that still passes on one does not show that promise.

`test_stores` runs the conformance suite on those of `DEFECTIVE`, which has to fail. `Unguarded` is for the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pytest

from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.steps import Commit, Request
from astyqueue.store import (
    ENTRIES,
    HISTORY,
    Batch,
    Column,
    Committed,
    Expectation,
    Outcome,
    Refused,
    Slice,
    Store,
    Wanted,
)
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, TimeMachine
from astyqueue.testing.conformance import StoreConformance


class IgnoresExpectations(MemoryStore):
    """Commits whatever was expected."""

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        return super().commit(batch, ()) if expects else Committed()


class DeletesBeforeChecking(MemoryStore):
    """Deletes before it checks expectations."""

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        expected = {expectation.name for expectation in expects}
        super().send(Batch(batch.row, deletes=tuple(name for name in batch.deletes if name not in expected)))
        return super().commit(batch, expects)


class RefusalShowsOneColumn(MemoryStore):
    """A refusal shows the column of the first expectation only."""

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        outcome = super().commit(batch, expects)
        return Refused(dict(list(outcome.present.items())[:1])) if isinstance(outcome, Refused) else outcome


class ChangesReads(MemoryStore):
    """Changes each slice before it reads it, or the columns it read."""

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        changed = tuple(self.changed(each) if isinstance(each, Slice) else each for each in wanted)
        return [self.answered(columns) for columns in super().read(changed, exact=exact)]

    def changed(self, wanted: Slice) -> Slice:
        return wanted

    def answered(self, columns: list[Column]) -> list[Column]:
        return columns


class IgnoresBeyond(ChangesReads):
    """Does not know `beyond`."""

    def changed(self, wanted: Slice) -> Slice:
        return replace(wanted, beyond=False)


class IgnoresUntil(ChangesReads):
    """Does not know `until`."""

    def changed(self, wanted: Slice) -> Slice:
        return replace(wanted, until=Slice("", 0).until)


class IgnoresLimit(ChangesReads):
    """Does not know `limit`."""

    def changed(self, wanted: Slice) -> Slice:
        return replace(wanted, limit=None)


class LowestPriorityFirst(ChangesReads):
    """Returns lower priorities first."""

    def answered(self, columns: list[Column]) -> list[Column]:
        return sorted(
            columns, key=lambda column: (column.name.type, column.name.priority, column.name.id, column.name.state)
        )


class AlwaysReturnsValues(ChangesReads):
    """Returns values that were not requested."""

    def changed(self, wanted: Slice) -> Slice:
        return replace(wanted, values=True)


class NoWriteTimes(ChangesReads):
    """Returns 0 as each write time."""

    def answered(self, columns: list[Column]) -> list[Column]:
        return [column._replace(written=0) for column in columns]


class IgnoresStamps(MemoryStore):
    """Ignores stamps: the last write wins."""

    def send(self, *batches: Batch) -> None:
        super().send(*[replace(batch, puts=tuple(put._replace(stamp=None) for put in batch.puts)) for batch in batches])


class IgnoresTTL(MemoryStore):
    """Ignores the time to live."""

    def send(self, *batches: Batch) -> None:
        super().send(*[replace(batch, puts=tuple(put._replace(ttl=None) for put in batch.puts)) for batch in batches])


class LosesHalfOfLargeBatches(MemoryStore):
    """Loses the second half of a batch that is large."""

    def send(self, *batches: Batch) -> None:
        super().send(*[replace(batch, deletes=batch.deletes[:100], puts=batch.puts[:100]) for batch in batches])


class SendsFirstBatchOnly(MemoryStore):
    """Sends the first of several batches only."""

    def send(self, *batches: Batch) -> None:
        super().send(batches[0])


class IgnoresTables(MemoryStore):
    """Keeps everything in one table."""

    def send(self, *batches: Batch) -> None:
        super().send(*[replace(batch, table=HISTORY) if batch.table == ENTRIES else batch for batch in batches])

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        return super().read(
            tuple(replace(each, table=HISTORY) if each.table == ENTRIES else each for each in wanted), exact=exact
        )


class StaysOpen(MemoryStore):
    """Serves requests after it was closed."""

    def close(self) -> None:
        return


class Unguarded(Faulty):
    """Drops a commit's expectations on columns of some types: a test that still passes does not cover that guard."""

    def __init__(self, store: Store, *, types: Iterable[int] = (Type.LOCK,)) -> None:
        """`types`: the types of columns whose expectations are dropped. Default: the headers."""
        super().__init__(store)
        self._types = frozenset(types)

    def perform(self, request: Request) -> object:
        """Apply a commit if the remaining expectations hold."""
        if isinstance(request, Commit):
            left = tuple(expected for expected in request.expects if expected.name.type not in self._types)
            request = Commit(request.batch, left)
        return super().perform(request)


DEFECTIVE: Final = (
    IgnoresExpectations,
    DeletesBeforeChecking,
    RefusalShowsOneColumn,
    IgnoresBeyond,
    IgnoresUntil,
    IgnoresLimit,
    LowestPriorityFirst,
    AlwaysReturnsValues,
    NoWriteTimes,
    IgnoresStamps,
    IgnoresTTL,
    LosesHalfOfLargeBatches,
    SendsFirstBatchOnly,
    IgnoresTables,
    StaysOpen,
)


@pytest.mark.parametrize("kind", [MemoryStore, *DEFECTIVE], ids=lambda kind: kind.__name__)
class TestDefectiveStores(StoreConformance):
    @pytest.fixture
    def store(self, clock: TimeMachine, kind: type[MemoryStore]) -> MemoryStore:
        return kind(clock)
