from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue import LeaseLost, Message, MessageQueue
from astyqueue.errors import AlreadySettled, BadInput, NotFound
from astyqueue.protocol.steps import Commit
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.delivery.delivery import Received
from astyqueue.store import Store
from astyqueue.testing import Recording, TimeMachine
from tests.support.places import ONE_ROW


def fail_at(body: object, this: object) -> None:
    if this == body:
        message = "no network"
        raise RuntimeError(message)


def bodies(queue: MessageQueue, limit: int = 10) -> list[object]:
    return [delivery.body for delivery in queue.receive(limit)]


@pytest.mark.every_store
def test_what_is_sent_is_received_once(queue: MessageQueue) -> None:
    queue.send({"to": "ada@example.org"})
    assert bodies(queue) == [{"to": "ada@example.org"}]
    assert bodies(queue) == []


@pytest.mark.every_store
def test_messages_come_in_the_order_in_which_they_were_sent(queue: MessageQueue) -> None:
    queue.send_many(range(25))
    assert bodies(queue, 10) + bodies(queue, 20) == list(range(25))


@pytest.mark.every_store
def test_messages_that_become_due_again_at_one_moment_come_in_the_order_in_which_they_were_sent(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send_many(range(12))
    for _ in range(12):
        queue.receive()[0].release("10s")
    clock.advance("10s")
    assert bodies(queue, 12) == list(range(12))


def test_leaving_the_block_acks_what_was_received(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("one")
    with queue.receive() as batch:
        assert [delivery.body for delivery in batch] == ["one"]
    clock.advance("1h")
    assert bodies(queue) == []
    assert queue.counts().total == 0


def test_an_error_in_the_block_counts_for_the_one_leased_and_gives_the_others_back_at_once(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send_many(["first", "second", "third"])

    def work() -> None:
        with queue.receive(3) as batch:
            for delivery in batch:
                fail_at("second", delivery.body)

    with pytest.raises(RuntimeError, match="no network"):
        work()
    assert [(delivery.body, delivery.attempt) for delivery in queue.receive(3)] == [("third", 1)]
    clock.advance("3s")
    assert sorted((str(delivery.body), delivery.attempt) for delivery in queue.receive(3)) == [
        ("first", 2),
        ("second", 2),
    ]


@pytest.mark.every_store
def test_a_message_is_hidden_while_its_lease_runs_and_comes_back_afterwards(
    queue: MessageQueue, another: MessageQueue, clock: TimeMachine
) -> None:
    queue.send("one")
    [held] = queue.receive()
    clock.advance("29s")
    assert bodies(another) == []
    clock.advance("2s")
    [again] = another.receive()
    assert (again.body, again.attempt) == ("one", 2)
    with pytest.raises(LeaseLost, match="lease lost"):
        held.ack()
    again.ack()


def test_a_late_ack_changes_nothing(queue: MessageQueue, another: MessageQueue, clock: TimeMachine) -> None:
    queue.send("one")
    [held] = queue.receive()
    clock.advance("31s")
    [again] = another.receive()
    with pytest.raises(LeaseLost):
        held.reject("too late to say so")
    assert another.get(again.message_id).standing == "in_flight"


def test_settling_twice_is_refused_and_the_first_outcome_stands(queue: MessageQueue) -> None:
    queue.send("one")
    [held] = queue.receive()
    held.ack()
    with pytest.raises(AlreadySettled, match="acked"):
        held.release()
    assert queue.counts().total == 0


@pytest.mark.every_store
def test_an_extended_lease_holds_longer(queue: MessageQueue, another: MessageQueue, clock: TimeMachine) -> None:
    queue.send("one")
    [held] = queue.receive()
    until = held.extend("2m")
    assert until == held.lease_until
    clock.advance("90s")
    assert bodies(another) == []
    held.ack()
    assert queue.counts().total == 0


def test_extending_one_of_several_leaves_the_others_as_they_are(
    queue: MessageQueue, another: MessageQueue, clock: TimeMachine
) -> None:
    queue.send_many(["long", "short"])
    long, short = queue.receive(2)
    long.extend("5m")
    clock.advance("31s")
    assert bodies(another) == ["short"]
    with pytest.raises(LeaseLost):
        short.ack()
    long.ack()


@pytest.mark.every_store
def test_a_released_message_costs_no_attempt_and_waits_out_its_delay(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("one")
    queue.receive()[0].release("10s")
    clock.advance("9s")
    assert bodies(queue) == []
    clock.advance("1s")
    [again] = queue.receive()
    assert again.attempt == 1


@pytest.mark.every_store
def test_failed_attempts_pause_longer_each_time_and_end_as_a_dead_letter(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.configure(max_attempts=3, backoff="10s")
    queue.send("bad")
    for attempt, pause in ((1, "10s"), (2, "20s"), (3, "0s")):
        [held] = queue.receive()
        assert held.attempt == attempt
        held.fail("it does not parse")
        clock.advance(pause)
    [letter] = queue.dead_letters()
    assert (letter.body, letter.kind, letter.reason, letter.attempts) == ("bad", "failed", "it does not parse", 3)
    assert bodies(queue) == []


@pytest.mark.every_store
def test_at_most_once_is_settled_as_it_is_delivered(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("now or never", lease=0)
    [held] = queue.receive()
    assert held.settled == "at most once"
    assert held.lease_until is None
    clock.advance("1h")
    assert queue.counts().total == 0
    with pytest.raises(AlreadySettled, match="at most once"):
        held.ack()


def test_of_messages_at_most_once_those_that_a_loop_did_not_reach_go_to_the_next_consumer(queue: MessageQueue) -> None:
    queue.send_many([Message(number, lease=0) for number in range(6)])
    with queue.receive(3) as batch:
        got: list[object] = [next(iter(batch)).body]
    with contextlib.suppress(ZeroDivisionError), queue.receive(2) as batch:
        for delivery in batch:
            got.append(delivery.body)
            raise ZeroDivisionError
    with contextlib.closing(queue.deliveries(ahead=3)) as deliveries:
        got.append(next(deliveries).body)
    while left := bodies(queue):
        got += left
    assert sorted(got, key=str) == list(range(6))
    assert queue.stats.dropped == 0


@pytest.mark.parametrize("count", [1, 2, 5])
def test_messages_that_a_living_consumer_never_settles_become_dead_letters(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine, count: int
) -> None:
    """The lease of one has run out long ago when that of another runs out, which was claimed alone."""
    with builder.lease("10s").max_attempts(3).build() as queue:
        queue.send_many(range(count))
        forgotten = []
        for _ in range(20 * count):
            forgotten.append(queue.receive(1))
            clock.advance("5s")
        assert (queue.counts().dead, queue.counts().total) == (count, count)
        assert {letter.attempts for letter in queue.dead_letters()} == {3}


def test_a_consumer_whose_leases_have_run_out_gets_their_messages_when_it_receives_next(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send_many(range(2))
    forgotten = [queue.receive(1), queue.receive(1)]
    for _ in range(6):
        clock.advance("31s")
        forgotten.append(queue.receive(1))
    assert [len(batch) for batch in forgotten] == [1] * 8


@pytest.mark.every_store
def test_waiting_ends_when_something_is_sent(queue: MessageQueue, clock: TimeMachine) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.receive, 1, "1h")
        clock.when_waiting(1)
        queue.send("here")
        assert [delivery.body for delivery in waiting.result(timeout=10)] == ["here"]


def test_waiting_ends_when_a_delay_does(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("later", delay="10m")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.receive, 1, "1h")
        clock.when_waiting(1)
        clock.advance("10m")
        assert [delivery.body for delivery in waiting.result(timeout=10)] == ["later"]


def test_waiting_in_vain_ends_empty(queue: MessageQueue, clock: TimeMachine) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.receive, 1, "20s")
        clock.when_waiting(1)
        clock.advance("21s")
        assert len(waiting.result(timeout=10)) == 0


@pytest.mark.every_store
def test_what_another_process_sends_is_seen_by_one_that_waits(
    queue: MessageQueue, another: MessageQueue, clock: TimeMachine
) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.receive, 1, "1h")
        clock.when_waiting(1)
        another.send("from afar")
        clock.advance("30ms")
        assert [delivery.body for delivery in waiting.result(timeout=10)] == ["from afar"]


@pytest.mark.every_store
def test_sixty_consumers_share_claims_and_get_every_message_once(queue: MessageQueue) -> None:
    queue.send_many(range(300))
    together = threading.Barrier(60)

    def take() -> list[object]:
        together.wait(timeout=30)
        taken: list[object] = []
        while deliveries := queue.receive(5):
            for delivery in deliveries:
                taken.append(delivery.body)
                delivery.ack()
        return taken

    with ThreadPoolExecutor(60) as threads:
        shares = [future.result(timeout=60) for future in [threads.submit(take) for _ in range(60)]]
    assert sorted(int(str(body)) for share in shares for body in share) == list(range(300))
    assert queue.counts().total == 0


def test_a_consumer_that_waits_behind_another_is_served_when_that_one_leaves(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(queue.receive, 1, "1h"), threads.submit(queue.receive, 1, "1h")
        clock.when_waiting(2)
        queue.send("one")
        queue.send("two")
        taken = {str(future.result(timeout=10)[0].body) for future in (first, second)}
    assert taken == {"one", "two"}


def test_what_ran_out_together_is_received_together_though_under_claims_of_its_own(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send_many(["a", "b", "c"])
    queue.receive(3)
    clock.advance("31s")
    assert [delivery.body for delivery in queue.receive(5)] == ["a", "b", "c"]


def test_a_short_pause_ends_when_it_should_for_a_consumer_that_waits(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send_many(["first", "second"])
    with queue.receive(2) as batch:
        batch[0].ack()
        batch[1].release("100ms")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.receive, 1, "1h")
        clock.when_waiting(1)
        clock.advance("100ms")
        assert [delivery.body for delivery in waiting.result(timeout=10)] == ["second"]


def test_a_redrive_at_an_infinite_rate_does_not_wait(queue: MessageQueue) -> None:
    queue.send("work")
    queue.receive()[0].reject()
    assert queue.redrive(rate=math.inf).redriven == 1


def test_one_dead_letter_is_put_back_by_its_id_and_the_others_stay(queue: MessageQueue) -> None:
    queue.send_many(["a", "b", "c"])
    for delivery in queue.receive(3):
        delivery.reject("no")
    middle = queue.dead_letters()[1]
    assert queue.redrive(str(middle.id)).redriven == 1
    assert bodies(queue) == ["b"]
    assert [letter.body for letter in queue.dead_letters()] == ["a", "c"]
    with pytest.raises(NotFound, match="is not a dead letter"):
        queue.redrive(middle.id)


@pytest.mark.parametrize(
    ("handle", "done"),
    [
        (lambda batch: next(iter(batch)), ["a"]),
        (lambda batch: [delivery.body for delivery, _ in zip(batch, range(2), strict=False)], ["a", "b", "c"]),
        (lambda batch: [delivery for delivery in batch if delivery.body != "c"], ["a", "b", "c"]),
        (lambda batch: (list(batch), next(iter(batch))), ["a"]),
        (lambda batch: (batch[0], batch[-1]), ["a", "c"]),
        (lambda batch: batch[:2], ["a", "b"]),
        (lambda batch: (len(batch), None in batch), ["a", "b", "c"]),
        (lambda _: None, ["a", "b", "c"]),
    ],
    ids=[
        "left early",
        "in step with others",
        "gone through",
        "gone through again",
        "by place",
        "a part",
        "only counted",
        "untouched",
    ],
)
def test_leaving_cleanly_acks_what_was_reached_and_gives_the_rest_back_at_once(
    queue: MessageQueue, handle: Callable[[Received], object], done: list[str]
) -> None:
    queue.send_many(["a", "b", "c"])
    with queue.receive(3) as batch:
        handle(batch)
    back = [(delivery.body, delivery.attempt) for delivery in queue.receive(3)]
    assert back == [(body, 1) for body in ("a", "b", "c") if body not in done]
    assert queue.stats.acked == len(done)


@pytest.mark.every_store
def test_deliveries_are_acked_together_in_one_commit(builder: QueueBuilder[MessageQueue], store: Store) -> None:
    recorded = Recording(store)
    queue = builder.store(recorded).options(**ONE_ROW).build()
    queue.send_many(range(60))
    batch = queue.receive(60)
    batch[7].reject("odd")
    recorded.requests.clear()
    batch.ack([batch[3], batch[5]])
    batch.ack()
    batch.ack()
    assert sum(isinstance(request, Commit) for request in recorded.requests) == 2
    assert (queue.stats.acked, queue.counts().total) == (59, 1)
    with pytest.raises(AlreadySettled):
        batch.ack([batch[3]])


def test_acking_together_what_is_no_delivery_is_refused_and_acks_nothing(queue: MessageQueue) -> None:
    queue.send_many(range(2))
    batch = queue.receive(2)
    with pytest.raises(BadInput, match="of type int is not a delivery"):
        batch.ack([batch[0], 5])  # type: ignore[list-item]  # that is the mistake
    assert [delivery.settled for delivery in batch] == [None, None]


def test_acking_together_names_what_was_lost_and_does_the_rest(queue: MessageQueue) -> None:
    queue.send_many(range(3))
    batch = queue.receive(3)
    queue.delete(batch[1].message_id)
    with pytest.raises(LeaseLost, match=str(batch[1].receipt)):
        batch.ack()
    assert (queue.stats.acked, queue.counts().total) == (2, 0)


def test_one_receive_brings_two_hundred_of_one_row_at_most(builder: QueueBuilder[MessageQueue]) -> None:
    queue = builder.concurrency_shards(2).build()
    queue.send_many(range(600))
    taken = [queue.receive(1_000) for _ in range(4)]
    assert max(map(len, taken)) == 200
    assert all(len({delivery.row for delivery in batch}) == 1 for batch in taken)
    assert sum(map(len, taken)) == 600
