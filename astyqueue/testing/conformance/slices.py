"""The promises on reads, and on the tables in which they find rows: each table keeps all promises by itself."""

from __future__ import annotations

import uuid
from dataclasses import replace
from itertools import pairwise

import pytest

from astyqueue import ids
from astyqueue.protocol.steps import Commit, Read, Request, Send
from astyqueue.store import ENTRIES, HISTORY, Batch, Name, Named, Put, Slice, Store
from astyqueue.testing.conformance.examples import KIND, OTHER_KIND, ROW, found, name, names, past, put_all
from astyqueue.testing.faults import Faulty
from astyqueue.testing.timemachine import TimeMachine

EARLY, MIDDLE, LATE = (name(order).id for order in (3, 5, 8))


class SlicePromises:
    """A read returns exactly the wanted columns, in the order of their names."""

    def test_columns_come_in_the_order_of_their_ids_whatever_the_order_of_sending(
        self, store: Store, clock: TimeMachine
    ) -> None:
        for order in (4, 0, 3, 1, 2):
            put_all(store, clock, (name(order),))
        assert found(store, Slice(ROW, KIND, 0)) == list(names(5))

    def test_higher_priorities_come_first(self, store: Store, clock: TimeMachine) -> None:
        spread = [name(order, priority=priority) for priority in (0, 1, 2, 9) for order in (0, 1)]
        put_all(store, clock, tuple(spread))
        assert found(store, Slice(ROW, KIND)) == sorted(spread, key=lambda each: (-each.priority, each.id))

    def test_states_of_one_id_come_in_ascending_order(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, tuple(name(order, state=state) for order in (0, 1) for state in (5, 2, 3)))
        assert found(store, Slice(ROW, KIND, 0)) == [
            name(order, state=state) for order in (0, 1) for state in (2, 3, 5)
        ]

    def test_ids_of_one_moment_are_ordered_by_their_other_bytes_as_signed_numbers(
        self, store: Store, clock: TimeMachine
    ) -> None:
        tails = [
            bytes((first, 0x40, *rest))
            for first in (0x80, 0xBF)
            for rest in ((0x7F,) * 6, (0x80,) * 6, (0x00,) * 6, (0xFF, 0x01, 0, 0, 0, 0))
        ]
        moment = ids.as_uuid(name(0).id).bytes[:8]
        tied = [Name(KIND, 0, ids.from_uuid(uuid.UUID(bytes=moment + tail)), 1) for tail in tails]
        put_all(store, clock, tuple(tied))
        ordered = [ids.as_uuid(each.id).bytes[8:] for each in found(store, Slice(ROW, KIND, 0))]
        assert len(ordered) == len(tails)
        for one, next_one in pairwise([[byte - 256 if byte > 127 else byte for byte in tail] for tail in ordered]):
            assert one < next_one

    def test_a_slice_gets_one_type_only(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, (name(0), name(0, kind=OTHER_KIND), name(1, kind=1)))
        assert found(store, Slice(ROW, OTHER_KIND)) == [name(0, kind=OTHER_KIND)]
        assert found(store, Slice(ROW, OTHER_KIND, 0)) == [name(0, kind=OTHER_KIND)]

    def test_a_slice_of_a_priority_gets_that_priority_only(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, tuple(name(0, priority=priority) for priority in range(3)))
        assert found(store, Slice(ROW, KIND, 1)) == [name(0, priority=1)]

    @pytest.mark.parametrize("priority", [0, None])
    def test_bounds_take_in_the_first_id_and_leave_out_the_last(
        self, store: Store, clock: TimeMachine, priority: int | None
    ) -> None:
        put_all(store, clock, names(10))
        assert found(store, Slice(ROW, KIND, priority, after=EARLY, until=LATE)) == list(names(10)[3:8])
        assert found(store, Slice(ROW, KIND, priority, after=EARLY)) == list(names(10)[3:])
        assert found(store, Slice(ROW, KIND, priority, until=LATE)) == list(names(10)[:8])
        assert found(store, Slice(ROW, KIND, priority, after=LATE, until=EARLY)) == []

    @pytest.mark.parametrize("priority", [0, None])
    def test_beyond_an_id_none_of_its_states_is_got(
        self, store: Store, clock: TimeMachine, priority: int | None
    ) -> None:
        put_all(store, clock, tuple(name(order, state=state) for order in (4, 5, 6) for state in (1, 2)))
        got = found(store, Slice(ROW, KIND, priority, after=MIDDLE, beyond=True))
        assert got == [name(6, state=1), name(6, state=2)]

    def test_bounds_without_a_priority_are_bounds_of_the_ids_of_every_priority(
        self, store: Store, clock: TimeMachine
    ) -> None:
        put_all(store, clock, tuple(name(order, priority=priority) for order in range(10) for priority in (0, 1)))
        got = found(store, Slice(ROW, KIND, after=EARLY, until=MIDDLE))
        assert got == [name(order, priority=priority) for priority in (1, 0) for order in (3, 4)]

    def test_a_bound_is_a_moment_whatever_the_rest_of_the_ids(self, store: Store, clock: TimeMachine) -> None:
        low, high = bytes(8), b"\x3f" + b"\xff" * 7
        put_all(store, clock, tuple(name(order, tail=tail) for order in range(3) for tail in (low, high)))
        first, second = ids.moment(name(1).id), ids.moment(name(2).id)
        got = found(store, Slice(ROW, KIND, 0, after=ids.first_at(first), until=ids.first_at(second)))
        assert got == [name(1, tail=low), name(1, tail=high)]

    @pytest.mark.parametrize("priority", [0, None])
    def test_a_limit_gets_the_first_of_what_is_between_the_bounds(
        self, store: Store, clock: TimeMachine, priority: int | None
    ) -> None:
        put_all(store, clock, names(10))
        assert found(store, Slice(ROW, KIND, priority, after=EARLY, limit=3)) == list(names(10)[3:6])
        assert found(store, Slice(ROW, KIND, priority, after=EARLY, until=MIDDLE, limit=9)) == list(names(10)[3:5])

    def test_a_limit_is_filled_past_what_was_deleted(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(20))
        store.send(Batch(ROW, deletes=names(20)[:15]))
        assert found(store, Slice(ROW, KIND, 0, limit=3)) == list(names(20)[15:18])

    def test_pages_put_together_are_the_whole(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(25))
        got = found(store, Slice(ROW, KIND, 0, limit=10))
        for _ in range(3):
            got += found(store, Slice(ROW, KIND, 0, after=got[-1].id, beyond=True, limit=10))
        assert got == list(names(25))

    def test_without_values_names_and_write_times_are_got_and_values_are_empty(
        self, store: Store, clock: TimeMachine
    ) -> None:
        put_all(store, clock, names(3))
        whole, bare, named = store.read(
            (Slice(ROW, KIND), Slice(ROW, KIND, values=False), Named(ROW, names(3), values=False))
        )
        assert [column.value for column in whole] == [each.id for each in names(3)]
        assert bare == named == [column._replace(value=b"") for column in whole]

    def test_columns_asked_for_by_name_come_in_the_order_of_names_and_those_missing_do_not(
        self, store: Store, clock: TimeMachine
    ) -> None:
        there = (name(0, priority=1), name(0), name(2), name(2, kind=OTHER_KIND))
        put_all(store, clock, (*there, name(1)))
        asked = (there[3], there[2], name(7), there[0], name(0, state=2), there[1], name(0, priority=2))
        assert found(store, Named(ROW, asked)) == list(there)

    def test_no_names_get_no_columns(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(1))
        assert found(store, Named(ROW, ())) == []

    def test_many_columns_are_got_by_name(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(200))
        asked = (*reversed(names(300)[1:]), name(400))
        assert found(store, Named(ROW, asked)) == list(names(200)[1:])

    def test_one_read_answers_each_slice_in_its_place(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(3))
        put_all(store, clock, names(1), row="other")
        answers = store.read(
            (Slice(ROW, KIND, limit=2), Slice("nothing", KIND), Named("other", names(3)), Slice(ROW, KIND, limit=1))
        )
        assert [[column.name for column in answer] for answer in answers] == [
            list(names(2)),
            [],
            list(names(1)),
            list(names(1)),
        ]
        assert store.read(()) == []

    def test_asking_again_gets_what_has_come_since(self, store: Store, clock: TimeMachine) -> None:
        wanted = (Slice(ROW, KIND, 0),)
        for count in range(5):
            for _ in range(3):
                assert [column.name for column in store.read(wanted)[0]] == list(names(count))
            put_all(store, clock, (name(count),))

    def test_an_answer_belongs_to_who_asked(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(2))
        wanted = (Slice(ROW, KIND, 0),)
        for _ in range(5):
            answer = store.read(wanted)
            assert [column.name for column in answer[0]] == list(names(2))
            answer[0].clear()


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
