"""Queues whose number of messages is bounded, and what becomes of what is too much."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from astyqueue import Hook, Message, MessageQueue, aio
from astyqueue.errors import BadSetting, QueueFull, StoreUnavailable, Vetoed
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.admin.settings import delete_settings
from astyqueue.protocol.layout.columns import HEADER
from astyqueue.protocol.steps import Commit, Read, Request, Send, run
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.producing.producer import CHUNK
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.schedules import Schedules
from astyqueue.store import Batch, Put, Store
from astyqueue.testing import Failing, TimeMachine
from astyqueue.testing.faults import Faulty, Recording
from astyqueue.triggers import Every
from tests.support.places import ONE_ROW, Place

#: Longer than a producer waits before it counts again.
LATER = "20ms"


class Ends(Hook):
    """The messages that were removed, and why."""

    def __init__(self) -> None:
        self.deleted: list[tuple[MessageId, str]] = []

    def after_delete(self, message: MessageId, why: str) -> None:
        self.deleted.append((message, why))


def depth(queue: MessageQueue) -> int:
    counts = queue.counts()
    return counts.total - counts.dead


def bodies(queue: MessageQueue) -> Sequence[object]:
    return sorted((found.body for found in queue.peek(10_000, include="all")), key=lambda body: (str(type(body)), body))


@pytest.mark.every_store
def test_a_full_queue_refuses_what_is_sent_and_says_how_full_it_is(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.configure(max_messages=3)
    for number in range(3):
        queue.send(number)
    with pytest.raises(QueueFull, match="'emails' is full: it has 3 messages, and max_messages is 3") as full:
        queue.send("too much")
    assert (full.value.counted, full.value.limit, full.value.sent) == (3, 3, 0)
    assert queue.stats.refused == 1
    queue.receive(2).ack()
    clock.advance(LATER)
    queue.send("room again")
    assert depth(queue) == 2


def test_a_leased_message_counts_and_a_dead_letter_does_not(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.configure(max_messages=1)
    queue.send("held")
    [held] = queue.receive()
    with pytest.raises(QueueFull):
        queue.send("too much")
    held.reject("of no use")
    clock.advance(LATER)
    assert queue.send("next").new


def test_of_many_those_are_sent_for_which_there_is_room_and_the_error_has_their_number(queue: MessageQueue) -> None:
    queue.configure(max_messages=25)
    with pytest.raises(QueueFull, match="25 messages of this call were sent, the others were not") as full:
        queue.send_many(range(100))
    assert full.value.sent == 25
    assert bodies(queue) == list(range(25))


def test_a_send_is_one_request_while_the_credit_of_a_count_lasts(clock: TimeMachine, place: Place) -> None:
    store = Recording(place.store(clock))
    with MessageQueue.builder().store(store).name("emails").options(max_messages=1_000).clock(clock).build() as queue:
        queue.send(0)
        store.requests.clear()
        for number in range(99):
            queue.send(number)
        assert [type(request) for request in store.requests] == [Send] * 99
        queue.send("one more than a tenth of the room")
        assert Read in map(type, store.requests)


def test_a_queue_without_a_bound_is_never_counted(clock: TimeMachine, place: Place) -> None:
    store = Recording(place.store(clock))
    with MessageQueue.builder().store(store).name("emails").clock(clock).build() as queue:
        queue.send("a notice goes with the first one")
        store.requests.clear()
        for number in range(50):
            queue.send(number)
        assert [type(request) for request in store.requests] == [Send] * 50


@pytest.mark.every_store
def test_the_oldest_of_the_lowest_priority_goes_first_and_is_counted_recorded_and_told(
    builder: QueueBuilder[MessageQueue],
) -> None:
    ends = Ends()
    with (
        builder.options(**ONE_ROW, priorities=2, max_messages=4, overflow="drop_oldest", history="all")
        .hook(ends)
        .build() as queue
    ):
        sent = [queue.send(number, priority=number % 2, key="odd" if number % 2 else None) for number in range(4)]
        queue.send(4, priority=1)
        queue.send(5, priority=1)
        queue.send(6, priority=1)
        assert bodies(queue) == [3, 4, 5, 6]
        gone = [sent[0].id, sent[2].id, sent[1].id]
        assert ends.deleted == [(id_, "overflow") for id_ in gone]
        assert queue.stats.evicted == 3
        events = {event.message: event.key for event in queue.history(kinds=["cancelled"]) if event.why == "overflow"}
        assert events == {gone[0]: None, gone[1]: None, gone[2]: "odd"}


def test_what_a_consumer_has_is_never_dropped(queue: MessageQueue) -> None:
    queue.configure(max_messages=2, overflow="drop_oldest")
    queue.send_many([1, 2])
    held = queue.receive(2)
    for number in range(3, 6):
        queue.send(number)
    assert bodies(queue) == [1, 2, 5]
    held.ack()
    assert bodies(queue) == [5]


def test_what_was_released_is_dropped_like_what_waits(queue: MessageQueue) -> None:
    queue.configure(max_messages=2, overflow="drop_oldest")
    queue.send_many([1, 2])
    for delivery in queue.receive(2):
        delivery.release(delay="1m")
    queue.send(3)
    assert bodies(queue) == [2, 3]


def test_a_dropped_message_frees_its_unique_key(queue: MessageQueue) -> None:
    queue.configure(max_messages=1, overflow="drop_oldest")
    queue.send("first", key="ada", unique="reject")
    queue.send("second")
    assert queue.send("third", key="ada", unique="reject").new
    assert bodies(queue) == ["third"]


def test_a_queue_that_was_far_above_its_new_bound_comes_down(queue: MessageQueue) -> None:
    queue.send_many(range(5_000))
    queue.configure(max_messages=100, overflow="drop_oldest")
    for number in range(5_000, 5_050):
        queue.send(number)
    assert bodies(queue)[-50:] == list(range(5_000, 5_050))
    assert 100 <= depth(queue) <= 110


@pytest.mark.parametrize("limit", [5, 1_000])
@pytest.mark.parametrize("count", [500, 2_500])
def test_sending_many_at_once_leaves_the_newest_up_to_the_bound(queue: MessageQueue, limit: int, count: int) -> None:
    queue.configure(max_messages=limit, overflow="drop_oldest")
    queue.send_many(range(count))
    left = min(limit, count)
    assert bodies(queue) == list(range(count - left, count))
    assert queue.stats.evicted == count - left


@pytest.mark.every_store
def test_a_send_waits_until_there_is_room(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.configure(max_messages=1, overflow="block", overflow_wait="10m")
    queue.send("first")
    sent = threading.Event()

    def send() -> None:
        queue.send("second")
        sent.set()

    sender = threading.Thread(target=send)
    sender.start()
    clock.advance("1s")
    assert not sent.is_set()
    queue.receive().ack()
    while not sent.wait(0.01):
        clock.advance(LATER)
    sender.join()
    assert bodies(queue) == ["second"]


def test_a_send_that_waited_in_vain_says_so(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.configure(max_messages=1, overflow="block", overflow_wait="5s")
    queue.send("first")
    refused: list[QueueFull] = []

    def send() -> None:
        try:
            queue.send("second")
        except QueueFull as full:
            refused.append(full)

    sender = threading.Thread(target=send)
    sender.start()
    while sender.is_alive():
        clock.advance("1s")
        sender.join(0.01)
    assert "is full after a wait of 5 s" in str(refused[0])


def test_a_task_waits_too(place: Place, clock: TimeMachine) -> None:
    async def whole() -> None:
        builder = aio.MessageQueue.builder().store(place.store(clock)).name("emails").clock(clock)
        async with await builder.options(max_messages=1, overflow="block", overflow_wait="10m").build() as queue:
            await queue.send("first")
            sending = asyncio.create_task(queue.send("second"))
            await asyncio.wait([sending], timeout=0)
            await (await queue.receive()).ack()
            while not sending.done():
                clock.advance(LATER)
                await asyncio.wait([sending], timeout=0.01)
            assert (await sending).new

    asyncio.run(whole())


@pytest.mark.every_store
def test_what_is_too_much_goes_to_another_queue_whose_name_the_id_has(
    builder: QueueBuilder[MessageQueue], store: Store, clock: TimeMachine
) -> None:
    with (
        MessageQueue.builder().store(store).name("later").clock(clock).build() as later,
        builder.options(priorities=3, max_messages=2, overflow="forward", overflow_to="later").build() as queue,
    ):
        ids = [queue.send(number, priority=2).id for number in range(3)]
        assert [id_.queue for id_ in ids] == ["emails", "emails", "later"]
        report = queue.send_many([Message(3, priority=1), Message(4)])
        assert [id_.queue for id_ in report.ids if id_] == ["later", "later"]
        assert bodies(later) == [2, 3, 4]
        assert queue.stats.forwarded == 3
        assert queue.stats.sent == 5


def test_what_hooks_refuse_is_not_forwarded(
    builder: QueueBuilder[MessageQueue], store: Store, clock: TimeMachine
) -> None:
    class Even(Hook):
        def __init__(self) -> None:
            self.sent: list[object] = []

        def before_send(self, message: Message) -> None:
            if message.body % 2:  # type: ignore[operator]  # these tests send numbers
                why = f"{message.body} is odd"
                raise Vetoed(why)

        def after_send(self, message: Message, sent: MessageId) -> None:
            self.sent.append((message.body, sent.queue))

    even = Even()
    with (
        MessageQueue.builder().store(store).name("later").clock(clock).build() as later,
        builder.options(max_messages=1, overflow="forward", overflow_to="later").hook(even).build() as queue,
    ):
        report = queue.send_many(range(5))
        assert (list(report.vetoed), report.sent) == ([1, 3], 3)
        assert even.sent == [(0, "emails"), (2, "later"), (4, "later")]
        assert bodies(later) == [2, 4]


def test_where_to_forward_must_exist_and_not_lead_back(queue: MessageQueue, store: Store, clock: TimeMachine) -> None:
    with pytest.raises(BadSetting, match="overflow_to is 'later', and there is no such queue: create it first"):
        queue.configure(overflow="forward", overflow_to="later")
    with pytest.raises(BadSetting, match="forward in a circle: emails to emails"):
        queue.configure(overflow="forward", overflow_to="emails")
    with MessageQueue.builder().store(store).name("later").clock(clock).build() as later:
        queue.configure(overflow="forward", overflow_to="later")
        with pytest.raises(BadSetting, match="forward in a circle: later to emails to later"):
            later.configure(overflow="forward", overflow_to="emails")
        with pytest.raises(BadSetting, match="circle"):
            MessageQueue.builder().store(store).name("emails").options(overflow="forward", overflow_to="emails").build()


def test_without_the_queue_to_forward_to_a_send_is_refused(
    queue: MessageQueue, store: Store, clock: TimeMachine
) -> None:
    MessageQueue.builder().store(store).name("later").clock(clock).build().close()
    queue.configure(max_messages=1, overflow="forward", overflow_to="later")
    run(delete_settings("later"), store)
    queue.send("first")
    with pytest.raises(QueueFull):
        queue.send("second")


@pytest.mark.parametrize("many_first", [False, True])
def test_once_the_queue_to_forward_to_is_dropped_sends_are_refused_until_it_is_made_again(
    queue: MessageQueue, store: Store, clock: TimeMachine, *, many_first: bool
) -> None:
    later = MessageQueue.builder().store(store).name("later").clock(clock)
    later.build().close()
    queue.configure(max_messages=1, overflow="forward", overflow_to="later")
    queue.send_many(["first", "second"])
    run(delete_settings("later"), store)
    clock.advance("10s")
    for many in (many_first, not many_first):
        with pytest.raises(QueueFull):
            queue.send_many(["third", "fourth"]) if many else queue.send("fifth")
    with later.build() as there:
        assert queue.send("sixth").id.row.startswith("later:")
        assert sorted(map(str, bodies(there))) == ["second", "sixth"]


def test_the_error_counts_what_the_call_has_sent_to_both_queues_when_the_second_is_full_too(
    queue: MessageQueue, store: Store, clock: TimeMachine
) -> None:
    with MessageQueue.builder().store(store).name("later").clock(clock).options(max_messages=2).build() as later:
        queue.configure(max_messages=3, overflow="forward", overflow_to="later")
        with pytest.raises(QueueFull, match=r"'later' is full.* 5 messages of this call were sent") as full:
            queue.send_many(range(10))
        assert full.value.sent == len(bodies(queue)) + len(bodies(later)) == 5


def test_the_error_counts_what_was_sent_of_an_async_generator_before_its_last_thousand(
    store: Store, clock: TimeMachine
) -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(2 * CHUNK):
            yield number

    async def whole() -> None:
        builder = aio.MessageQueue.builder().store(store).name("emails").clock(clock)
        async with await builder.options(max_messages=CHUNK + 10).build() as queue:
            with pytest.raises(QueueFull, match=f"{CHUNK + 10} messages of this call were sent") as full:
                await queue.send_many(numbers())
            assert full.value.sent == (await queue.counts()).total == CHUNK + 10

    asyncio.run(whole())


def test_a_chain_of_queues_ends_with_what_the_last_one_says(
    queue: MessageQueue, store: Store, clock: TimeMachine
) -> None:
    with MessageQueue.builder().store(store).name("last").clock(clock).options(max_messages=1).build() as last:
        MessageQueue.builder().store(store).name("middle").options(
            max_messages=1, overflow="forward", overflow_to="last"
        ).clock(clock).build().close()
        queue.configure(max_messages=1, overflow="forward", overflow_to="middle")
        assert [queue.send(number).id.queue for number in range(3)] == ["emails", "middle", "last"]
        with pytest.raises(QueueFull, match="'last' is full"):
            queue.send("too much")
        assert bodies(last) == [2]


def test_what_must_not_be_lost_may_exceed_the_bound(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.configure(max_messages=1)
    queue.send("first")
    [held] = queue.receive()
    held.then("second")
    held.then("third")
    held.ack()
    assert bodies(queue) == ["second", "third"]
    Schedules(queue).add("tick", Every("1m"), Message("tick"))
    clock.advance("1m")
    received = [*queue.receive(10), *queue.receive(10)]
    assert {delivery.body for delivery in received} == {"second", "third", "tick"}
    with pytest.raises(QueueFull):
        queue.send("fourth")


@pytest.mark.stores("sqlite")
def test_in_a_transaction_a_send_is_refused_at_once(queue: MessageQueue) -> None:
    queue.configure(max_messages=1, overflow="block", overflow_wait="1h")
    with queue.transaction() as transaction:
        transaction.send("first")
        with pytest.raises(QueueFull):
            transaction.send("second")
    assert bodies(queue) == ["first"]


@pytest.mark.stores("sqlite")
def test_in_a_transaction_that_is_rolled_back_nothing_is_dropped(builder: QueueBuilder[MessageQueue]) -> None:
    ends = Ends()
    with builder.options(max_messages=1, overflow="drop_oldest").hook(ends).build() as queue:
        queue.send("first")
        with contextlib.suppress(LookupError), queue.transaction() as transaction:
            transaction.send("second")
            raise LookupError
        assert (bodies(queue), ends.deleted) == (["first"], [])
        with queue.transaction() as transaction:
            transaction.send("third")
        assert bodies(queue) == ["third"]
        assert [why for _, why in ends.deleted] == ["overflow"]


def test_a_row_that_cannot_be_read_does_not_stop_sends(queue: MessageQueue, store: Store) -> None:
    queue.configure(max_messages=5)
    for row in queue._core.ring.rows():  # noqa: SLF001 - the rows of a queue have no public names
        store.commit(Batch(row, (Put(HEADER, b"\x63 from the future"),)), ())
    assert queue.send("first").new


def test_what_was_claimed_before_it_could_be_dropped_is_left(
    builder: QueueBuilder[MessageQueue], store: Store, clock: TimeMachine
) -> None:
    class Claiming(Faulty):
        def perform(self, request: Request) -> object:
            if isinstance(request, Commit) and not taken and any(one.name == HEADER for one in request.expects):
                taken.append("first")
                taken.append(consumer.receive())
            return super().perform(request)

    taken: list[object] = ["not yet"]
    with builder.store(Claiming(store)).options(max_messages=2, overflow="drop_oldest").build() as queue:
        consumer = MessageQueue.builder().store(store).name("emails").clock(clock).build()
        queue.send_many(range(2))
        taken.clear()
        for number in range(2, 4):
            queue.send(number)
        assert taken
        assert bodies(queue) == [0, 3]
        assert queue.stats.evicted == 2


def test_when_a_count_fails_nothing_is_sent(clock: TimeMachine, place: Place) -> None:
    store = place.store(clock)
    failing = Failing(store, StoreUnavailable("the store is away"), of=(Read,))
    builder = MessageQueue.builder().name("emails").clock(clock)
    with builder.store(store).options(max_messages=9).build() as queue:
        sending = QueueRuntime(queue.settings, clock, ())
        with pytest.raises(StoreUnavailable):
            run(sending.send(Message("first")), failing)
        assert bodies(queue) == []
        run(sending.send(Message("second")), failing)
        assert bodies(queue) == ["second"]
