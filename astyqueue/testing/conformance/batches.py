"""The promises on batches."""

from __future__ import annotations

import pytest

from astyqueue.errors import BadInput, BadSetting, Closed
from astyqueue.store import Batch, Name, Named, Put, Slice, Store
from astyqueue.testing.conformance.examples import (
    COUNTER,
    OTHER_KIND,
    ROW,
    contents,
    having,
    name,
    names,
    past,
    put_all,
    value,
)
from astyqueue.testing.timemachine import TimeMachine

MEBIBYTE = 1 << 20


class BatchPromises:
    """A batch is atomic, and durable once `send` has returned."""

    def test_what_was_sent_is_read_back(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(3))
        assert contents(store) == {each: each.id for each in names(3)}

    def test_puts_and_deletes_of_one_batch_are_applied_together(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(3))
        store.send(Batch(ROW, puts=(Put(name(7), b"new", past(clock)),), deletes=names(2)))
        assert contents(store) == {name(2): name(2).id, name(7): b"new"}

    def test_deleting_what_is_not_there_changes_nothing(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(2))
        store.send(Batch(ROW, deletes=(name(5), name(0, kind=OTHER_KIND), name(0, state=2), name(0, priority=1))))
        assert list(contents(store)) == list(names(2))

    def test_sending_the_same_batch_again_changes_nothing_more(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(2))
        before = store.read((Slice(ROW, name(0).type),))
        put_all(store, clock, names(2))
        assert store.read((Slice(ROW, name(0).type),)) == before

    def test_an_empty_batch_changes_nothing(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(2))
        store.send(Batch(ROW))
        assert list(contents(store)) == list(names(2))

    def test_rows_do_not_see_each_other(self, store: Store, clock: TimeMachine) -> None:
        for row in ("a", "a:0", "b"):
            put_all(store, clock, names(2), row=row)
        store.send(Batch("a:0", deletes=names(2)))
        assert [len(contents(store, row)) for row in ("a", "a:0", "b")] == [2, 0, 2]

    @pytest.mark.parametrize(
        "row",
        ["queue:key:größe", "queue:key:中文 with spaces", "queue:key:🦉", "queue:key:'\"%_\\", "e\u0301", "\u00e9"],
    )
    def test_a_row_may_have_any_text_as_its_key(self, store: Store, clock: TimeMachine, row: str) -> None:
        put_all(store, clock, names(1), row=row)
        assert contents(store, row) == {name(0): name(0).id}
        assert contents(store, row + "x") == {}

    def test_keys_that_look_alike_are_different_rows(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(1), row="e\u0301")
        assert contents(store, "\u00e9") == {}
        put_all(store, clock, names(1), row="key")
        assert contents(store, "KEY") == {}

    @pytest.mark.parametrize("size", [0, 1, 5000, 70_000, MEBIBYTE])
    def test_values_of_every_size_come_back_as_they_were(self, store: Store, clock: TimeMachine, size: int) -> None:
        written = (bytes(range(256)) * (size // 256 + 1))[:size]
        store.send(Batch(ROW, puts=(Put(name(0), written, past(clock)),)))
        assert value(store, name(0)) == written

    def test_a_batch_of_many_columns_is_applied_whole(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(200))
        assert len(contents(store)) == 200
        store.send(Batch(ROW, deletes=names(199)))
        assert list(contents(store)) == [name(199)]

    def test_batches_that_are_sent_together_are_all_applied(self, store: Store, clock: TimeMachine) -> None:
        rows = ["a", "b", "c", ROW]
        store.send(*[Batch(row, tuple(Put(each, row.encode(), past(clock)) for each in names(50))) for row in rows])
        assert [set(contents(store, row).values()) for row in rows] == [{row.encode()} for row in rows]

    def test_of_batches_that_are_sent_together_none_is_applied_if_one_cannot_be(
        self, store: Store, clock: TimeMachine
    ) -> None:
        good = Batch(ROW, (Put(name(0), b"", past(clock)),))
        with pytest.raises(BadInput):
            store.send(good, Batch("b", (Put(name(0), b"", past(clock)),), deletes=(name(0),)))
        assert contents(store) == {}

    def test_a_name_both_put_and_deleted_is_refused_and_nothing_is_changed(
        self, store: Store, clock: TimeMachine
    ) -> None:
        put_all(store, clock, names(2))
        with pytest.raises(BadInput):
            store.send(
                Batch(
                    ROW,
                    puts=(Put(name(5), b"", past(clock)), Put(name(0), b"", past(clock))),
                    deletes=(name(1), name(0)),
                )
            )
        with pytest.raises(BadInput):
            store.commit(Batch(ROW, puts=(Put(COUNTER, b"1"),), deletes=(name(1), COUNTER)), having(COUNTER, None))
        assert list(contents(store)) == list(names(2))

    def test_a_table_that_no_store_keeps_is_refused(self, store: Store) -> None:
        with pytest.raises(BadSetting, match="entries"):
            store.send(Batch(ROW, deletes=names(1), table="entreis"))
        with pytest.raises(BadSetting, match="entries"):
            store.read((Slice(ROW, 2, table="entreis"),))
        with pytest.raises(BadSetting, match="entries"):
            store.read((Named(ROW, names(1), table="entreis"),))

    @pytest.mark.parametrize(
        "wrong",
        [
            Name(256, 0, name(0).id, 0),
            Name(0, 256, name(0).id, 0),
            Name(0, -1, name(0).id, 0),
            Name(0, 0, name(0).id, 256),
        ],
    )
    def test_a_name_out_of_bounds_is_refused(self, store: Store, wrong: Name) -> None:
        with pytest.raises(BadInput):
            store.send(Batch(ROW, puts=(Put(wrong, b""),)))

    def test_after_close_every_verb_says_so(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(1))
        store.close()
        store.close()
        for verb in (
            lambda: contents(store),
            lambda: put_all(store, clock, names(1)),
            lambda: store.commit(Batch(ROW), having(COUNTER, None)),
        ):
            with pytest.raises(Closed):
                verb()
