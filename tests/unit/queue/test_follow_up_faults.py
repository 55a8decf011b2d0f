"""Acks with follow-ups, killed, unanswered, refused or lost at any point."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from astyqueue import Connection, LeaseLost
from astyqueue.errors import AlreadySettled, NotFound, OutcomeUnknown, StoreUnavailable
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.steps import Commit, Read, Request, Send
from astyqueue.store import Store
from astyqueue.testing import Failing, TimeMachine
from astyqueue.testing.faults import Faulty
from tests.support.places import ONE_ROW
from tests.unit.queue.shops import AFTER, BEFORE, Shop, bodies


@pytest.fixture
def shop(store: Store, clock: TimeMachine) -> Shop:
    opened = Shop(store, clock)
    opened.orders.send("an order")
    return opened


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


def test_an_attempt_in_a_later_time_shard_sends_nothing_twice_either(store: Store, clock: TimeMachine) -> None:
    unreachable = Unreachable(store)
    connection = Connection(unreachable, clock)
    orders = connection.queue("orders", lease="30s", **ONE_ROW)
    mail = connection.queue("mail", time_shards=4, every="1h", concurrency_shards=2)
    clock.set(datetime(2026, 11, 21, 9, 59, 50, tzinfo=UTC))
    orders.send("an order")
    [first] = orders.receive()
    first.then("a mail", queue=mail)
    first.then("a keyed mail", queue=mail, key="order 7")
    unreachable.away = "orders:0:0"
    with pytest.raises(StoreUnavailable):
        first.ack()
    unreachable.away = ""
    clock.set(datetime(2026, 11, 21, 10, 2, tzinfo=UTC))
    [again] = orders.receive()
    again.then("a mail", queue=mail)
    again.then("a keyed mail", queue=mail, key="order 7")
    again.ack()
    assert sorted(map(str, bodies(mail))) == ["a keyed mail", "a mail"]
    assert len([*mail.receive(10), *mail.receive(10)]) == 2  # one of each row, or both of one


def test_a_chain_of_follow_ups_goes_on_in_the_time_shard_of_the_present(store: Store, clock: TimeMachine) -> None:
    queue = Connection(store, clock).queue("steps", time_shards=4, every="1h", concurrency_shards=1)
    clock.set(datetime(2026, 11, 21, 9, 59, 50, tzinfo=UTC))
    queue.send("first")
    clock.set(datetime(2026, 11, 21, 10, 0, 10, tzinfo=UTC))
    rows: list[str] = []
    for following in ("second", "third", "fourth"):
        [delivery] = queue.receive()
        rows.append(delivery.row)
        delivery.then(following)
        delivery.ack()
        clock.advance("1s")
    [last] = queue.receive()
    assert rows[0] == rows[1] != rows[2] == last.row  # the first step across the end takes one that has ended


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
