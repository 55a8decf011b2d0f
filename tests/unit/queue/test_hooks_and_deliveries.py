from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue import Hook, Message, MessageQueue, Vetoed
from astyqueue.model.message import MessageId
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.holding import Handed
from astyqueue.store import Store
from astyqueue.testing import TimeMachine


class Diary(Hook):
    """Writes down what it is told, and refuses what is forbidden."""

    def __init__(self, forbidden: object = None) -> None:
        self.told: list[tuple[str, object]] = []
        self.forbidden = forbidden

    def before_send(self, message: Message) -> None:
        if message.body == self.forbidden:
            reason = "not this one"
            raise Vetoed(reason)
        self.told.append(("sending", message.body))

    def after_send(self, message: Message, sent: MessageId) -> None:
        assert sent.queue == "emails"
        self.told.append(("sent", message.body))

    def before_settle(self, delivery: Handed, outcome: str) -> None:
        if self.forbidden == outcome:
            reason = "not like this"
            raise Vetoed(reason)
        self.told.append((f"to be {outcome}", delivery.body))

    def after_settle(self, delivery: Handed, outcome: str) -> None:
        self.told.append((outcome, delivery.body))


def test_hooks_hear_of_sends_and_settles_before_and_after(builder: QueueBuilder[MessageQueue]) -> None:
    diary = Diary()
    queue = builder.hook(diary).build()
    queue.send("one")
    queue.receive()[0].ack()
    assert diary.told == [("sending", "one"), ("sent", "one"), ("to be acked", "one"), ("acked", "one")]


def test_a_hook_may_refuse_a_send_and_nothing_is_sent(builder: QueueBuilder[MessageQueue]) -> None:
    queue = builder.hook(Diary(forbidden="secret")).build()
    with pytest.raises(Vetoed, match="not this one"):
        queue.send("secret")
    report = queue.send_many(["a", "secret", "b"])
    assert (report.sent, report.vetoed, report.ids[1]) == (2, {1: "not this one"}, None)
    assert [delivery.body for delivery in queue.receive(5)] == ["a", "b"]


def test_a_hook_may_refuse_an_outcome_and_the_delivery_stays_in_hand(builder: QueueBuilder[MessageQueue]) -> None:
    queue = builder.hook(Diary(forbidden="rejected")).build()
    queue.send("one")
    [held] = queue.receive()
    with pytest.raises(Vetoed, match="not like this"):
        held.reject("bad")
    assert held.settled is None
    held.ack()
    assert queue.counts().total == 0


def test_a_hook_that_fails_afterwards_changes_nothing(builder: QueueBuilder[MessageQueue], caplog: pytest.LogCaptureFixture) -> None:
    class Clumsy(Hook):
        def after_send(self, message: Message, sent: MessageId) -> None:
            raise RuntimeError(str(sent) + str(message.body))

    queue = builder.hook(Clumsy()).build()
    queue.send("one")
    assert queue.counts().waiting == 1
    assert "failed after the fact" in caplog.text


def test_endless_deliveries_ack_as_they_go_on(queue: MessageQueue) -> None:
    queue.send_many(["a", "b", "c"])
    seen = []
    for delivery in queue.deliveries():
        seen.append(delivery.body)
        if delivery.body == "c":
            delivery.ack()
            break
    assert seen == ["a", "b", "c"]
    assert queue.counts().total == 0


def test_leaving_endless_deliveries_with_an_error_counts_an_attempt(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send_many(["bad", "next"])

    def work() -> None:
        for delivery in queue.deliveries(ahead=2):
            message = f"cannot do {delivery.body}"
            raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="cannot do bad"):
        work()
    assert [(delivery.body, delivery.attempt) for delivery in queue.receive(5)] == [("next", 1)]
    clock.advance("3s")
    assert [(delivery.body, delivery.attempt) for delivery in queue.receive(5)] == [("bad", 2)]


def test_what_endless_deliveries_hold_is_renewed(builder: QueueBuilder[MessageQueue], store: Store, clock: TimeMachine) -> None:
    renewed = threading.Event()

    class Renewals(Hook):
        def after_settle(self, delivery: Handed, outcome: str) -> None:
            assert delivery.body == "long work"
            if outcome == "extended":
                renewed.set()

    queue = builder.hook(Renewals()).build()
    another = MessageQueue.builder().store(store).name("emails").clock(clock).build()
    queue.send("long work")
    deliveries = queue.deliveries()
    held = next(deliveries)
    for _ in range(10):
        clock.advance("13s")
        assert renewed.wait(timeout=10)
        renewed.clear()
        assert len(another.receive()) == 0
    held.ack()
    queue.close()
    assert another.counts().total == 0


def test_a_forgotten_delivery_is_not_renewed_with_others_of_its_claim(
    builder: QueueBuilder[MessageQueue], store: Store, clock: TimeMachine
) -> None:
    renewed = threading.Semaphore(0)

    class Renewals(Hook):
        def after_settle(self, delivery: Handed, outcome: str) -> None:
            assert (delivery.body, outcome) == ("kept", "extended")
            renewed.release()

    queue = builder.hook(Renewals()).build()
    another = MessageQueue.builder().store(store).name("emails").clock(clock).build()
    with ThreadPoolExecutor(2) as threads:
        deliveries = queue.deliveries()
        keeping = threads.submit(next, deliveries)
        clock.when_waiting(2)  # the keeper and the first taker
        forgetting = threads.submit(queue.receive, 1, "1h")
        clock.when_waiting(3)
        queue.send_many(["kept", "forgotten"])
        kept, [forgotten] = keeping.result(timeout=10), forgetting.result(timeout=10)
    assert (kept.body, forgotten.body, kept.hold) == ("kept", "forgotten", forgotten.hold)
    for _ in range(3):
        clock.advance("13s")
        assert renewed.acquire(timeout=10)
    assert [delivery.body for delivery in another.receive(2)] == ["forgotten"]


def test_endless_deliveries_wait_for_the_next(queue: MessageQueue, clock: TimeMachine) -> None:
    deliveries = queue.deliveries()
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(next, deliveries)
        clock.when_waiting(1)
        queue.send("here")
        held = following.result(timeout=10)
    assert held.body == "here"
    held.ack()
