"""The notice for idle processes: written once in ten seconds, and again if it was not written."""

from __future__ import annotations

import contextlib

import pytest

from astyqueue.errors import OutcomeUnknown, StoreError, StoreUnavailable
from astyqueue.model.settings import Layout
from astyqueue.protocol.coordination.activity_log import notice_of, read_notices
from astyqueue.protocol.coordination.doorbell import rows_rung
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.steps import Client, Request, Send, Steps, run
from astyqueue.queue.row_sharing.paced_doorbell import PacedDoorbell
from astyqueue.store import Batch, Put
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine


@pytest.fixture
def bell(clock: TimeMachine) -> PacedDoorbell:
    """That of a queue of one row, which is not rung: only notices are written."""
    return PacedDoorbell(Ring("emails", Layout()), clock)


def writes(steps: Steps[None], error: StoreError | None = None) -> int:
    """How many notices are written; `error` is what the store answers."""
    batches = 0
    with contextlib.suppress(StopIteration):
        request: Request = next(steps)
        while True:
            assert isinstance(request, Send)
            batches += 1 + len(request.more)
            request = steps.throw(error) if error else steps.send(None)
    return batches


def test_a_notice_stands_for_ten_seconds(bell: PacedDoorbell, clock: TimeMachine) -> None:
    assert [writes(bell.ring([])), writes(bell.ring([])), writes(bell.notify_idle())] == [1, 0, 0]
    clock.advance("9.9s")
    assert writes(bell.ring([])) == 0
    clock.advance("0.1s")
    assert writes(bell.ring([])) == 1


def test_every_notice_of_ten_minutes_is_read_however_many_there_are(clock: TimeMachine) -> None:
    store, process = MemoryStore(clock), Client("ann", clock.now)
    began = clock.now()
    unreadable = notice_of("torn", process)
    store.send(Batch(unreadable.row, (Put(unreadable.puts[0].name, b"\x63newer"),)))
    for number in range(2_500):
        store.send(notice_of(f"queue {number}", process))
    found = run(read_notices(began, clock.now()), store)
    assert sorted(one.queue for one in found) == sorted(["", *(f"queue {number}" for number in range(2_500))])


def test_a_notice_of_a_caller_that_was_cancelled_is_written_by_the_next(bell: PacedDoorbell) -> None:
    cancelled = bell.ring([])
    next(cancelled)
    assert writes(bell.ring([])) == 0
    cancelled.close()
    assert [writes(bell.ring([])), writes(bell.ring([]))] == [1, 0]


def test_the_rows_of_a_ring_whose_caller_was_cancelled_are_named_by_the_next(clock: TimeMachine) -> None:
    ring = Ring("emails", Layout(time_shards=4, concurrency_shards=8))
    bell = PacedDoorbell(ring, clock)
    current = [row for row in ring.rows() if ring.place(row, clock.now()) is not None]
    cancelled = bell.ring(current[:1])
    next(cancelled)
    cancelled.close()
    request = next(bell.ring(current[1:2]))
    assert isinstance(request, Send)
    assert rows_rung(request.batch.puts[0].value) == {ring.place(row, clock.now()) for row in current[:2]}


@pytest.mark.parametrize("error", [StoreUnavailable("away"), OutcomeUnknown("no answer")])
def test_a_notice_that_the_store_did_not_take_is_written_again_a_second_later(
    bell: PacedDoorbell, clock: TimeMachine, error: StoreError
) -> None:
    assert [writes(bell.ring([]), error), writes(bell.ring([]))] == [1, 0]
    clock.advance("1s")
    assert [writes(bell.ring([])), writes(bell.ring([]))] == [1, 0]
    clock.advance("9s")
    assert writes(bell.ring([])) == 0


def test_a_cancelled_caller_leaves_a_later_notice_as_it_is(bell: PacedDoorbell, clock: TimeMachine) -> None:
    slow = bell.ring([])
    next(slow)
    clock.advance("11s")
    assert writes(bell.ring([])) == 1
    slow.close()
    assert writes(bell.ring([])) == 0


def test_a_row_whose_time_shard_ended_during_the_send_is_named_by_the_place_that_it_had(clock: TimeMachine) -> None:
    """That of a later time shard is not named: processes find it when its time shard begins."""
    ring = Ring("emails", Layout(time_shards=4, concurrency_shards=8))
    bell = PacedDoorbell(ring, clock)
    sent = ring.row(clock.now(), 5)
    clock.set(ring.closes(clock.now()))
    request = next(bell.ring([sent, ring.row(clock.now() + ring.layout.time_shard_us, 6)]))
    assert isinstance(request, Send)
    assert rows_rung(request.batch.puts[0].value) == {5}


def test_a_send_that_names_no_row_does_not_keep_the_next_from_ringing(clock: TimeMachine) -> None:
    """A message for a later time shard: it is not rung for, so the five milliseconds of a ring do not begin."""
    ring = Ring("emails", Layout(time_shards=4, concurrency_shards=8))
    bell = PacedDoorbell(ring, clock)
    writes(bell.ring([ring.row(clock.now() + ring.layout.time_shard_us, 6)]))
    request = next(bell.ring([ring.row(clock.now(), 5)]))
    assert isinstance(request, Send)
    assert rows_rung(request.batch.puts[0].value) == {5}


def test_a_message_of_a_group_that_ends_in_a_row_of_the_past_is_not_rung_for(clock: TimeMachine) -> None:
    """The bell is about current rows, and processes poll those that just ended."""
    ring = Ring("emails", Layout(time_shards=4, concurrency_shards=8))
    row = ring.row(clock.now(), 5)
    clock.set(ring.closes(clock.now()))
    request = next(PacedDoorbell(ring, clock).ring([row], frees_group=True))
    assert isinstance(request, Send)
    assert request.batch.row != "emails:bell"
