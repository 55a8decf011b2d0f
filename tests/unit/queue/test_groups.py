"""Message groups of a queue: one message of each is under way at a time, in order, in whatever process."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from astyqueue import Dispatcher, Message, MessageQueue, aio, connect
from astyqueue.clock import SystemClock
from astyqueue.errors import BadInput, StoreUnavailable
from astyqueue.model.settings import Layout
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Commit, Read, Request, run
from astyqueue.queue.admin.deletion import delete
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.schedules import Schedules
from astyqueue.store import Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.tasks.app import App
from astyqueue.testing import Faulty, TimeMachine
from astyqueue.triggers import Every
from astyqueue.units import SECOND
from tests.support.places import Place
from tests.unit.queue.stepped_workers import MILLISECOND, Crew

DEADLINE = 20
HOUR = 3_600 * SECOND


def alternating(queue: MessageQueue) -> None:
    """1 to 4, of the groups ONE, TWO, ONE, TWO."""
    queue.send_many([Message(number, group="ONE" if number % 2 else "TWO") for number in (1, 2, 3, 4)])


def one(queue: MessageQueue) -> Delivery:
    [delivery] = queue.receive()
    return delivery


@pytest.mark.every_store
def test_a_consumer_gets_the_next_of_its_group_before_the_one_of_another_group_is_done(
    queue: MessageQueue, another: MessageQueue
) -> None:
    alternating(queue)
    first, second = one(queue), one(another)
    assert (first.body, first.group, second.body, second.group) == (1, "ONE", 2, "TWO")
    assert list(another.receive()) == []
    second.ack()
    assert one(another).body == 4
    assert list(another.receive()) == []


@pytest.mark.every_store
def test_what_a_closed_consumer_gives_back_goes_with_its_group_to_another(
    queue: MessageQueue, another: MessageQueue
) -> None:
    alternating(queue)
    first, second = one(queue), one(another)
    second.ack()
    one(another).ack()
    first.release()
    queue.close()
    again = one(another)
    assert (again.body, again.attempt) == (1, 1)
    again.ack()
    assert one(another).body == 3


@pytest.mark.every_store
def test_a_failed_message_comes_again_with_its_attempt_before_the_others_of_its_group(
    queue: MessageQueue, another: MessageQueue, clock: TimeMachine
) -> None:
    alternating(queue)
    one(queue).fail("no luck", delay="10s")
    assert [delivery.body for delivery in another.receive(10)] == [2]
    clock.advance("10s")
    again = one(another)
    assert (again.body, again.attempt) == (1, 2)


@pytest.mark.parametrize(("leased", "attempt"), [(1, 2), (2, 1)])
def test_a_lease_that_expires_costs_an_attempt_only_if_it_was_the_only_one_of_its_process(
    queue: MessageQueue, another: MessageQueue, clock: TimeMachine, leased: int, attempt: int
) -> None:
    alternating(queue)
    assert [delivery.body for delivery in queue.receive(leased)] == [1, 2][:leased]
    clock.advance("10m")
    again = one(another)
    assert (again.body, again.attempt) == (1, attempt)


class UnderWay:
    """What handlers of several threads have in hand: in which order they got it, and how much of a group at most."""

    def __init__(self, expected: int) -> None:
        self.order: dict[str | None, list[object]] = {}
        self.most: Counter[str | None] = Counter()
        self.over = threading.Event()
        self._expected = expected
        self._now: Counter[str | None] = Counter()
        self._lock = threading.Lock()

    def begin(self, delivery: Delivery) -> None:
        with self._lock:
            self.order.setdefault(delivery.group, []).append(delivery.body)
            self._now[delivery.group] += 1
            self.most[delivery.group] = max(self.most[delivery.group], self._now[delivery.group])

    def end(self, delivery: Delivery) -> None:
        with self._lock:
            self._now[delivery.group] -= 1
            self._expected -= 1
            if not self._expected:
                self.over.set()

    def consume(self, queue: MessageQueue) -> None:
        for delivery in queue.deliveries():
            self.begin(delivery)
            self.end(delivery)


@pytest.mark.every_store
def test_four_consumers_never_have_two_messages_of_one_group_at_once(place: Place) -> None:
    seen, store = UnderWay(100), place.store(SystemClock())
    builder = MessageQueue.builder().store(store).name("emails")
    with ThreadPoolExecutor(4) as threads, ExitStack() as stack:
        queues = [stack.enter_context(builder.build()) for _ in range(4)]
        queues[0].send_many([Message(number, group="a") for number in range(100)])
        running = [threads.submit(seen.consume, queue) for queue in queues]
        assert seen.over.wait(DEADLINE)
        stack.close()
        for consumer in running:
            consumer.result(DEADLINE)
    assert seen.order == {"a": list(range(100))}
    assert seen.most == {"a": 1}


@pytest.mark.every_store
def test_a_dispatcher_with_eight_threads_handles_three_groups_in_order(place: Place) -> None:
    seen, store = UnderWay(150), place.store(SystemClock())
    queue = MessageQueue.builder().store(store).name("emails").build()

    def handle(delivery: Delivery) -> None:
        seen.begin(delivery)
        seen.end(delivery)

    queue.send_many([Message(number, group="abc"[number % 3]) for number in range(150)])
    dispatcher = Dispatcher.builder().queue(queue).handler(handle, threads=8).build()
    dispatcher.start()
    assert seen.over.wait(DEADLINE)
    dispatcher.drain(None)
    assert seen.order == {group: list(range(number, 150, 3)) for number, group in enumerate("abc")}
    assert seen.most == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("layout", [Layout(), Layout(concurrency_shards=8)], ids=["one row", "rows of owners"])
def test_an_ack_in_one_process_hands_the_next_message_of_the_group_to_another_at_once(
    clock: TimeMachine, layout: Layout
) -> None:
    """Without waiting for the end of the lease: the first process has no hand free."""
    crew = Crew(MemoryStore(clock), clock, layout)
    ann, sender = crew.join(hands=1, busy_for=10 * SECOND), crew.outsider()
    sender.send(1, group="a")
    crew.pass_time(SECOND)
    assert len(ann.got) == 1
    bob = crew.join(hands=5)
    sender.send(1, group="a")
    ann.hands = 0
    crew.pass_time(9 * SECOND - 200 * MILLISECOND)
    assert bob.got == []
    crew.pass_time(300 * MILLISECOND)
    assert len(bob.got) == 1


def test_an_ack_of_one_of_several_that_were_claimed_together_hands_on_the_next_at_once(clock: TimeMachine) -> None:
    """The lease goes on for the others, and no longer has the message whose group is free."""
    crew = Crew(MemoryStore(clock), clock, Layout())
    ann, sender = crew.join(hands=2, busy_for=HOUR), crew.outsider()
    sender.send(1, group="a")
    sender.send(1, group="b")
    crew.pass_time(SECOND)
    [(_, first), (_, second)] = ann.got
    assert first.lease is second.lease
    bob = crew.join(hands=5)
    sender.send(1, group="a")
    ann.hands = 0
    crew.pass_time(SECOND)
    assert bob.got == []
    ann.core.claimer.settle_later(first, ACK)
    crew.pass_time(2 * SECOND)
    assert [delivery.group for _, delivery in bob.got] == ["a"]


def test_acks_before_a_claim_that_fails_hand_on_the_next_at_once(clock: TimeMachine) -> None:
    """There are too many for the commit of a claim, so they are committed before it."""
    below = MemoryStore(clock)
    crew, store = Crew(below, clock, Layout()), UnreadableAfterAcks(below)
    ann, sender = crew.join(hands=260, busy_for=5 * SECOND, store=store), crew.outsider()
    for number in range(260):
        sender.send(1, group=str(number))
    crew.pass_time(SECOND)
    assert len(ann.got) == 260
    bob = crew.join(hands=5)
    sender.send(1, group="0")
    crew.pass_time(2 * SECOND)
    store.breaks = True
    with pytest.raises(StoreUnavailable):
        crew.pass_time(3 * SECOND)
    assert bob.got == []
    ann.dead = True
    crew.pass_time(SECOND)
    assert [delivery.group for _, delivery in bob.got] == ["0"]


class UnreadableAfterAcks(Faulty):
    """Once it `breaks`, a row in which 200 messages were acked can no longer be read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.breaks = False
        self._acked = 0

    def perform(self, request: Request) -> object:
        if self.breaks and self._acked >= 200 and isinstance(request, Read):
            message = "away"
            raise StoreUnavailable(message)
        answer = super().perform(request)
        if isinstance(request, Commit):
            self._acked += sum(name.type == Type.MESSAGE for name in request.batch.deletes)
        return answer


@pytest.mark.parametrize("layout", [Layout(), Layout(concurrency_shards=8)], ids=["one row", "rows of owners"])
def test_a_process_in_which_the_queue_is_idle_learns_of_the_end_of_a_message(
    clock: TimeMachine, layout: Layout
) -> None:
    """It reads no doorbell any more, but the activity log."""
    crew = Crew(MemoryStore(clock), clock, layout)
    ann, sender = crew.join(hands=1, busy_for=115 * SECOND), crew.outsider()
    sender.send(1, group="a")
    crew.pass_time(SECOND)
    bob = crew.join(hands=5)
    sender.send(1, group="a")
    ann.hands = 0
    crew.pass_time(113 * SECOND, step=50 * MILLISECOND)
    assert bob.core.claimer._scheduler.activity.idle  # noqa: SLF001 - or the test shows nothing
    assert bob.got == []
    crew.pass_time(3 * SECOND)
    assert len(bob.got) == 1


@pytest.mark.parametrize("layout", [Layout(), Layout(concurrency_shards=8)], ids=["one row", "rows of owners"])
def test_a_process_in_which_the_queue_is_idle_learns_that_the_first_message_of_a_group_was_deleted(
    clock: TimeMachine, layout: Layout
) -> None:
    crew = Crew(MemoryStore(clock), clock, layout)
    ann, sender = crew.join(hands=1, busy_for=HOUR), crew.outsider()
    sender.send(1, group="a")
    crew.pass_time(SECOND)
    [(_, first)] = ann.got
    bob = crew.join(hands=5)
    sender.send(1, group="a")
    ann.hands = 0
    crew.pass_time(113 * SECOND, step=50 * MILLISECOND)
    assert bob.core.claimer._scheduler.activity.idle  # noqa: SLF001 - or the test shows nothing
    assert run(delete(sender.core, first.message_id, None), sender.store)
    crew.pass_time(3 * SECOND)
    assert len(bob.got) == 1


def test_the_process_that_acks_learns_that_another_one_had_blocked_a_message(clock: TimeMachine) -> None:
    """The other process has no hand free when the group becomes so."""
    crew = Crew(MemoryStore(clock), clock, Layout())
    ann, sender = crew.join(hands=1, busy_for=2 * SECOND), crew.outsider()
    sender.send(1, group="a")
    crew.pass_time(SECOND)
    bob = crew.join(hands=1, busy_for=HOUR)
    sender.send(1, group="a")
    sender.send(1)
    crew.pass_time(500 * MILLISECOND)
    assert [delivery.group for _, delivery in bob.got] == [None]
    crew.pass_time(700 * MILLISECOND)
    assert [delivery.group for _, delivery in ann.got] == ["a", "a"]


def test_a_process_that_missed_the_ring_finds_the_next_message_when_the_lease_it_knows_of_ends(
    clock: TimeMachine,
) -> None:
    crew = Crew(store := MemoryStore(clock), clock, Layout())
    ann, sender = crew.join(hands=1, busy_for=HOUR), crew.outsider()
    sender.send(1, group="a")
    crew.pass_time(SECOND)
    bob = crew.join(hands=5)
    sender.send(1, group="a")
    crew.pass_time(SECOND)
    [(_, delivery)] = ann.got
    assert delivery.lease is not None
    ann.dead = True
    run(settle(ann.core.process, delivery.row, SettleRequest(delivery.lease.timer, {delivery.id: ACK})), store)
    crew.pass_time(delivery.lease.timer.due - clock.now() + SECOND, step=50 * MILLISECOND)
    assert [delivery.attempt for _, delivery in bob.got] == [1]


@pytest.mark.every_store
def test_all_messages_of_a_group_are_in_one_row_whatever_their_keys_and_the_rule(
    builder: QueueBuilder[MessageQueue],
) -> None:
    with builder.time_shards(4, every="1m").concurrency_shards(4).build() as queue:
        rows = {queue.send(0, group="a", key=key).id.row for key in ("k", "l", "m")}
        rows |= {queue.send(0, group="a", delay="3m").id.row}
        rows |= {id_.row for id_ in queue.send_many([Message(0, group="a"), Message(1, key="k", group="a")]).ids if id_}
    assert len(rows) == 1
    assert ":home:" in rows.pop()


def test_what_a_group_cannot_be_combined_with_is_refused(queue: MessageQueue, clock: TimeMachine, store: Store) -> None:
    with pytest.raises(BadInput, match=r"group='a': a unique key has a row of its own: leave out unique= or group="):
        queue.send(1, group="a", key="k", unique="keep")
    with pytest.raises(BadInput, match="a schedule keeps its messages in its own row: limit them by overlap="):
        queue.send(1, group="a", trigger=Every("1h"))
    with pytest.raises(BadInput, match="a schedule keeps its messages in its own row"):
        Schedules(queue).add("nightly", Every("1h"), Message(1, group="a"))
    for wrong in ("", "x" * 513):
        with pytest.raises(BadInput, match="a group is text of 1 to 512 bytes"):
            queue.send(1, group=wrong)
    with pytest.raises(BadInput, match=r"group is of type int, not text"):
        queue.send(1, group=7)  # type: ignore[arg-type]  # on purpose
    with MessageQueue.builder().store(store).name("prices").options(last_value=True).clock(clock).build() as prices:
        for key in ("k", None):
            with pytest.raises(BadInput, match="the queue keeps the last value of each key"):
                prices.send(1, key=key, group="a")
    assert queue.counts().total == 0


def test_a_message_shows_its_group_wherever_it_is_seen(queue: MessageQueue) -> None:
    first, second = queue.send("a", group="customer-7").id, queue.send("b", group="customer-7").id
    assert one(queue).group == "customer-7"
    assert list(queue.receive()) == []
    found = queue.get(second)
    assert found is not None
    assert (found.group, found.standing, found.as_json()["group"]) == ("customer-7", "blocked", "customer-7")
    assert queue.counts().blocked == 1
    assert queue.explain(second).why.startswith(
        f"it waits behind {first} of its group 'customer-7', which is leased by"
    )


def test_a_row_in_which_a_group_is_free_is_not_at_rest(queue: MessageQueue, another: MessageQueue) -> None:
    """The command that ends the blocking message changes the header, so the other process polls it."""
    first, second = queue.send("a", group="g").id, queue.send("b", group="g").id
    one(queue)
    assert list(another.receive()) == []
    queue.delete(first)
    assert [delivery.message_id for delivery in another.receive()] == [second]


@pytest.mark.stores("sqlite")
def test_a_transaction_keeps_the_group_and_its_ack_hands_on_the_next(
    queue: MessageQueue, another: MessageQueue, clock: TimeMachine
) -> None:
    with queue.transaction() as tx:
        tx.send("a", group="g")
        tx.send_many([Message("b", group="g")])
    first = one(queue)
    assert (first.body, first.group) == ("a", "g")
    assert list(another.receive()) == []
    with queue.transaction() as tx:
        tx.ack(first)
    clock.advance(1)
    assert one(another).body == "b"


@pytest.mark.every_store
def test_an_ack_by_receipt_hands_on_the_next(queue: MessageQueue, another: MessageQueue, clock: TimeMachine) -> None:
    alternating(queue)
    receipt = one(queue).receipt
    assert one(another).body == 2
    assert list(another.receive()) == []
    queue.ack(receipt)
    clock.advance(1)
    assert one(another).body == 3


@pytest.mark.every_store
def test_a_spool_keeps_the_groups_and_their_order(
    builder: QueueBuilder[MessageQueue], another: MessageQueue, tmp_path: Path
) -> None:
    with builder.spool(tmp_path / "spool").build() as spooled:
        for number in range(20):
            spooled.send(number, group="g")
        assert spooled.spool.drain("20s")
    order = []
    for _ in range(20):
        with one(another) as delivery:
            assert delivery.group == "g"
            order.append(delivery.body)
    assert order == list(range(20))


def test_a_follow_up_may_be_in_the_group_of_its_delivery(queue: MessageQueue) -> None:
    queue.send("a", group="g")
    with one(queue) as delivery:
        delivery.then("b", group="g")
        delivery.then("c", group="h")
    assert sorted((str(delivery.body), delivery.group) for delivery in queue.receive(10)) == [("b", "g"), ("c", "h")]


def test_the_awaited_queue_sends_to_groups_too(place: Place) -> None:
    async def story() -> list[str | None]:
        async with await aio.connect(place.url) as connection:
            queue = await connection.queue("emails")
            await queue.send(1, group="a")
            await queue.send_many([Message(2, group="a")])
            received = await queue.receive(10)
            return [delivery.group for delivery in received]

    assert asyncio.run(story()) == ["a"]


def test_a_task_is_sent_to_a_group(place: Place) -> None:
    with App(place.url) as app:

        @app.task(queue="emails")
        def welcome(address: str) -> None:
            del address

        welcome.using(group="customer-7").send("ada@example.org")
        with connect(place.url) as connection:
            [found] = connection.queue("emails").peek()
            assert found.group == "customer-7"
