"""Hooks hear of every end of a message, once: what was removed, and what was settled by its receipt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from astyqueue import Hook, LeaseLost, Message, MessageQueue, Vetoed
from astyqueue.errors import StoreUnavailable
from astyqueue.model.envelope import MessageId
from astyqueue.model.views import Standing
from astyqueue.protocol.steps import Commit, run
from astyqueue.queue.admin.dead_letters import purge
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.schedules import Schedules
from astyqueue.store import Store
from astyqueue.testing import Failing, TimeMachine
from astyqueue.triggers import Every
from tests.support.places import ONE_ROW


class Ends(Hook):
    """Records every end of a message."""

    def __init__(self) -> None:
        self.heard: list[tuple[MessageId, str]] = []
        self.asked: list[str] = []
        self.forbidden = ""

    def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        self.asked.append(f"{outcome} {delivery.body}")
        if outcome == self.forbidden:
            reason = "not like this"
            raise Vetoed(reason)

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        self.heard.append((delivery.message_id, outcome))

    def after_burial(self, message: MessageId, kind: str, reason: str) -> None:
        assert reason
        self.heard.append((message, kind))

    def after_delete(self, message: MessageId, why: str) -> None:
        self.heard.append((message, why))


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def watched(builder: QueueBuilder[MessageQueue], ends: Ends) -> MessageQueue:
    return builder.options(**ONE_ROW).hook(ends).build()


@pytest.mark.every_store
def test_a_deleted_message_is_heard_of_whatever_its_state(watched: MessageQueue, ends: Ends) -> None:
    dead, leased = watched.send("dead").id, watched.send("leased").id
    for delivery in watched.receive(2):
        if delivery.body == "dead":
            delivery.reject()
    waiting, keyed = watched.send("waiting").id, watched.send("keyed", key="k").id
    ends.heard.clear()
    for message in (dead, leased, waiting):
        assert watched.delete(message)
    assert watched.delete(key="k")
    assert not watched.delete(waiting)
    assert ends.heard == [(message, "deleted") for message in (dead, leased, waiting, keyed)]


@pytest.mark.parametrize(
    ("removes", "why"), [(MessageQueue.clear, "cleared"), (MessageQueue.drop, "dropped")], ids=["clear", "drop"]
)
def test_each_message_that_is_cleared_or_dropped_is_heard_of(
    watched: MessageQueue, ends: Ends, removes: Callable[[MessageQueue], int], why: str
) -> None:
    sent = {watched.send(number).id for number in range(5)}
    received = watched.receive(2)
    received[0].reject()
    ends.heard.clear()
    assert removes(watched) == 5
    assert sorted(ends.heard) == sorted((message, why) for message in sent)
    with pytest.raises(LeaseLost):
        received[1].ack()
    assert ends.heard[5:] == [(received[1].message_id, "lost")]


def test_purged_letters_are_heard_of(watched: MessageQueue, ends: Ends) -> None:
    sent = [watched.send(number).id for number in range(3)]
    for delivery in watched.receive(3):
        delivery.reject("of no use" if delivery.body else "kept")
    ends.heard.clear()
    assert watched.purge(reason="of no use") == 2
    assert sorted(ends.heard) == sorted((message, "purged") for message in sent[1:])


@pytest.mark.parametrize("unique", ["replace", "debounce"])
def test_a_message_that_was_replaced_is_heard_of(watched: MessageQueue, ends: Ends, unique: str) -> None:
    first = watched.send("first", key="k", unique=unique, delay="1h").id
    second = watched.send("second", key="k", unique=unique, delay="1h").id
    assert ends.heard == [(first, "replaced")]
    assert watched.delete(second)
    assert ends.heard[1:] == [(second, "deleted")]


def test_the_run_of_a_recurring_message_that_is_stopped_is_heard_of(
    watched: MessageQueue, ends: Ends, clock: TimeMachine
) -> None:
    watched.send("tick", key="clock", trigger=Every("1m"))
    clock.advance("61s")
    [run] = watched.receive()
    assert watched.stop("clock")
    assert ends.heard == [(run.message_id, "deleted")]


def test_a_run_that_the_next_occurrence_cancels_is_heard_of(
    builder: QueueBuilder[MessageQueue], ends: Ends, clock: TimeMachine
) -> None:
    with builder.options(**ONE_ROW, history="all").hook(ends).build() as queue:
        Schedules(queue).add("clock", Every("1m"), "tick", overlap="cancel running")
        clock.advance("61s")
        [first] = queue.receive()
        first.release("1h")
        ends.heard.clear()
        clock.advance("60s")
        [second] = queue.receive()
        assert second.message_id != first.message_id
        assert ends.heard == [(first.message_id, "replaced")]
        queue.run(queue.core.claimer.flush())
        clock.advance("2s")
        [cancelled] = queue.history(first.message_id, kinds=["cancelled"])
        assert (cancelled.key, cancelled.schedule, cancelled.why) == (None, "clock", "replaced")


@pytest.mark.parametrize("trigger", [None, Every("1m")], ids=["once", "repeating"])
def test_a_next_run_that_was_not_sent_yet_is_not_reported_as_replaced(
    watched: MessageQueue, ends: Ends, trigger: Every | None
) -> None:
    watched.send("tick", key="clock", unique="reject", trigger=Every("1h"))
    watched.receive()[0].ack()
    ends.heard.clear()
    watched.send("tock", key="clock", unique="replace", trigger=trigger)
    assert ends.heard == []


def test_a_message_that_a_repeating_one_replaced_is_heard_of(watched: MessageQueue, ends: Ends) -> None:
    first = watched.send("once", key="clock", unique="replace", delay="1h").id
    watched.send("tick", key="clock", unique="replace", trigger=Every("1h"))
    assert ends.heard == [(first, "replaced")]


def test_each_of_the_messages_that_a_repeating_one_replaced_is_heard_of(watched: MessageQueue, ends: Ends) -> None:
    watched.send("tick", key="clock", trigger=Every("1h"))
    [run] = watched.peek()
    single = watched.send("once", key="clock", unique="keep", delay="1h").id
    watched.send("tock", key="clock", unique="replace", trigger=Every("1h"))
    assert sorted(ends.heard) == sorted([(run.id, "replaced"), (single, "replaced")])


def test_hooks_are_asked_and_called_about_a_message_with_a_trigger(builder: QueueBuilder[MessageQueue]) -> None:
    class Sends(Hook):
        def __init__(self) -> None:
            self.sent: list[MessageId] = []

        def before_send(self, message: Message) -> None:
            if message.body == "not this one":
                raise Vetoed(str(message.body))

        def after_send(self, message: Message, sent: MessageId) -> None:
            assert message.body == "tick"
            self.sent.append(sent)

    sends = Sends()
    with builder.options(**ONE_ROW).hook(sends).build() as queue:
        with pytest.raises(Vetoed):
            queue.send("not this one", trigger=Every("1h"))
        first = queue.send("tick", key="clock", unique="keep", trigger=Every("1h"))
        assert not queue.send("tick", key="clock", unique="keep", trigger=Every("1h")).new
        assert sends.sent == [first.id]


@pytest.mark.every_store
def test_a_settle_by_receipt_asks_hooks_and_is_heard_of(
    watched: MessageQueue, another: MessageQueue, ends: Ends
) -> None:
    watched.send_many(["acked", "rejected", "released"])
    held = {str(delivery.body): delivery for delivery in another.receive(3)}
    ends.forbidden = "acked"
    with pytest.raises(Vetoed):
        watched.ack(held["acked"].receipt)
    assert watched.get(held["acked"].message_id).standing is Standing.IN_FLIGHT
    ends.forbidden = ""
    watched.ack(held["acked"].receipt)
    watched.reject(held["rejected"].receipt, "of no use")
    watched.release(held["released"].receipt, "1h")
    assert ends.heard == [(held[word].message_id, word) for word in ("acked", "rejected", "released")]
    assert ends.asked == [f"{word} {word}" for word in ("acked", "acked", "rejected", "released")]
    with pytest.raises(LeaseLost):
        watched.ack(held["acked"].receipt)
    assert len(ends.heard) == 3


def test_a_message_at_most_once_that_no_consumer_took_is_heard_of(
    watched: MessageQueue, ends: Ends, clock: TimeMachine
) -> None:
    sent = [watched.send(number, lease=0, expires="1m").id for number in range(3)]
    claimer = watched.core.claimer
    taken = watched.receive(3)
    ends.heard.clear()
    claimer.give_back(taken[0])
    clock.advance("61s")
    assert len(watched.receive()) == 0
    claimer.give_back(taken[1])
    watched.close()
    assert ends.heard == [(sent[0], "expired"), (sent[1], "closed")]


def test_a_redriven_letter_that_dies_again_is_heard_of_again(
    watched: MessageQueue, ends: Ends, clock: TimeMachine
) -> None:
    expired = watched.send("too late", expires="1s").id
    clock.advance("2s")
    assert len(watched.receive()) == 0
    assert watched.redrive(force=True).redriven == 1
    clock.advance("1s")
    assert len(watched.receive()) == 0
    assert ends.heard == [(expired, "expired")] * 2


def test_what_a_transaction_replaced_is_heard_of_after_its_commit(
    ends: Ends, clock: TimeMachine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("shop") / "queue.db"
    builder = MessageQueue.builder().store(f"sqlite:///{file}").name("emails").clock(clock).hook(ends)
    with builder.build() as queue:
        first = queue.send("first", key="k", unique="replace", delay="1h").id
        with queue.transaction() as tx:
            tx.send("second", key="k", unique="replace", delay="1h")
            assert ends.heard == []
        assert ends.heard == [(first, "replaced")]


def failing_at_the_second_commit(store: Store) -> Store:
    return Failing(store, StoreUnavailable("away"), of=(Commit,), at=2)


def test_letters_that_were_purged_before_an_error_are_heard_of(watched: MessageQueue, store: Store, ends: Ends) -> None:
    for number in range(60):  # those with keys are purged by fifty
        watched.send(number, key=str(number), unique="keep")
    for delivery in watched.receive(60):
        delivery.reject("of no use")
    ends.heard.clear()
    with pytest.raises(StoreUnavailable):
        run(purge(watched.core, {}), failing_at_the_second_commit(store))
    assert [why for _, why in ends.heard] == ["purged"] * 50
    assert watched.counts().dead == 10


def test_expired_messages_that_were_buried_before_an_error_are_heard_of(
    builder: QueueBuilder[MessageQueue], store: Store, clock: TimeMachine, ends: Ends
) -> None:
    with builder.options(**ONE_ROW, expires_cap="1h").hook(ends).build() as queue:
        queue.send_many(range(150))
        clock.advance("2h")
        failing = failing_at_the_second_commit(store)
        for _ in range(2):  # one row after the other
            run(queue.core.send(Message("new")), failing)
            clock.advance("31s")
        assert [why for _, why in ends.heard] == ["expired"] * 100
        assert queue.counts().dead == 100


def test_messages_that_were_dropped_before_an_error_are_heard_of(
    builder: QueueBuilder[MessageQueue], store: Store, ends: Ends
) -> None:
    with builder.options(**ONE_ROW).hook(ends).build() as queue:
        queue.send_many(range(500))
        queue.configure(max_messages=100, overflow="drop_oldest")
        with pytest.raises(StoreUnavailable):
            run(queue.core.send(Message("new")), failing_at_the_second_commit(store))
        assert [why for _, why in ends.heard] == ["overflow"] * 200
        assert queue.stats.evicted == 200
        assert queue.counts().total == 300
