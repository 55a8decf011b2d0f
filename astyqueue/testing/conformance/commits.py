"""The promises on commits."""

from __future__ import annotations

import pytest

from astyqueue.errors import BadInput
from astyqueue.store import Batch, Committed, Expectation, Put, Refused, Store
from astyqueue.testing.conformance.examples import (
    COUNTER,
    LOCK,
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


class CommitPromises:
    """A commit is applied completely if every expectation holds, and otherwise not at all."""

    def test_a_commit_is_applied_when_its_column_is_absent_as_expected(self, store: Store) -> None:
        assert store.commit(Batch(ROW, puts=(Put(COUNTER, b"1"),)), having(COUNTER, None)) == Committed()
        assert contents(store) == {COUNTER: b"1"}

    def test_a_commit_is_applied_when_its_column_has_the_bytes_expected(self, store: Store) -> None:
        for before, after in ((None, b"1"), (b"1", b"2"), (b"2", b"10")):
            assert store.commit(Batch(ROW, puts=(Put(COUNTER, after),)), having(COUNTER, before)) == Committed()
        assert value(store, COUNTER) == b"10"

    @pytest.mark.parametrize("expected", [None, b"", b"0", b"1\x00", b"2"])
    def test_a_commit_that_expected_something_else_changes_nothing(
        self, store: Store, clock: TimeMachine, expected: bytes | None
    ) -> None:
        store.commit(Batch(ROW, puts=(Put(COUNTER, b"1"),)), having(COUNTER, None))
        put_all(store, clock, names(2))
        before = contents(store)
        refused = store.commit(
            Batch(ROW, puts=(Put(COUNTER, b"9"), Put(LOCK, b"9")), deletes=names(2)), having(COUNTER, expected)
        )
        assert refused == Refused({COUNTER: b"1"})
        assert contents(store) == before

    def test_an_empty_value_is_not_an_absent_column(self, store: Store) -> None:
        store.commit(Batch(ROW, puts=(Put(COUNTER, b""),)), having(COUNTER, None))
        assert store.commit(Batch(ROW, puts=(Put(COUNTER, b"9"),)), having(COUNTER, None)) == Refused({COUNTER: b""})
        assert store.commit(Batch(ROW, puts=(Put(LOCK, b"9"),)), having(LOCK, b"")) == Refused({LOCK: None})
        assert store.commit(Batch(ROW, puts=(Put(COUNTER, b"9"),)), having(COUNTER, b"")) == Committed()

    def test_one_expectation_that_fails_is_enough_and_all_present_values_are_told(self, store: Store) -> None:
        store.commit(Batch(ROW, puts=(Put(COUNTER, b"1"),)), having(COUNTER, None))
        absent = name(5, state=2)
        expects = (Expectation(COUNTER, b"1"), Expectation(LOCK, b"held"), Expectation(absent, None))
        refused = store.commit(Batch(ROW, puts=(Put(COUNTER, b"2"),), deletes=(LOCK,)), expects)
        assert refused == Refused({COUNTER: b"1", LOCK: None, absent: None})
        assert contents(store) == {COUNTER: b"1"}

    def test_several_expectations_that_hold_let_a_commit_pass(self, store: Store) -> None:
        store.commit(Batch(ROW, puts=(Put(COUNTER, b"1"), Put(LOCK, b"held"))), having(COUNTER, None))
        expects = (Expectation(COUNTER, b"1"), Expectation(LOCK, b"held"), Expectation(name(5, state=2), None))
        assert store.commit(Batch(ROW, puts=(Put(COUNTER, b"2"),), deletes=(LOCK,)), expects) == Committed()
        assert contents(store) == {COUNTER: b"2"}

    def test_a_column_expected_but_not_written_stays_as_it_is(self, store: Store) -> None:
        store.commit(Batch(ROW, puts=(Put(COUNTER, b"1"),)), having(COUNTER, None))
        assert store.commit(Batch(ROW, puts=(Put(LOCK, b"held"),)), having(COUNTER, b"1")) == Committed()
        assert contents(store) == {COUNTER: b"1", LOCK: b"held"}

    def test_a_deleted_column_counts_as_absent(self, store: Store) -> None:
        store.commit(Batch(ROW, puts=(Put(LOCK, b"held"),)), having(LOCK, None))
        store.commit(Batch(ROW, deletes=(LOCK,)), having(LOCK, b"held"))
        assert store.commit(Batch(ROW, deletes=(LOCK,)), having(LOCK, b"held")) == Refused({LOCK: None})
        assert store.commit(Batch(ROW, puts=(Put(COUNTER, b"1"),)), having(LOCK, None)) == Committed()

    def test_a_commit_deletes_what_plain_sends_wrote(self, store: Store, clock: TimeMachine) -> None:
        put_all(store, clock, names(50))
        assert (
            store.commit(Batch(ROW, puts=(Put(COUNTER, b"1"),), deletes=names(49)), having(COUNTER, None))
            == Committed()
        )
        assert contents(store) == {COUNTER: b"1", name(49): name(49).id}

    def test_expectations_are_of_the_commits_own_row(self, store: Store) -> None:
        store.commit(Batch("other", puts=(Put(COUNTER, b"1"),)), having(COUNTER, None))
        assert store.commit(Batch(ROW, puts=(Put(LOCK, b"1"),)), having(COUNTER, b"1")) == Refused({COUNTER: None})

    def test_a_commit_without_changes_only_tells_whether_it_would_pass(self, store: Store) -> None:
        assert store.commit(Batch(ROW), having(COUNTER, b"1")) == Refused({COUNTER: None})
        assert store.commit(Batch(ROW), having(COUNTER, None)) == Committed()
        assert contents(store) == {}

    def test_a_stamp_in_a_commit_is_refused(self, store: Store, clock: TimeMachine) -> None:
        with pytest.raises(BadInput, match="stamp"):
            store.commit(Batch(ROW, puts=(Put(COUNTER, b"1", past(clock)),)), having(COUNTER, None))
        assert contents(store) == {}

    def test_a_put_repeated_late_does_not_undo_a_commit(self, store: Store, clock: TimeMachine) -> None:
        late = Batch(ROW, puts=(Put(name(0), b"sent", past(clock)),))
        store.send(late)
        store.commit(Batch(ROW, puts=(Put(name(0), b"committed"),)), having(COUNTER, None))
        store.send(late)
        assert value(store, name(0)) == b"committed"
