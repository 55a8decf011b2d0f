"""The simulated cluster: which version of a cell wins, what a client learns under faults, and conformance."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial

import pytest

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.store import Batch, Committed, Expectation, Name, Named, Put, Refused
from astyqueue.testing.conformance import StoreConformance
from astyqueue.units import SECOND
from tests.simulation.cassandra.replica import Ballot, Decision, Promise, Replica
from tests.simulation.cassandra.storage import DELETED, EXPIRING, LASTING, Cell, Row, merged
from tests.simulation.cassandra.store import SimulatedClock, SimulatedStore
from tests.simulation.engine.event_loop import EventLoop, SkewedClock
from tests.simulation.engine.fault_profile import FaultProfile

ROW = "row:0:0"
NAME = Name(0, 0, ids.LEAST, 0)


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def store(clock: SimulatedClock) -> SimulatedStore:
    return SimulatedStore(clock)


def contents(store: SimulatedStore, *, exact: bool = False) -> bytes | None:
    [columns] = store.read((Named(ROW, (NAME,)),), exact=exact)
    return columns[0].value if columns else None


def write(store: SimulatedStore, value: bytes, before: bytes | None) -> object:
    return store.commit(Batch(ROW, (Put(NAME, value),)), (Expectation(NAME, before),))


def stop(store: SimulatedStore, *numbers: int) -> None:
    for number in numbers:
        store.cluster.replicas[number].crash(0)


def test_with_one_of_three_away_everything_goes_on(store: SimulatedStore) -> None:
    stop(store, 1)
    assert write(store, b"1", None) == Committed()
    assert write(store, b"2", None) == Refused({NAME: b"1"})
    assert contents(store) == contents(store, exact=True) == b"1"


def test_with_two_of_three_away_nothing_was_changed(store: SimulatedStore) -> None:
    stop(store, 1, 2)
    with pytest.raises(StoreUnavailable):
        write(store, b"1", None)
    with pytest.raises(StoreUnavailable):
        store.send(Batch(ROW, (Put(NAME, b"1"),)))


def test_a_replica_that_was_away_is_handed_its_hints(store: SimulatedStore, clock: SimulatedClock) -> None:
    stop(store, 2)
    store.send(Batch(ROW, (Put(NAME, b"1"),)))
    clock.advance("10s")
    store.cluster.replicas[2].up = True
    for replica in store.cluster.replicas:
        store.cluster.hand_over_hints(replica)
    stop(store, 0)
    assert contents(store) == b"1"


def test_what_a_majority_did_not_answer_has_an_unknown_outcome_and_may_be_there_later(
    store: SimulatedStore, clock: SimulatedClock
) -> None:
    for replica in store.cluster.replicas[1:]:
        replica.paused_until = clock.event_loop.now + 30 * SECOND
    store.cluster.replicas[1].up = store.cluster.replicas[2].up = True
    with pytest.raises(OutcomeUnknown):
        write(store, b"1", None)
    clock.advance("1m")
    assert contents(store, exact=True) in (None, b"1")


def test_a_read_spreads_what_one_replica_has_before_it_tells(store: SimulatedStore) -> None:
    store.send(Batch(ROW, (Put(NAME, b"1"),)))
    for replica in store.cluster.replicas[1:]:
        replica.rows.clear()
    seen = {contents(store) for _ in range(20)}
    assert b"1" in seen
    assert sum(bool(replica.row(ROW).cells) for replica in store.cluster.replicas) >= 2
    assert contents(store) == b"1"


def test_what_a_process_writes_last_stands_although_its_clock_was_set_back(
    store: SimulatedStore, clock: SimulatedClock
) -> None:
    store.send(Batch(ROW, (Put(NAME, b"first"),)))
    clock.skew -= 20_000_000
    store.send(Batch(ROW, (Put(NAME, b"last"),)))
    assert contents(store, exact=True) == b"last"


def test_a_commit_is_stamped_by_its_ballot_and_later_than_the_one_before(store: SimulatedStore) -> None:
    before = None
    written = []
    for number in range(20):
        value = bytes((number,))
        assert write(store, value, before) == Committed()
        [[column]] = store.read((Named(ROW, (NAME,)),), exact=True)
        written.append(column.written)
        before = value
    assert written == sorted(written)


def test_two_commits_never_have_one_stamp_although_clocks_of_servers_differ() -> None:
    """Two servers behind the last ballot go just beyond it; a replica that promised one ballot refuses the other."""
    event_loop = EventLoop()
    ann, bob = (Replica(number, SkewedClock(event_loop, 0)) for number in (1, 2))
    in_the_way = Ballot(event_loop.now + 60 * SECOND, 0)
    first, second = ann.next_ballot(in_the_way), bob.next_ballot(in_the_way)
    preparing = partial(Replica.prepare, row="row", selection=lambda row: row.named(()), writing=True)
    assert first.moment == second.moment
    assert isinstance(preparing(ann, ballot=first), Promise)
    assert preparing(ann, ballot=second) == first
    assert ann.propose("row", Decision(second, {}, second)) == first
    assert ann.propose("row", Decision(first, {}, first)) is True


def test_a_tombstone_that_was_cleared_too_early_lets_the_dead_return(clock: SimulatedClock) -> None:
    """This is why tombstones are kept for longer than any server may be away."""
    store = SimulatedStore(clock, profile=dataclasses.replace(FaultProfile.fault_free(3), grace_us=5 * SECOND))
    store.send(Batch(ROW, (Put(NAME, b"1"),)))
    stop(store, 2)
    store.send(Batch(ROW, deletes=(NAME,)))
    clock.advance("8s")
    for replica in store.cluster.replicas:
        replica.purge(store.cluster.profile.grace_us)
    store.cluster.replicas[2].up = True
    stop(store, 0)
    assert contents(store) == b"1"


COLUMN = b"name"


def surviving(*cells: Cell) -> set[Cell]:
    """What stands after these came, in any order."""
    found = set()
    for order in itertools.permutations(cells):
        row = Row()
        for cell in order:
            row.apply({COLUMN: cell})
        found.add(row.cells[COLUMN])
    return found


@pytest.mark.parametrize(
    ("winner", "loser"),
    [
        (Cell(2, LASTING, 0, b"a"), Cell(1, LASTING, 0, b"b")),
        (Cell(1, DELETED, 5, b""), Cell(1, LASTING, 0, b"b")),
        (Cell(1, EXPIRING, 5, b"a"), Cell(1, LASTING, 0, b"b")),
        (Cell(1, DELETED, 5, b""), Cell(1, EXPIRING, 9, b"b")),
        (Cell(1, LASTING, 0, b"x"), Cell(1, LASTING, 0, b"a")),
        (Cell(2, LASTING, 0, b"a"), Cell(1, DELETED, 5, b"")),
    ],
    ids=["later", "deleted", "expiring", "deleted beats expiring", "larger value", "written behind a tombstone"],
)
def test_of_two_versions_one_stands_whichever_came_first(winner: Cell, loser: Cell) -> None:
    assert surviving(winner, loser) == {winner}


def test_what_several_replicas_have_is_merged_name_by_name() -> None:
    old, new, tombstone = Cell(1, LASTING, 0, b"old"), Cell(2, LASTING, 0, b"new"), Cell(3, DELETED, 0, b"")
    assert merged([{b"a": old, b"b": new}, {b"a": new, b"c": tombstone}]) == {b"a": new, b"b": new, b"c": tombstone}


def test_tombstones_are_purged_once_they_are_old() -> None:
    row = Row()
    row.apply({b"a": Cell(1, DELETED, 10, b""), b"b": Cell(1, DELETED, 20, b""), b"c": Cell(1, LASTING, 0, b"")})
    assert row.purge(15) == 1
    assert list(row.cells) == [b"b", b"c"]


class TestSimulated(StoreConformance):
    @pytest.fixture
    def clock(self) -> SimulatedClock:
        return SimulatedClock()

    @pytest.fixture
    def store(self, clock: SimulatedClock) -> SimulatedStore:
        return SimulatedStore(clock)
