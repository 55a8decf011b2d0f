"""The promises on tables: each keeps all promises, and they are independent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from astyqueue.protocol.steps import Commit, Read, Request, Send
from astyqueue.store import ENTRIES, HISTORY, Batch, Put, Slice, Store
from astyqueue.testing.conformance.examples import KIND, ROW, name, past
from astyqueue.testing.faults import Faulty
from astyqueue.testing.timemachine import TimeMachine


class InTable(Faulty):
    """A wrapper that swaps `table` with the default table, so that tests without a table run in `table`."""

    def __init__(self, store: Store, table: str) -> None:
        """Wrap `store`; `close` closes it."""
        super().__init__(store)
        self._places = {ENTRIES: table, table: ENTRIES}

    def perform(self, request: Request) -> object:
        """Carry out a request with the tables swapped."""
        match request:
            case Read(wanted, exact):
                request = Read(tuple(replace(each, table=self._in(each.table)) for each in wanted), exact)
            case Send():
                sent = [replace(batch, table=self._in(batch.table)) for batch in request.batches]
                request = Send(sent[0], tuple(sent[1:]))
            case Commit(batch, expects):
                request = Commit(replace(batch, table=self._in(batch.table)), expects)
        return super().perform(request)

    def _in(self, table: str) -> str:
        return self._places.get(table, table)


class TablePromises:
    """Rows of two tables are different rows, also under the same key."""

    def test_tables_do_not_see_each_other(self, store: Store, clock: TimeMachine) -> None:
        for table in (ENTRIES, HISTORY):
            store.send(Batch(ROW, (Put(name(0), table.encode(), past(clock)),), table=table))
        found = store.read(tuple(Slice(ROW, KIND, table=table) for table in (ENTRIES, HISTORY)))
        assert [[column.value for column in columns] for columns in found] == [[b"entries"], [b"history"]]

    @pytest.mark.parametrize("table", [ENTRIES, HISTORY])
    def test_what_is_deleted_from_one_table_stays_in_the_other(
        self, store: Store, clock: TimeMachine, table: str
    ) -> None:
        for each in (ENTRIES, HISTORY):
            store.send(Batch(ROW, (Put(name(0), b"", past(clock)),), table=each))
        store.send(Batch(ROW, deletes=(name(0),), table=table))
        found = store.read(tuple(Slice(ROW, KIND, table=each) for each in (ENTRIES, HISTORY)))
        assert [bool(columns) for columns in found] == [table != ENTRIES, table != HISTORY]
