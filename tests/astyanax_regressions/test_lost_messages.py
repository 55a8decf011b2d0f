"""Where the recipe lost messages. Numbers are those of the lineage page."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import pytest

from astyqueue import Dispatcher, Message, MessageQueue, Vetoed
from astyqueue.clock import instant
from astyqueue.errors import BadInput
from astyqueue.protocol.layout.columns import Type, message_name
from astyqueue.protocol.steps import Send
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.hooks import Hook
from astyqueue.schedules import Schedules
from astyqueue.store import Batch, Put, Slice, Store
from astyqueue.testing import Recording, TimeMachine
from astyqueue.triggers import Every, Triggers
from astyqueue.units import SECOND
from tests.astyanax_regressions.conftest import Opens, deaths, everything, everything_now

OPTIONS: dict[str, object] = {
    "key": "order:7",
    "unique": "reject",
    "delay": "1m",
    "priority": 1,
    "headers": {"about": "7"},
    "expires": "3h",
    "lease": "10s",
    "max_attempts": 3,
}
ALONE = [{name: value} for name, value in OPTIONS.items() if name != "unique"]
WITH_A_KEY = [{"key": OPTIONS["key"], name: value} for name, value in OPTIONS.items() if name != "key"]
CHOICES = [{}, *ALONE, *WITH_A_KEY, OPTIONS]


def test_one_bad_message_among_good_ones_costs_only_itself(queue: MessageQueue, store: Store) -> None:
    """8: an error half-way through a batch had the deletes done that were queued by then, and nothing else."""
    sent = queue.send_many(["first", "bad", "last"]).ids[1]
    assert sent is not None
    store.send(Batch(sent.row, (Put(message_name(sent.priority, sent.id), b"\xff not ours"),)))
    with queue.receive(10) as batch:
        assert [delivery.body for delivery in batch] == ["first", "last"]
    assert queue.counts().dead == 1


class Refusing(Hook):
    """Does not let b be settled."""

    def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        if delivery.body == "b":
            raise Vetoed(outcome)


def test_a_hook_that_refuses_one_outcome_leaves_the_other_outcomes_settled(
    queue: MessageQueue, opens: Opens, clock: TimeMachine
) -> None:
    """8: also when it is a user's code that fails."""
    told = MessageQueue.builder().store(queue.store).name("jobs").clock(clock).hook(Refusing()).build()
    queue.send_many(["a", "b", "c"])
    first, second, third = told.receive(3)
    first.ack()
    with pytest.raises(Vetoed):
        second.ack()
    third.ack()
    assert (queue.counts().total, queue.counts().in_flight) == (1, 1)
    clock.advance("31s")
    assert everything(opens(), clock) == ["b"]


@pytest.mark.parametrize("options", CHOICES, ids=lambda options: "+".join(options) or "plain")
def test_whatever_options_a_message_has_it_is_delivered_and_acked(
    opens: Opens, clock: TimeMachine, options: dict[str, object]
) -> None:
    """9: with history and a key but no trigger, a message was lost each time it was read."""
    queue = opens(priorities=2)
    queue.send("work", **options)  # type: ignore[arg-type]  # options by name
    if "delay" in options:
        assert not queue.receive(10)
        clock.advance("1m")
    with queue.receive(10) as [delivery]:
        assert delivery.body == "work"
    assert queue.counts().total == 0


def _work(queue: MessageQueue) -> None:
    with queue.receive(2) as batch:
        for delivery in batch:
            assert delivery.body


@pytest.mark.every_store
def test_a_process_that_dies_at_any_request_loses_nothing_and_nothing_comes_after_its_ack(
    opens: Opens, store: Store, clock: TimeMachine
) -> None:
    """10: one row's delete could be done and the other row's new entry not."""
    for request, done in deaths(partial(opens, lease="10s", max_attempts=50), store, _work):
        alive = opens()
        before = {found.id for found in alive.peek(100, "all")}
        sent = {alive.send(f"{request} {done} {number}").id for number in range(2)}
        clock.advance("11s")
        there = {found.id for found in alive.peek(100, "all")}
        assert there == before | sent
        assert alive.counts().dead == 0
    everything(opens(), clock)
    assert opens().counts().total == 0


def test_a_send_of_many_rows_that_dies_half_way_leaves_whole_messages(
    opens: Opens, store: Store, clock: TimeMachine
) -> None:
    """10: also when it is the sender that dies."""
    messages = [Message(number, key=f"order:{number}") for number in range(6)]
    shards = partial(opens, concurrency_shards=4)
    for _ in deaths(shards, store, lambda queue: queue.send_many(messages)):
        alive = shards()
        there = alive.counts().total
        clock.advance("1s")
        found = everything_now(alive)
        assert len(found) == there <= 6
        assert set(map(str, found)) <= set("012345")


@pytest.mark.every_store
def test_a_message_that_cannot_be_read_becomes_a_dead_letter_with_its_bytes(queue: MessageQueue, store: Store) -> None:
    """11: it was dropped as it was read."""
    sent = queue.send("work").id
    store.send(Batch(sent.row, (Put(message_name(sent.priority, sent.id), b"\xff not ours"),)))
    assert not queue.receive()
    [letter] = queue.dead_letters()
    assert (letter.id, letter.kind, letter.raw) == (sent, "undecodable", b"\xff not ours")


def test_two_messages_of_one_key_both_come_whichever_is_due_first(queue: MessageQueue, clock: TimeMachine) -> None:
    """12: of two with one key the earlier was dropped."""
    queue.send("late", key="order:7", delay="2m")
    queue.send("early", key="order:7", delay="1m")
    queue.send("now", key="order:7")
    assert everything(queue, clock) == ["now", "early", "late"]


def test_a_message_sent_while_one_of_its_key_is_leased_comes_too(queue: MessageQueue, clock: TimeMachine) -> None:
    """12: its elder's timeout was later, so it was taken for a duplicate."""
    queue.send("elder", key="order:7")
    [elder] = queue.receive()
    queue.send("younger", key="order:7")
    assert [delivery.body for delivery in queue.receive()] == ["younger"]
    elder.ack()
    assert everything(queue, clock) == ["younger"]


def test_deleting_a_message_deletes_no_other_of_its_key(queue: MessageQueue, clock: TimeMachine) -> None:
    """12: what was left of it in the index stood for something later, and killed all before it."""
    future = queue.send("future", key="order:7", delay="1h")
    assert queue.delete(future.id)
    queue.send("present", key="order:7", delay="1m")
    assert everything(queue, clock) == ["present"]


def test_messages_of_every_key_are_received(opens: Opens, clock: TimeMachine) -> None:
    """13: half of all keys had a negative one."""
    queue = opens(concurrency_shards=8)
    keys = [f"key {number}" for number in range(300)] + ["polygenelubricants"]
    queue.send_many([Message(key, key=key) for key in keys])
    assert {int(row.rpartition(":")[2]) for row in queue.core.ring.rows()} == set(range(8))
    assert sorted(map(str, everything(queue, clock))) == sorted(keys)


def test_no_message_is_written_with_a_time_to_live(opens: Opens, store: Store, clock: TimeMachine) -> None:
    """14: one that was kept for less than its delay was gone before it was due."""
    recording = Recording(store)
    queue = opens(recording)
    queue.send("in a year", delay="365d")
    puts = [
        put
        for request in recording.requests
        if isinstance(request, Send)
        for batch in request.batches
        for put in batch.puts
    ]
    assert [put.ttl for put in puts if put.name.type == Type.MESSAGE] == [None]
    clock.advance("365d")
    assert [delivery.body for delivery in queue.receive()] == ["in a year"]


def test_a_message_that_expires_becomes_a_dead_letter(queue: MessageQueue, clock: TimeMachine) -> None:
    """14: it was gone without a word."""
    sent = queue.send("soon over", expires="1m").id
    clock.advance("1m")
    assert not queue.receive()
    assert [(letter.id, letter.kind) for letter in queue.dead_letters()] == [(sent, "expired")]


def test_a_message_whose_handler_raised_comes_again(queue: MessageQueue, clock: TimeMachine) -> None:
    """14: an exception was acked."""
    queue.send("work")
    with pytest.raises(ZeroDivisionError), queue.receive() as [delivery]:
        raise ZeroDivisionError
    assert delivery.attempt == 1
    clock.advance("1m")
    assert [again.attempt for again in queue.receive()] == [2]


def test_a_message_without_a_handler_waits_for_one(queue: MessageQueue) -> None:
    """14: without a handler for it a message was acked."""
    sent = queue.send("work", headers={"task": "unheard of"}).id
    dispatcher = Dispatcher.builder().queue(queue).handler(lambda _: None, task="another", threads=1).build()
    with dispatcher:
        while queue.counts().parked == 0:
            assert queue.counts().total == 1
    assert queue.get(sent).standing.value == "parked"


@pytest.mark.parametrize("lease", ["500ms", "100ms", 0.5])
def test_a_message_with_a_lease_below_one_second_comes_again_when_it_expires(
    queue: MessageQueue, clock: TimeMachine, lease: object
) -> None:
    """14: a timeout below a second was cut to none, which meant: at most once."""
    queue.send("work", lease=lease)  # type: ignore[arg-type]  # a duration
    [first] = queue.receive()
    clock.advance("1s")
    [again] = queue.receive()
    assert again.message_id == first.message_id
    again.ack()


def test_a_repeating_message_that_could_not_be_written_again_is_refused_when_it_is_sent(
    queue: MessageQueue, store: Store
) -> None:
    """15: a next run that could not be written ended the chain without a word."""
    with pytest.raises(BadInput):
        queue.send({"when": object()}, trigger=Every("1m"))
    assert [
        column for kind in (Type.MESSAGE, Type.TRIGGER) for column in store.read((Slice("jobs:home:0", kind),))[0]
    ] == []


def test_a_run_that_becomes_a_dead_letter_is_followed_by_the_next_run(queue: MessageQueue, clock: TimeMachine) -> None:
    """15: neither does anything else that becomes of a run."""
    queue.send("tick", trigger=Every("1m", count=3), max_attempts=1)
    runs = 0
    for outcome in ("fail", "reject", "ack"):
        [delivery] = queue.receive()
        getattr(delivery, outcome)()
        runs += 1
        clock.advance("1m")
    assert runs == 3
    assert queue.counts().dead == 2


def test_a_trigger_that_a_process_does_not_know_is_left_to_those_who_do(
    opens: Opens, clock: TimeMachine, store: Store
) -> None:
    """15: a trigger that could not be read was an error, and the message was dropped."""
    triggers = Triggers()
    occurrence = instant(clock.now() + 60 * SECOND)

    @triggers.register("soon")
    def soon(moment: datetime) -> datetime | None:
        return occurrence if moment < occurrence else None

    knows = MessageQueue.builder().store(store).clock(clock).name("jobs").triggers(triggers).build()
    knows.send("tick", trigger=soon())
    clock.advance("1m")
    assert not opens().receive()
    assert len(Schedules(knows).all()) == 1
    clock.advance("1m")
    assert [delivery.body for delivery in knows.receive()] == ["tick"]
