"""The promises on write times and times to live."""

from __future__ import annotations

import pytest

from astyqueue.errors import BadInput
from astyqueue.store import Batch, Committed, Named, Put, Refused, Slice, Store
from astyqueue.testing.conformance.examples import COUNTER, KIND, LOCK, ROW, contents, found, having, name, past, value
from astyqueue.testing.timemachine import TimeMachine
from astyqueue.units import SECOND

#: How far a store's clock may be from the test's, in microseconds.
TOLERANCE = 10 * SECOND


class TimePromises:
    """The later stamp wins, and a column is gone once its time to live has passed."""

    @pytest.mark.parametrize(("first", "second", "stands"), [(1, 2, b"second"), (2, 1, b"first")])
    def test_of_two_puts_the_later_stamp_stands_whichever_came_first(
        self, store: Store, clock: TimeMachine, *, first: int, second: int, stands: bytes
    ) -> None:
        store.send(Batch(ROW, puts=(Put(name(0), b"first", past(clock) + first),)))
        store.send(Batch(ROW, puts=(Put(name(0), b"second", past(clock) + second),)))
        assert value(store, name(0)) == stands

    def test_a_put_that_gives_way_lets_the_rest_of_its_batch_pass(self, store: Store, clock: TimeMachine) -> None:
        store.send(Batch(ROW, puts=(Put(name(0), b"first", past(clock)),)))
        store.send(Batch(ROW, puts=(Put(name(0), b"older", past(clock) - 1), Put(name(1), b"older", past(clock) - 1))))
        assert contents(store) == {name(0): b"first", name(1): b"older"}

    def test_of_two_puts_without_stamps_the_later_stands(self, store: Store) -> None:
        for number in (b"9", b"10", b"11", b"1"):
            store.send(Batch(ROW, puts=(Put(name(0), number),)))
        assert value(store, name(0)) == b"1"

    def test_a_stamped_put_was_written_when_its_stamp_says(self, store: Store, clock: TimeMachine) -> None:
        store.send(Batch(ROW, puts=(Put(name(0), b"", past(clock)), Put(name(1), b"", past(clock) + 7))))
        (columns,) = store.read((Slice(ROW, KIND),))
        assert [column.written for column in columns] == [past(clock), past(clock) + 7]

    def test_a_put_without_a_stamp_was_written_now(self, store: Store, clock: TimeMachine) -> None:
        store.send(Batch(ROW, puts=(Put(name(0), b""),)))
        ((column,),) = store.read((Named(ROW, (name(0),)),))
        assert abs(column.written - clock.now()) < TOLERANCE

    def test_a_commit_was_written_now_and_each_later_than_the_one_before(
        self, store: Store, clock: TimeMachine
    ) -> None:
        times, known = [], None
        for number in (b"1", b"2", b"3"):
            store.commit(Batch(ROW, puts=(Put(COUNTER, number),)), having(COUNTER, known))
            known = number
            ((column,),) = store.read((Named(ROW, (COUNTER,)),), exact=True)
            times.append(column.written)
        assert times == sorted(set(times))
        assert abs(times[-1] - clock.now()) < TOLERANCE

    def test_a_column_is_gone_once_its_time_to_live_has_passed(self, store: Store, clock: TimeMachine) -> None:
        store.send(
            Batch(
                ROW, puts=(Put(name(0), b"short", ttl=3), Put(name(1), b"longer", ttl=600), Put(name(2), b"for good"))
            )
        )
        assert found(store, Slice(ROW, KIND)) == [name(0), name(1), name(2)]
        clock.advance(4)
        assert found(store, Slice(ROW, KIND)) == [name(1), name(2)]
        assert found(store, Slice(ROW, KIND, 0, limit=1)) == [name(1)]
        assert found(store, Named(ROW, (name(0), name(1)))) == [name(1)]

    def test_a_column_is_gone_in_time_also_for_who_keeps_asking(self, store: Store, clock: TimeMachine) -> None:
        wanted = (Slice(ROW, KIND, 0), Named(ROW, (name(0),)))
        store.send(Batch(ROW, puts=(Put(name(0), b"short", ttl=3),)))
        for _ in range(4):
            assert [len(columns) for columns in store.read(wanted)] == [1, 1]
        clock.advance(4)
        for _ in range(4):
            assert [len(columns) for columns in store.read(wanted)] == [0, 0]

    def test_a_column_written_again_without_a_time_to_live_stays(self, store: Store, clock: TimeMachine) -> None:
        store.send(Batch(ROW, puts=(Put(name(0), b"short", past(clock), ttl=2),)))
        store.send(Batch(ROW, puts=(Put(name(0), b"for good", past(clock) + 1),)))
        clock.advance(4)
        assert value(store, name(0)) == b"for good"

    def test_what_a_commit_inserts_may_have_a_time_to_live_and_counts_as_absent_afterwards(
        self, store: Store, clock: TimeMachine
    ) -> None:
        store.commit(Batch(ROW, puts=(Put(LOCK, b"held", ttl=3),)), having(LOCK, None))
        assert store.commit(Batch(ROW, puts=(Put(LOCK, b"mine"),)), having(LOCK, None)) == Refused({LOCK: b"held"})
        clock.advance(4)
        assert store.commit(Batch(ROW, puts=(Put(COUNTER, b"1"),)), having(LOCK, b"held")) == Refused({LOCK: None})
        assert store.commit(Batch(ROW, puts=(Put(LOCK, b"mine"),)), having(LOCK, None)) == Committed()
        assert contents(store) == {LOCK: b"mine"}

    @pytest.mark.parametrize("ttl", [0, -1])
    def test_a_time_to_live_of_nothing_is_refused(self, store: Store, ttl: int) -> None:
        with pytest.raises(BadInput):
            store.send(Batch(ROW, puts=(Put(name(0), b"", ttl=ttl),)))
        assert contents(store) == {}
