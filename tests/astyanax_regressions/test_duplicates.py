"""Where the recipe did work twice, or repeated it wrongly. Numbers are those of the lineage page."""

from __future__ import annotations

import pytest

from astyqueue import Delivery, LeaseLost, MessageQueue
from astyqueue.clock import instant
from astyqueue.errors import BadInput, KeyTaken, OutcomeUnknown
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.sending.insert import send
from astyqueue.protocol.steps import Client, Commit, run
from astyqueue.protocol.steps import Send as SendRequest
from astyqueue.schedules import Schedules
from astyqueue.store import Batch, Store
from astyqueue.stores.cassandra.schema.files import declared, parts
from astyqueue.testing import Failing, TimeMachine
from astyqueue.triggers import Every
from astyqueue.units import SECOND
from tests.astyanax_regressions.conftest import Opens, everything, everything_now
from tests.unit.protocol.checked_store import ROW, Meanwhile
from tests.unit.protocol.worlds import Scene, put_at

RUNS = 5


def each_run_late(queue: MessageQueue, clock: TimeMachine) -> list[MessageId]:
    """Receive each run twice, since its first lease expires, and ack it both times; returns the acked runs."""
    acked: list[MessageId] = []
    for _ in range(3 * RUNS):
        acked += [_acked_twice(queue, clock, late) for late in queue.receive(10)]
        clock.advance("1m")
    return acked


def _acked_twice(queue: MessageQueue, clock: TimeMachine, late: Delivery) -> MessageId:
    clock.advance("31s")
    [present] = queue.receive(10)
    assert present.message_id == late.message_id
    present.ack()
    with pytest.raises(LeaseLost):
        late.ack()
    return present.message_id


@pytest.mark.parametrize("key", ["order:7", None])
@pytest.mark.every_store
def test_each_occurrence_has_one_run_though_every_run_is_read_and_acked_twice(
    queue: MessageQueue, clock: TimeMachine, key: str | None
) -> None:
    """16 and 17: the next run was sent when one was read, and again by each process that acked it: the chain forked."""
    queue.send("tick", trigger=Every("1m", count=RUNS), key=key, max_attempts=50)
    acked = each_run_late(queue, clock)
    assert len(acked) == len(set(acked)) == RUNS
    assert queue.counts().total == 0
    assert Schedules(queue).all() == []


@pytest.mark.parametrize("key", ["order:7", None])
def test_no_run_is_dropped_though_the_one_before_is_leased_for_longer_than_the_interval(
    opens: Opens, clock: TimeMachine, key: str | None
) -> None:
    """16: the entry that held the message was due later than its next run, which was taken for a duplicate."""
    queue = opens(lease="10m")
    queue.send("tick", trigger=Every("1m", count=RUNS), key=key)
    [held] = queue.receive(10)
    clock.advance("5m")
    assert not queue.receive(10)
    held.ack()
    runs = 1
    for _ in range(2 * RUNS):
        clock.advance("1s")
        runs += len(everything_now(queue))
    assert runs == RUNS


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.every_store
def test_an_ack_whose_answer_was_lost_is_done_once_and_has_one_next_run(
    opens: Opens, store: Store, clock: TimeMachine, *, applied: bool
) -> None:
    """18: the ack was tried again, and sent the next run again under another id."""
    opens().send("tick", trigger=Every("1m", count=2))
    failing = Failing(store, OutcomeUnknown("no answer"), at=2, of=(Commit,), applied=applied)
    queue = opens(failing)
    [delivery] = queue.receive(10)
    delivery.ack()
    clock.advance("1m")
    assert len(everything(opens(), clock)) == 1


@pytest.mark.every_store
def test_a_send_whose_answer_was_lost_is_there_once(opens: Opens, store: Store, clock: TimeMachine) -> None:
    """18: nothing else that is tried again is stored twice either."""
    for applied in (True, False):
        opens(Failing(store, OutcomeUnknown("no answer"), of=(SendRequest,), applied=applied)).send("work")
    assert everything(opens(), clock) == ["work", "work"]


@pytest.mark.parametrize("due", [0, -3_600], ids=["due now", "due an hour ago"])
@pytest.mark.parametrize("ahead", [0, 3, 2_400], ids=["clocks agree", "3 s ahead", "40 min ahead"])
def test_a_message_sent_by_a_clock_that_is_ahead_comes_once(ahead: int, due: int) -> None:
    """19: the delete was stamped before the read began, and did not cover what a clock ahead had written."""
    scene = Scene(graves=True)
    put = put_at(scene.now + due * SECOND, sent=scene.now + ahead * SECOND)
    pat = Client("pat", lambda: scene.clock.now() + ahead * SECOND)
    done: list[object] = []

    def others() -> None:
        for taken in scene.do("ann").claims:
            done.append(taken)
            scene.acked(taken)

    lost = Failing(scene.store, OutcomeUnknown("the answer was lost"), of=(SendRequest,), applied=True)
    run(send(pat, Batch(ROW, (put,))), Meanwhile(lost, others))
    others()
    assert not scene.everything_again()
    assert len(done) == 1


def test_the_tombstone_of_a_deleted_message_is_kept_for_a_day() -> None:
    """20: tombstones were dropped after five seconds, and a server that was away for longer brought messages back."""
    statements = [
        statement for part in parts("k")[1:] for statement in part.statements if statement.startswith("CREATE TABLE")
    ]
    kept = {table.name: table.options["gc_grace_seconds"] for table in map(declared, statements)}
    assert kept["entries"] == "86400"


def test_the_end_of_a_trigger_holds_for_every_run(queue: MessageQueue, clock: TimeMachine) -> None:
    """21: the second run lost the end, and the chain never ended."""
    end = instant(clock.now() + 150 * SECOND)
    queue.send("tick", trigger=Every("1m", end=end))
    assert everything(queue, clock) == ["tick"] * 3
    assert Schedules(queue).all() == []


def test_an_interval_of_zero_is_refused() -> None:
    """21: such a message was sent again and again without a pause."""
    with pytest.raises(BadInput):
        Every(0)


def test_an_outage_of_days_is_followed_by_one_run_unless_all_were_asked_for(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    """21: all missed runs came at once."""
    schedules = Schedules(queue)
    schedules.add("default", Every("1m", delay="1m"), "one")
    schedules.add("all", Every("12h", delay="12h"), "all", misfire="all")
    clock.advance("2d")
    bodies = everything_now(queue)
    assert (bodies.count("one"), bodies.count("all")) == (1, 4)


def test_a_repeating_message_deleted_by_key_during_a_run_has_no_next_run(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    """21: the ack of that run sent the next."""
    queue.send("tick", trigger=Every("1m"), key="order:7")
    [running] = queue.receive(10)
    assert queue.delete(key="order:7")
    with pytest.raises(LeaseLost):
        running.ack()
    assert everything(queue, clock) == []


def test_a_key_is_found_and_unique_also_when_its_message_expires(queue: MessageQueue) -> None:
    """22: with any retention set, peeking by key found nothing, and no duplicate was recognised."""
    sent = queue.send("work", key="order:7", unique="reject", expires="1h")
    assert [found.id for found in queue.find("order:7")] == [sent.id]
    with pytest.raises(KeyTaken):
        queue.send("work", key="order:7", unique="reject", expires="1h")
