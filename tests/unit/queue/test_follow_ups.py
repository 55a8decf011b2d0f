"""Messages that are sent when a delivery is acked, and only then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue import Connection, Hook, LeaseLost, Message, MessageQueue, Vetoed, aio, connect
from astyqueue.errors import AlreadySettled, BadInput, NotFound, OutcomeUnknown, StoreUnavailable
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Kind
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.steps import Commit, Read, Request, Send
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.store import Store
from astyqueue.testing import Failing, Recording, TimeMachine
from astyqueue.testing.faults import Faulty
from tests.support.places import ONE_ROW

SEVERAL_ROWS = {"time_shards": 1, "concurrency_shards": 4}


class Shop:
    """Orders, each followed by a bill in the same queue and by a mail in another."""

    def __init__(self, store: Store, clock: TimeMachine, layout: dict[str, int] = ONE_ROW) -> None:
        self.connection = Connection(store, clock)
        self.orders = self.connection.queue("orders", lease="30s", **layout)
        self.mail = self.connection.queue("mail", lease="30s", **ONE_ROW)

    def begin(self) -> Delivery:
        """An order in hand, with its follow-ups."""
        [delivery] = self.orders.receive()
        return self.followed(delivery)

    def followed(self, delivery: Delivery) -> Delivery:
        delivery.then("a bill", key="bill")
        delivery.then("a mail", queue=self.mail)
        return delivery

    def state(self) -> tuple[list[object], list[object]]:
        return bodies(self.orders), bodies(self.mail)


State = tuple[list[object], list[object]]
BEFORE: State = (["an order"], [])
AFTER: State = (["a bill"], ["a mail"])


def bodies(queue: MessageQueue) -> list[object]:
    return [found.body for found in queue.peek(100, "all")]


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


@pytest.mark.every_store
def test_with_the_lease_lost_nothing_goes_into_its_row_and_another_row_gets_one_message(
    shop: Shop, clock: TimeMachine
) -> None:
    slow = shop.begin()
    clock.advance("31s")
    shop.begin().ack()
    with pytest.raises(LeaseLost):
        slow.ack()
    assert shop.state() == AFTER


class Killed(BaseException):
    """The end of a process."""


class Killing(Faulty):
    """Lets a number of requests pass; with the next one the process ends, before or after it is carried out."""

    def __init__(self, store: Store, passes: int, *, applied: bool) -> None:
        super().__init__(store)
        self.passes = passes
        self.applied = applied

    def perform(self, request: Request) -> object:
        self.passes -= 1
        if self.passes < -1 or (self.passes == -1 and not self.applied):
            raise Killed
        answer = super().perform(request)
        if self.passes == -1:
            raise Killed
        return answer


def ended(shop: Shop, store: Store, clock: TimeMachine, passes: int, *, applied: bool) -> bool:
    """Whether an ack ended before the process was killed; then another process does what is left to do."""
    dying = Killing(store, 10**9, applied=applied)
    doomed = Shop(dying, clock)
    delivery = doomed.begin()
    dying.passes = passes
    try:
        delivery.ack()
    except Killed:
        found = shop.state()
        assert found in (BEFORE, (["an order"], ["a mail"]), AFTER)
        clock.advance("31s")
        if found != AFTER:
            shop.begin().ack()
        return False
    return True


@pytest.mark.every_store
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_a_process_killed_at_any_request_of_an_ack_leaves_both_or_neither(
    store: Store, clock: TimeMachine, *, applied: bool
) -> None:
    for passes in range(100):
        shop = Shop(store, clock)
        shop.orders.send("an order")
        over = ended(shop, store, clock, passes, applied=applied)
        assert shop.state() == AFTER, passes
        for queue in (shop.orders, shop.mail):
            queue.clear()
        if over:
            assert passes > 5  # the mail, the hint of its key, the ack
            return
    pytest.fail("an ack makes fewer requests")


@pytest.mark.parametrize("kind", [Send, Commit])
@pytest.mark.parametrize("applied", [False, True], ids=["lost", "applied"])
def test_after_an_unknown_outcome_the_same_messages_are_sent_again(
    store: Store, clock: TimeMachine, kind: type[Send | Commit], *, applied: bool
) -> None:
    for number in range(1, 10):
        fault = Toggled(Failing(store, OutcomeUnknown("no answer"), at=number, of=(kind,), applied=applied), store)
        shop = Shop(fault, clock)
        shop.orders.send("an order")
        delivery = shop.begin()
        fault.on = True
        for _ in range(3):
            try:
                delivery.ack()
            except OutcomeUnknown:
                continue
            break
        assert delivery.settled == "acked"
        assert shop.state() == AFTER, number
        for queue in (shop.orders, shop.mail):
            queue.clear()
        clock.advance("1s")


class Toggled(Faulty):
    """The store itself until it is turned `on`: then one with faults."""

    def __init__(self, faulty: Faulty, store: Store) -> None:
        super().__init__(store)
        self.faulty = faulty
        self.on = False

    def perform(self, request: Request) -> object:
        return self.faulty.perform(request) if self.on else super().perform(request)


class Unreachable(Faulty):
    """A store that answers no commit to a queue while it is `away`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.away = ""

    def perform(self, request: Request) -> object:
        if self.away and isinstance(request, Commit | Read | Send) and self.away in repr(request):
            problem = "away"
            raise StoreUnavailable(problem)
        return super().perform(request)


def test_an_ack_fails_with_the_store_of_its_follow_ups_and_can_be_tried_again(store: Store, clock: TimeMachine) -> None:
    unreachable = Unreachable(store)
    shop = Shop(unreachable, clock)
    shop.orders.send("an order")
    delivery = shop.begin()
    unreachable.away = "mail:0:0"
    with pytest.raises(StoreUnavailable):
        delivery.ack()
    unreachable.away = ""
    assert shop.state() == BEFORE
    delivery.ack()
    assert shop.state() == AFTER


def test_acks_that_no_caller_waits_for_wait_for_their_follow_ups(store: Store, clock: TimeMachine) -> None:
    unreachable = Unreachable(store)
    shop = Shop(unreachable, clock)
    shop.orders.send("an order")
    delivery = shop.begin()
    unreachable.away = "mail:0:0"
    shop.orders.core.claimer.settle_later(delivery, ACK)
    with pytest.raises(StoreUnavailable):
        shop.orders.run(shop.orders.core.claimer.flush())
    unreachable.away = ""
    assert shop.state() == BEFORE
    shop.orders.run(shop.orders.core.claimer.flush())
    assert shop.state() == AFTER


def test_a_delivery_whose_follow_up_cannot_be_sent_is_not_acked(shop: Shop, store: Store, clock: TimeMachine) -> None:
    shop.orders.send("another order")
    first, second = shop.orders.receive(2)
    other = Connection(store, clock)
    shop.followed(first)
    shop.mail.drop()
    other.queue("mail", time_shards=1, concurrency_shards=2)
    clock.advance("20s")
    with pytest.raises(NotFound, match="another layout"):
        first.ack()
    assert first.settled is None
    second.ack()
    assert bodies(shop.orders) == ["an order"]
    shop.orders.core.claimer.settle_later(first, ACK)
    shop.orders.run(shop.orders.core.claimer.flush())
    assert bodies(shop.orders) == ["an order"]
    clock.advance("31s")
    [again] = shop.orders.receive()
    again.ack()


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


def test_a_later_attempt_that_does_the_same_sends_nothing_twice_and_one_that_does_other_things_sends_those(
    shop: Shop, store: Store, clock: TimeMachine
) -> None:
    unreachable = Unreachable(store)
    dying = Shop(unreachable, clock)
    delivery = dying.begin()
    delivery.then("a gift", queue=dying.mail)
    unreachable.away = "orders:0:0"
    with pytest.raises(StoreUnavailable):
        delivery.ack()
    assert bodies(shop.mail) == ["a mail", "a gift"]
    [mail] = shop.mail.receive()
    mail.ack()
    clock.advance("31s")
    again = shop.begin()
    again.then("a voucher", queue=shop.mail)
    again.ack()
    assert bodies(shop.mail) == ["a gift", "a voucher"]


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


def test_after_an_ack_of_unknown_outcome_its_follow_ups_are_fixed(store: Store, clock: TimeMachine) -> None:
    fault = Toggled(Unanswered(store), store)
    shop = Shop(fault, clock)
    shop.orders.send("an order")
    delivery = shop.begin()
    fault.on = True
    with pytest.raises(OutcomeUnknown):
        delivery.ack()
    fault.on = False
    with pytest.raises(AlreadySettled, match="unknown outcome"):
        delivery.then("one more")
    delivery.ack()
    assert shop.state() == AFTER


class Unanswered(Faulty):
    """Carries out no commit of orders, and says nothing of it."""

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit) and request.batch.row.startswith("orders"):
            problem = "no answer"
            raise OutcomeUnknown(problem)
        return super().perform(request)


def test_a_follow_up_that_was_committed_long_after_it_was_due_is_found_at_once(
    store: Store, clock: TimeMachine
) -> None:
    unreachable = Unreachable(store)
    queue = Connection(unreachable, clock).queue("orders", lease="1h", **ONE_ROW)
    queue.send("an order")
    [delivery] = queue.receive()
    delivery.then("a bill")
    unreachable.away = "orders:0:0"
    with pytest.raises(StoreUnavailable):
        delivery.ack()
    unreachable.away = ""
    clock.advance("30m")
    queue.send("another order")
    queue.receive()[0].ack()
    delivery.ack()
    assert [one.body for one in queue.receive()] == ["a bill"]


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


def rolled_back(queue: MessageQueue, delivery: Delivery) -> None:
    with contextlib.suppress(KeyError), queue.transaction() as tx:
        tx.ack(delivery)
        raise KeyError


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
