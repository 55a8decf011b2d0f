"""What was wrong with the recipe's locks: each fault blocked a row, or let two processes claim from it at once.

Numbers are those of the lineage page.
"""

from __future__ import annotations

from functools import partial

import pytest

from astyqueue import LeaseLost, Message, MessageQueue
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.steps import Client, Commit, Read, run
from astyqueue.store import Slice, Store
from astyqueue.testing import Failing, Recording, TimeMachine
from astyqueue.units import SECOND
from tests.astyanax_regressions.conftest import Opens, Slow, deaths, everything
from tests.modelcheck.executor import History, Scenario
from tests.modelcheck.explorer import explore
from tests.unit.protocol.checked_store import ROW
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene

HOUR = 3_600 * SECOND


def test_a_process_that_dies_at_any_request_of_its_claim_blocks_no_other(opens: Opens, store: Store) -> None:
    """1: a lock's time was written in one unit and read in another, so a dead holder blocked its row for minutes."""
    alive = opens()
    died = 0
    for request, done in deaths(opens, store, lambda queue: queue.receive(1)):
        died += 1
        alive.send_many([1, 2])
        there = alive.counts().waiting
        assert len(alive.receive(200)) == there > 0, (request, done)
    assert died >= 4


@pytest.mark.parametrize("ahead", [0, -HOUR, HOUR], ids=["clocks agree", "one is slow", "one is fast"])
def test_however_claimers_meet_a_row_has_one_header_and_no_other_lock(ahead: int) -> None:
    """2 and 3: a winner wrote a lock for each one it saw, a loser to a slow clock left its own: the row was blocked."""

    def world() -> Scenario:
        scene = Scene(messages=2)
        scene.clock.advance("2h")
        skewed = Client("bob", lambda: scene.clock.now() + ahead)
        actors = {
            process.name: partial(claim, process, RowSnapshot(ROW, 1), ClaimRequest(1, LEASE, ATTEMPTS))
            for process in (scene.process("ann"), skewed)
        }

        def judge(_: History) -> str | None:
            locks = scene.store.read((Slice(ROW, Type.LOCK),))[0]
            return None if len(locks) <= 1 else f"{len(locks)} locks are left"

        return Scenario(scene.store, actors, judge)

    explored = explore(world, crashes=1, limit=300).require_none()
    assert explored.schedules > 100


def test_a_lease_that_expired_fails_no_receive(opens: Opens, clock: TimeMachine) -> None:
    """4: an expired lock was removed, and the read failed all the same."""
    dead, alive = opens(), opens()
    dead.send("work")
    dead.receive()
    clock.advance("30s")
    assert [delivery.body for delivery in alive.receive()] == ["work"]


def test_of_two_claimers_that_found_a_row_unlocked_one_is_refused(opens: Opens, store: Store) -> None:
    """4: an empty read counted as a lock."""
    other = opens()
    other.send("work")
    got: list[object] = []
    slow = opens(Slow(store, lambda: got.extend(other.receive())))
    assert list(slow.receive()) == []
    assert len(got) == 1


@pytest.mark.parametrize(
    "error", [StoreUnavailable("away"), OutcomeUnknown("no answer")], ids=["unavailable", "unknown"]
)
@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("at", range(1, 6))
def test_an_error_at_any_request_of_a_claim_leaves_nothing_that_blocks_the_row(
    error: StoreUnavailable | OutcomeUnknown, at: int, *, applied: bool
) -> None:
    """5: an error of the read-back left the candidate behind; an error of the first write had it written twice."""
    scene = Scene(messages=2)
    failing = Failing(scene.store, error, at=at, applied=applied)
    steps = claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(1, LEASE, ATTEMPTS))
    try:
        run(steps, failing)
    except (StoreUnavailable, OutcomeUnknown):
        assert scene.do("bob").claims
    assert len(scene.store.read((Slice(ROW, Type.LOCK),))[0]) <= 1
    assert sorted(scene.everything_again()) == sorted(scene.sent)
    scene.store.require_lawful()


@pytest.mark.every_store
def test_a_reader_that_pauses_before_its_commit_takes_nothing_that_others_took(opens: Opens, store: Store) -> None:
    """6: nothing fenced a reader that paused for longer than its lock: two readers had the same messages."""
    other = opens()
    other.send_many(range(5))
    taken: list[object] = []
    slow = opens(Slow(store, lambda: taken.extend(delivery.body for delivery in other.receive(4))))
    assert [delivery.body for delivery in slow.receive(5)] == [4]
    assert taken == [0, 1, 2, 3]


def test_a_holder_that_paused_for_longer_than_its_lease_is_told_so(queue: MessageQueue, clock: TimeMachine) -> None:
    """6: its ack was carried out, even if another reader had the message by then."""
    queue.send("work")
    [late] = queue.receive()
    clock.advance("31s")
    [present] = queue.receive()
    with pytest.raises(LeaseLost):
        late.ack()
    assert queue.counts().in_flight == 1
    present.ack()


def test_a_claim_of_a_hundred_keyed_messages_makes_no_more_requests_than_a_claim_of_one(
    opens: Opens, store: Store
) -> None:
    """7: for each message the reader read the entries of its key, one after the other, while it had the lock."""
    recording = Recording(store)
    queue = opens(recording)
    asked = []
    for count in (1, 1, 100):
        queue.send_many([Message(number, key=f"order:{number}") for number in range(count)])
        recording.requests.clear()
        with queue.receive(200) as batch:
            asked.append(sum(isinstance(request, Read | Commit) for request in recording.requests))
        assert len(batch) == count
    assert asked[2] <= asked[1]


@pytest.mark.every_store
def test_several_consumers_of_one_row_lose_and_double_no_message(opens: Opens, clock: TimeMachine) -> None:
    """7: there was one reader to a row at a time."""
    queues = [opens() for _ in range(4)]
    queues[0].send_many(range(40))
    held = [delivery for _ in range(5) for queue in queues for delivery in queue.receive(2)]
    assert sorted(str(delivery.body) for delivery in held) == sorted(map(str, range(40)))
    for delivery in held:
        delivery.ack()
    assert everything(queues[0], clock) == []
