from __future__ import annotations

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue import Hook, LeaseLost, Message, MessageQueue, Vetoed, ids
from astyqueue.aio import delivery as aio_delivery
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.sending.insert import message_put
from astyqueue.protocol.steps import Commit
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.store import Batch, Store
from astyqueue.testing import Recording, TimeMachine
from tests.support.places import ONE_ROW


class Diary(Hook):
    """Records its calls, and refuses what is forbidden."""

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

    def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        if self.forbidden == outcome:
            reason = "not like this"
            raise Vetoed(reason)
        self.told.append((f"to be {outcome}", delivery.body))

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        self.told.append((outcome, delivery.body))

    def after_burial(self, message: MessageId, kind: str, reason: str) -> None:
        self.told.append((kind, message))
        assert reason


def test_hooks_hear_of_messages_whose_leases_all_ran_out(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    diary = Diary()
    queue = builder.hook(diary).build()
    hopeless = queue.send("hopeless", max_attempts=1).id
    assert len(queue.receive()) == 1
    clock.advance("1m")
    diary.told.clear()
    assert len(queue.receive()) == len(queue.receive()) == 0
    assert diary.told == [("attempts", hopeless)]
    assert [letter.id for letter in queue.dead_letters()] == [hopeless]


def test_hooks_hear_of_messages_that_die_as_they_are_scanned(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    diary = Diary()
    queue = builder.options(**ONE_ROW).hook(diary).build()
    expired = queue.send("too late", expires="1s").id
    unreadable = MessageId(expired.row, 0, ids.at(clock.now() + 1))
    queue.store.send(Batch(expired.row, (message_put(0, unreadable.id, b"\x63what is this", sent=clock.now()),)))
    clock.advance("1s")
    diary.told.clear()
    assert len(queue.receive()) == len(queue.receive()) == 0
    assert diary.told == [("expired", expired), ("undecodable", unreadable)]


def test_hooks_hear_that_a_message_was_delivered_at_most_once(builder: QueueBuilder[MessageQueue]) -> None:
    diary = Diary(forbidden="acked")
    queue = builder.hook(diary).build()
    queue.send("tick", lease=0)
    with queue.receive() as [delivery]:
        assert delivery.body == "tick"
    assert diary.told[2:] == [("at most once", "tick")]


def test_what_is_deleted_is_lost_to_who_held_it(builder: QueueBuilder[MessageQueue]) -> None:
    diary = Diary()
    queue = builder.hook(diary).build()
    queue.send_many(["held", "waiting"])
    [held] = queue.receive()
    diary.told.clear()
    queue.clear()
    assert diary.told == []
    with pytest.raises(LeaseLost):
        held.ack()
    assert diary.told == [("to be acked", "held"), ("lost", "held")]


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
    report.extend(queue.send_many(["secret"]))
    assert (report.sent, report.vetoed, len(report.ids)) == (2, {1: "not this one", 3: "not this one"}, 4)
    assert [delivery.body for delivery in queue.receive(5)] == ["a", "b"]


def test_a_hook_may_refuse_an_outcome_and_the_delivery_stays_leased(builder: QueueBuilder[MessageQueue]) -> None:
    queue = builder.hook(Diary(forbidden="rejected")).build()
    queue.send("one")
    [held] = queue.receive()
    with pytest.raises(Vetoed, match="not like this"):
        held.reject("bad")
    assert held.settled is None
    held.ack()
    assert queue.counts().total == 0


def test_a_hook_that_fails_afterwards_changes_nothing(
    builder: QueueBuilder[MessageQueue], caplog: pytest.LogCaptureFixture
) -> None:
    class Clumsy(Hook):
        def after_send(self, message: Message, sent: MessageId) -> None:
            raise RuntimeError(str(sent) + str(message.body))

    queue = builder.hook(Clumsy()).build()
    queue.send("one")
    assert queue.counts().waiting == 1
    assert "hook_failed hook=" in caplog.text


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


def test_what_endless_deliveries_hold_is_renewed(
    builder: QueueBuilder[MessageQueue], store: Store, clock: TimeMachine
) -> None:
    renewed = threading.Event()

    class Renewals(Hook):
        def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
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
        def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
            assert (delivery.body, outcome) == ("kept", "extended")
            renewed.release()

    queue = builder.hook(Renewals()).build()
    another = MessageQueue.builder().store(store).name("emails").clock(clock).build()
    with ThreadPoolExecutor(2) as threads:
        deliveries = queue.deliveries()
        keeping = threads.submit(next, deliveries)
        clock.when_waiting(2)  # the keeper and the first waiter
        forgetting = threads.submit(queue.receive, 1, "1h")
        clock.when_waiting(3)
        queue.send_many(["kept", "forgotten"])
        kept, [forgotten] = keeping.result(timeout=10), forgetting.result(timeout=10)
    assert (kept.body, forgotten.body, kept.lease) == ("kept", "forgotten", forgotten.lease)
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


@pytest.mark.parametrize(("ahead", "commits"), [(1, 120), (20, 6)])
@pytest.mark.every_store
def test_deliveries_that_come_several_at_a_time_are_settled_in_few_commits(
    builder: QueueBuilder[MessageQueue], store: Store, ahead: int, commits: int
) -> None:
    recorded = Recording(store)
    queue = builder.store(recorded).options(**ONE_ROW).build()
    queue.send_many(range(60))
    recorded.requests.clear()
    seen = []
    for delivery in queue.deliveries(ahead=ahead):
        seen.append(delivery.body)
        if len(seen) == 60:
            delivery.ack()
            break
    assert seen == list(range(60))
    assert queue.counts().total == 0
    assert sum(isinstance(request, Commit) for request in recorded.requests) <= commits


def test_what_was_acked_by_going_on_is_done_when_the_loop_is_left(
    queue: MessageQueue, another: MessageQueue, clock: TimeMachine
) -> None:
    queue.send_many(range(10))
    for delivery in queue.deliveries(ahead=10):
        if delivery.body == 4:
            break
    assert queue.stats.acked == 4
    clock.advance("1h")
    assert sorted(int(str(delivery.body)) for _ in range(6) for delivery in another.receive(10)) == [4, 5, 6, 7, 8, 9]


def test_a_delivery_whose_lease_was_lost_does_not_end_a_loop_over_several(queue: MessageQueue) -> None:
    sent = queue.send_many(range(3)).ids
    seen = []
    for delivery in queue.deliveries(ahead=3):
        seen.append(delivery.body)
        queue.delete(sent[0] or "")
        if delivery.body == 2:
            delivery.ack()
            break
    assert seen == [0, 1, 2]
    assert (queue.stats.lost, queue.stats.acked) == (1, 2)


@pytest.mark.parametrize("kind", [Delivery, aio_delivery.Delivery], ids=lambda kind: str(kind.__module__))
def test_help_tells_of_each_public_attribute_of_a_delivery(kind: type[BaseDelivery]) -> None:
    public = [name for name in dir(kind) if not name.startswith("_")]
    assert "id" in public
    assert [name for name in public if not inspect.getdoc(getattr(kind, name))] == []
