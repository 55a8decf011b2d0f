"""Messages that are sent when a delivery is acked, and only then."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue import Connection, Hook, Message, MessageQueue, Vetoed, aio, connect
from astyqueue.errors import AlreadySettled, BadInput, OutcomeUnknown
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Kind
from astyqueue.protocol.steps import Commit, Request, Send
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.store import Store
from astyqueue.testing import Recording, TimeMachine
from tests.support.places import ONE_ROW
from tests.unit.queue.shops import AFTER, BEFORE, SEVERAL_ROWS, Shop, bodies


@pytest.fixture
def shop(store: Store, clock: TimeMachine) -> Shop:
    opened = Shop(store, clock)
    opened.orders.send("an order")
    return opened


@pytest.mark.every_store
def test_follow_ups_are_sent_when_the_delivery_is_acked(shop: Shop) -> None:
    delivery = shop.begin()
    assert shop.state() == BEFORE
    delivery.ack()
    assert shop.state() == AFTER
    assert (shop.orders.stats.sent, shop.mail.stats.sent) == (2, 1)
    [bill] = shop.orders.receive()
    assert (bill.body, bill.key, bill.row) == ("a bill", "bill", delivery.row)
    bill.ack()
    [mail] = shop.mail.receive()
    mail.ack()
    assert shop.state() == ([], [])


def fails(delivery: Delivery) -> None:
    delivery.fail("no stock", delay="1h")


def rejects(delivery: Delivery) -> None:
    delivery.reject("no stock")


def releases(delivery: Delivery) -> None:
    delivery.release("1h")


def raises(delivery: Delivery) -> None:
    with pytest.raises(ZeroDivisionError), delivery:
        _ = 1 / 0


@pytest.mark.every_store
@pytest.mark.parametrize("ends", [fails, rejects, releases, raises])
def test_nothing_is_sent_for_a_delivery_that_ends_in_another_way(shop: Shop, ends: Callable[[Delivery], None]) -> None:
    ends(shop.begin())
    assert bodies(shop.mail) == []
    assert shop.orders.counts().total == 1
    assert "a bill" not in bodies(shop.orders)


def test_an_atomic_follow_up_costs_no_request_more(store: Store, clock: TimeMachine) -> None:
    recording = Recording(store)
    queue = Connection(recording, clock).queue("orders", **ONE_ROW)
    made: list[list[Request]] = []
    for follow_ups in (0, 3):
        queue.send("an order")
        [delivery] = queue.receive()
        for _ in range(follow_ups):
            delivery.then("a bill")
        recording.requests.clear()
        delivery.ack()
        made.append(list(recording.requests))
        queue.clear()
        clock.advance("11s")
    assert [type(request) for request in made[0]] == [Commit]
    assert [type(request) for request in made[1] if not _is_notice(request)] == [Commit]


def _is_notice(request: Request) -> bool:
    """Whether it only has processes in which the queue is idle look for messages, as after any send."""
    return isinstance(request, Send) and all(batch.row.startswith(":activity") for batch in request.batches)


@pytest.mark.every_store
def test_with_several_rows_a_follow_up_without_a_key_stays_in_the_row_of_its_delivery(
    store: Store, clock: TimeMachine
) -> None:
    shop = Shop(store, clock, SEVERAL_ROWS)
    shop.orders.send_many([f"order {number}" for number in range(8)])
    got: list[str] = []
    for _ in range(8):
        [delivery] = shop.orders.receive()
        delivery.then(f"bill of {delivery.body}")
        for key in "abcdefgh":
            delivery.then(f"{key} of {delivery.body}", key=key)
        delivery.ack()
        [bill] = [one for one in shop.orders.peek(1000, "all") if one.body == f"bill of {delivery.body}"]
        assert bill.id.row == delivery.row
        got.append(delivery.row)
    assert shop.orders.counts().total == 8 * 9
    assert shop.orders.stats.sent == 8 + 8 * 9
    for key in "abcdefgh":
        assert len({found.id.row for found in shop.orders.find(key)}) == 1


def test_options_are_those_of_a_send(shop: Shop, clock: TimeMachine) -> None:
    [delivery] = shop.orders.receive()
    delivery.then("later", delay="10m", headers={"who": "ada"}, max_attempts=1)
    delivery.then(Message("as a message", key="k"), queue=shop.mail)
    delivery.ack()
    assert len(shop.orders.receive()) == 0
    clock.advance("10m")
    [later] = shop.orders.receive()
    assert (later.body, later.headers, later.attempts_allowed) == ("later", {"who": "ada"}, 1)
    assert [found.body for found in shop.mail.find("k")] == ["as a message"]


def test_what_cannot_be_sent_is_refused_when_then_is_called(shop: Shop, store: Store, clock: TimeMachine) -> None:
    [delivery] = shop.orders.receive()
    with pytest.raises(BadInput, match="no unique key"):
        delivery.then(Message("a bill", key="k", unique="keep"))
    with pytest.raises(BadInput):
        delivery.then({1, 2})
    with pytest.raises(BadInput, match="is of type str: give the object of a queue, not its name"):
        delivery.then("a mail", queue="mail")  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(BadInput, match="same connection"):
        delivery.then("a mail", queue=Connection(store, clock).queue("mail"))
    for number in range(100):
        delivery.then(number)
    with pytest.raises(BadInput, match="at most 100"):
        delivery.then("one too many")
    delivery.ack()
    assert bodies(shop.orders) == list(range(100))
    with pytest.raises(AlreadySettled):
        delivery.then("too late")


def test_follow_ups_of_a_delivery_have_a_size(shop: Shop) -> None:
    [delivery] = shop.orders.receive()
    delivery.then("x" * 250_000)
    delivery.then("y" * 250_000)
    with pytest.raises(BadInput, match="bytes"):
        delivery.then("z" * 250_000)
    delivery.ack()
    assert shop.orders.counts().total == 2


def test_large_follow_ups_of_deliveries_that_are_acked_together_take_several_commits(
    store: Store, clock: TimeMachine
) -> None:
    recording = Recording(store)
    queue = Connection(recording, clock).queue("orders", **ONE_ROW)
    queue.send_many(range(10))
    received = queue.receive(10)
    for delivery in received:
        delivery.then("x" * 200_000, key=str(delivery.body))
    recording.requests.clear()
    received.ack()
    sizes = [
        sum(len(put.value) for put in request.batch.puts)
        for request in recording.requests
        if isinstance(request, Commit)
    ]
    assert len(sizes) == 5
    assert max(sizes) < 520_000
    assert (queue.counts().total, queue.stats.acked, queue.stats.sent) == (10, 10, 20)
    assert all(delivery.settled == "acked" for delivery in received)


def test_a_message_delivered_at_most_once_has_no_follow_ups(shop: Shop) -> None:
    shop.mail.send("tick", lease=0)
    [tick] = shop.mail.receive()
    with pytest.raises(AlreadySettled, match="at most once"):
        tick.then("tock")


class Heard(Hook):
    def __init__(self, forbidden: str = "") -> None:
        self.calls: list[tuple[str, object]] = []
        self.forbidden = forbidden

    def before_send(self, message: Message) -> None:
        if message.body == self.forbidden:
            reason = "not this one"
            raise Vetoed(reason)
        self.calls.append(("before_send", message.body))

    def after_send(self, message: Message, sent: MessageId) -> None:
        self.calls.append((sent.queue, message.body))

    def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        if outcome == self.forbidden and delivery.follow_ups:
            reason = "not like this"
            raise Vetoed(reason)


def opened(store: Store, clock: TimeMachine, hook: Hook) -> MessageQueue:
    return MessageQueue.builder().store(store).name("orders").clock(clock).options(**ONE_ROW).hook(hook).build()


def test_hooks_may_refuse_a_follow_up_and_hear_of_it_when_it_is_in_the_store(store: Store, clock: TimeMachine) -> None:
    heard = Heard(forbidden="a bribe")
    queue = opened(store, clock, heard)
    queue.send("an order")
    [delivery] = queue.receive()
    with pytest.raises(Vetoed):
        delivery.then("a bribe")
    delivery.then("a bill")
    assert heard.calls[2:] == [("before_send", "a bill")]
    delivery.ack()
    assert heard.calls[3:] == [("orders", "a bill")]
    assert bodies(queue) == ["a bill"]


def test_a_refused_ack_sends_nothing(store: Store, clock: TimeMachine) -> None:
    queue = opened(store, clock, Heard(forbidden="acked"))
    queue.send("an order")
    [delivery] = queue.receive()
    delivery.then("a bill")
    with pytest.raises(Vetoed):
        delivery.ack()
    assert bodies(queue) == ["an order"]


def test_the_history_has_the_sending_of_follow_ups(store: Store, clock: TimeMachine) -> None:
    shop = Shop(store, clock)
    for queue in (shop.orders, shop.mail):
        queue.configure(history="all")
    shop.orders.send("an order")
    shop.begin().ack()
    [bill] = shop.orders.receive()
    [mail] = shop.mail.receive()
    for queue, message in ((shop.orders, bill.message_id), (shop.mail, mail.message_id)):
        assert next(event.kind for event in queue.history(message)) is Kind.SENT


def test_another_process_that_waits_gets_a_follow_up(store: Store, clock: TimeMachine) -> None:
    shop = Shop(store, clock)
    shop.orders.send("an order")
    delivery = shop.begin()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: [one.body for one in shop.mail.receive(wait="20s")])
        delivery.ack()
        assert waiting.result(10) == ["a mail"]


@pytest.fixture
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('shop')}/shop.db"


def rolled_back(queue: MessageQueue, delivery: Delivery, error: Exception | None = None) -> None:
    error = error or KeyError()
    with contextlib.suppress(type(error)), queue.transaction() as tx:
        tx.ack(delivery)
        raise error


def test_a_queue_that_is_opened_anew_for_each_follow_up_is_not_kept(store: Store, clock: TimeMachine) -> None:
    connection = Connection(store, clock)
    orders, opened = connection.queue("orders"), list[weakref.ref[object]]()
    for number in range(3):
        orders.send(number)
        [delivery] = orders.receive()
        mail = connection.queue("mail")
        delivery.then("a mail", queue=mail, key="mail")
        delivery.ack()
        opened.append(weakref.ref(mail.follow_ups))
        del delivery, mail
    gc.collect()
    assert [ref() for ref in opened] == [None] * 3
    assert len(connection.queue("mail").find("mail")) == 3


def test_a_transaction_sends_the_follow_ups_of_what_it_acks(file: str) -> None:
    with connect(file) as connection:
        orders, mail = connection.queue("orders"), connection.queue("mail")
        orders.send("an order")
        [delivery] = orders.receive()
        delivery.then("a bill")
        delivery.then("a mail", queue=mail)
        rolled_back(orders, delivery)
        assert (bodies(orders), bodies(mail)) == BEFORE
        with orders.transaction() as tx:
            tx.ack(delivery)
        assert (bodies(orders), bodies(mail)) == AFTER
        assert [one.body for one in mail.receive()] == ["a mail"]
        assert [one.body for one in orders.receive()] == ["a bill"]


def test_what_follows_from_the_follow_ups_of_a_transaction_waits_for_its_commit(file: str) -> None:
    heard = Heard()
    with connect(file, hooks=[heard]) as connection:
        orders, mail = connection.queue("orders"), connection.queue("mail", history="all")
        orders.send("an order")
        mail.send("another mail")
        [delivery] = orders.receive()
        delivery.then("a mail", queue=mail)
        heard.calls.clear()
        rolled_back(orders, delivery)
        orders.send("something else")
        assert ("mail", "a mail") not in heard.calls
        assert mail.stats.sent == 1
        delivery.then("a bill")
        with orders.transaction() as tx:
            tx.ack(delivery)
        assert [call for call in heard.calls if call[0] != "before_send"] == [
            ("orders", "something else"),
            ("mail", "a mail"),
            ("orders", "a bill"),
        ]
        assert mail.stats.sent == 2
    with connect(file) as connection:
        mail = connection.queue("mail")
        waiting = [(Kind.SENT, found.id) for found in mail.peek(9, "all")]
        assert sorted((event.kind, event.message) for event in mail.history()) == sorted(waiting)


def test_an_unknown_outcome_of_another_call_in_a_transaction_leaves_the_delivery_as_it_was(file: str) -> None:
    with connect(file) as connection:
        orders = connection.queue("orders")
        orders.send("an order")
        [delivery] = orders.receive()
        delivery.then("a bill")
        rolled_back(orders, delivery, OutcomeUnknown("another store did not answer"))
        delivery.then("a mail")
        delivery.ack()
        assert sorted(map(str, bodies(orders))) == ["a bill", "a mail"]


def test_a_transaction_that_was_rolled_back_adds_nothing_to_an_earlier_ack_of_unknown_outcome(file: str) -> None:
    with connect(file) as connection:
        orders = connection.queue("orders")
        orders.send("an order")
        [delivery] = orders.receive()
        delivery.then("a bill")
        assert delivery.follow_ups
        delivery.follow_ups.freeze()  # as by an ack whose answer was lost
        rolled_back(orders, delivery)
        with pytest.raises(AlreadySettled):
            delivery.then("a mail")
        delivery.ack()
        assert bodies(orders) == ["a bill"]


def test_an_ack_after_a_transaction_that_was_rolled_back_sends_them_too(file: str) -> None:
    with connect(file) as connection:
        orders, mail = connection.queue("orders"), connection.queue("mail")
        orders.send("an order")
        [delivery] = orders.receive()
        delivery.then("a mail", queue=mail)
        rolled_back(orders, delivery)
        delivery.ack()
        assert bodies(mail) == ["a mail"]


def test_tasks_send_follow_ups_too(file: str) -> None:
    async def serve() -> tuple[list[object], list[object]]:
        async with await aio.connect(file) as connection:
            orders, mail = await connection.queue("orders"), await connection.queue("mail")
            await orders.send("an order")
            [delivery] = await orders.receive()
            delivery.then("a bill")
            delivery.then("a mail", queue=mail)
            await delivery.ack()
            return [one.body for one in await orders.peek(9, "all")], [one.body for one in await mail.peek(9, "all")]

    assert asyncio.run(serve()) == AFTER
