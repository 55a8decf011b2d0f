"""Queues that bound how long a message lies: a default and a cap of its expiry, and who looks for what has expired."""

from __future__ import annotations

from datetime import timedelta

import pytest

from astyqueue import Hook, Message, MessageQueue
from astyqueue.errors import BadInput, StoreUnavailable
from astyqueue.findings import Severity
from astyqueue.model.envelope import MessageId
from astyqueue.model.health import findings_of
from astyqueue.protocol.admin.health import read_health
from astyqueue.protocol.steps import Read, Send, run
from astyqueue.queue.builder import QueueBuilder
from astyqueue.schedules import Schedules
from astyqueue.store import Store
from astyqueue.testing import Failing, TimeMachine
from astyqueue.testing.faults import Recording
from astyqueue.triggers import Every
from tests.support.places import ONE_ROW, Place
from tests.unit.queue.test_last_values import keys_in


class Buried(Hook):
    """The messages that became dead letters without a consumer."""

    def __init__(self) -> None:
        self.messages: list[MessageId] = []

    def after_burial(self, message: MessageId, kind: str, reason: str) -> None:
        assert (kind, reason) == ("expired", "it was not handed out before the moment it expires")
        self.messages.append(message)


@pytest.mark.every_store
def test_a_message_has_the_expiry_of_its_queue_unless_it_has_one(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    with builder.options(expires="1h").build() as queue:
        queue.send("plain")
        queue.send("short", expires="1m")
        queue.send("long", expires="2h")
        queue.send("delayed", delay="30m")
        clock.advance("61m")
        assert sorted(str(delivery.body) for delivery in queue.receive(10)) == ["delayed", "long"]
        assert queue.counts().dead == 2


def test_an_expired_letter_is_sent_anew_because_it_keeps_its_moment(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    with builder.options(expires="1h").build() as queue:
        queue.send("late", headers={"who": "ada"})
        clock.advance("2h")
        assert not queue.receive()
        queue.configure(expires=0, expires_cap=0)
        assert queue.redrive().left == 1
        assert queue.redrive(force=True).redriven == 1
        assert not queue.receive()
        [letter] = queue.dead_letters()
        queue.send(letter.body, headers=letter.headers)
        assert queue.delete(letter.id)
        [delivery] = queue.receive()
        assert (delivery.body, delivery.headers, queue.counts().dead) == ("late", {"who": "ada"}, 0)


def test_no_message_may_ask_for_more_than_the_cap(builder: QueueBuilder[MessageQueue], clock: TimeMachine) -> None:
    with builder.options(expires="3h", expires_cap="1h").build() as queue:
        with pytest.raises(BadInput, match="expires='2h' exceeds the queue's expires_cap of 1h after the due time"):
            queue.send("long", expires="2h")
        with pytest.raises(BadInput, match="exceeds the queue's expires_cap"):
            queue.send("long", expires=clock.instant + timedelta(hours=2))
        queue.send("plain")
        clock.advance("1h")
        assert not queue.receive()


def test_a_cap_applies_to_messages_sent_before_it(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("plain")
    queue.send("delayed", delay="2h")
    queue.configure(expires_cap="1h")
    clock.advance("150m")
    assert [delivery.body for delivery in queue.receive(10)] == ["delayed"]


@pytest.mark.every_store
def test_in_a_queue_without_consumers_sends_make_dead_letters_of_what_has_expired(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    buried = Buried()
    with builder.options(expires_cap="1h", history="failures").hook(buried).build() as queue:
        sent = [queue.send(number).id for number in range(3)]
        sent.append(queue.send("keyed", key="ada", unique="reject").id)
        clock.advance("61m")
        for _ in range(4):
            queue.send("fresh")
            clock.advance("1m")
        assert sorted(buried.messages) == sorted(sent)
        assert (queue.counts().dead, queue.counts().waiting, queue.stats.buried) == (4, 4, 4)
        assert {event.message for event in queue.history(kinds=["dead"])} == {*sent}
        assert queue.send("again", key="ada", unique="reject").new


def test_what_was_released_expires_there_too_and_what_is_leased_does_not(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    with builder.options(**ONE_ROW, expires_cap="1h").build() as queue:
        queue.send("held", lease="10h")
        queue.send("given back")
        [held] = queue.receive()
        queue.receive()[0].release(delay="10h")
        clock.advance("61m")
        for _ in range(3):
            queue.send("fresh")
            clock.advance("1m")
        assert queue.counts().dead == 1
        held.ack()


def test_a_value_that_expires_frees_its_key_and_an_older_one_does_not_become_a_dead_letter(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine, store: Store
) -> None:
    with builder.options(**ONE_ROW, expires_cap="1h", last_value=True).build() as queue:
        queue.send("older", key="ada")
        queue.receive()
        queue.send("newer", key="ada")
        clock.advance("61m")
        for _ in range(3):
            queue.send("fresh")
            clock.advance("1m")
        assert [letter.body for letter in queue.dead_letters()] == ["newer"]
        assert keys_in(queue, store) == 0


def test_a_priority_that_starves_is_looked_through_by_the_claims_of_others(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine, store: Store
) -> None:
    with (
        MessageQueue.builder()
        .store(store)
        .name("emails")
        .options(**ONE_ROW, priorities=2)
        .clock(clock)
        .build() as producer,
        builder.build() as consumer,
    ):
        producer.send_many(["low"] * 250)
        clock.advance("59m")
        producer.send_many(["high"] * 10, priority=1)
        consumer.configure(expires_cap="1h")
        for _ in range(3):
            [delivery] = consumer.receive()
            delivery.ack()
            clock.advance("61s")
        assert delivery.body == "high"
        assert (consumer.counts().dead, consumer.counts().waiting) == (250, 7)


def test_what_a_schedule_sends_expires_by_the_default(builder: QueueBuilder[MessageQueue], clock: TimeMachine) -> None:
    with builder.options(expires="10m").build() as queue:
        Schedules(queue).add("tick", Every("1h"), Message("tick"))
        clock.advance("1h")
        [tick] = queue.receive()
        tick.release()
        clock.advance("11m")
        assert not queue.receive()


def test_without_a_cap_no_send_looks(clock: TimeMachine, place: Place) -> None:
    store = Recording(place.store(clock))
    with MessageQueue.builder().store(store).name("emails").options(expires="1h").clock(clock).build() as queue:
        queue.send("a notice goes with the first one")
        store.requests.clear()
        for number in range(9):
            queue.send(number)
        assert [type(request) for request in store.requests] == [Send] * 9


def test_a_scan_that_fails_does_not_fail_the_send(clock: TimeMachine, place: Place) -> None:
    store = place.store(clock)
    with MessageQueue.builder().store(store).name("emails").options(expires_cap="1h").clock(clock).build() as queue:
        failing = Failing(store, StoreUnavailable("the store is away"), of=(Read,))
        assert run(queue.core.send(Message("first")), failing).new


def test_doctor_reports_what_has_expired_where_nobody_looks(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine, store: Store
) -> None:
    def findings() -> list[Severity]:
        health = run(read_health(queue.core.process, queue.settings), store)
        return [one.severity for one in findings_of(health) if one.subject == "expired messages of queue emails"]

    with builder.options(expires_cap="1h").build() as queue:
        queue.send("first")
        assert findings() == []
        clock.advance("2h")
        assert findings() == [Severity.WARNING]
