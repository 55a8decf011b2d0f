"""Of several outcomes for one delivery the first one counts, and a reported success is in the store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.errors import AlreadySettled, StoreUnavailable, Vetoed
from astyqueue.protocol.settling.outcomes import ACK, Extend
from astyqueue.protocol.steps import Commit, Request
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.consuming.outcome_recorder import SettleTicket
from astyqueue.queue.consuming.settle_buffer import SettleBuffer
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.delivery_loop import RenewalThread
from astyqueue.queue.hooks import Hook
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Faulty
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.support.places import Place

DEADLINE = 10


class Interrupted(Hook):
    """While it is asked about an outcome for the first time, something else happens."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[BaseDelivery], object] | None = None
        self.settled: list[str] = []

    def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:  # noqa: ARG002 - any
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            meanwhile(delivery)

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:  # noqa: ARG002 - of the only delivery
        self.settled.append(outcome)


@pytest.fixture
def hook() -> Interrupted:
    return Interrupted()


@pytest.fixture
def hooked(builder: QueueBuilder[MessageQueue], hook: Interrupted) -> MessageQueue:
    return builder.hook(hook).build()


def in_another_thread(work: Callable[[], object]) -> BaseException | None:
    """What this raises in a thread of its own."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).exception(DEADLINE)


@pytest.mark.parametrize(
    "second", [Delivery.ack, Delivery.release, Delivery.fail, Delivery.reject, lambda delivery: delivery.extend("1m")]
)
def test_a_thread_that_settles_while_the_hooks_are_asked_about_anothers_outcome_gets_an_error(
    hooked: MessageQueue, hook: Interrupted, second: Callable[[Delivery], object]
) -> None:
    hooked.send("one")
    [delivery] = hooked.receive()
    errors: list[BaseException | None] = []
    hook.meanwhile = lambda _: errors.append(in_another_thread(lambda: second(delivery)))
    delivery.release("1h")
    [error] = errors
    assert isinstance(error, AlreadySettled)
    assert error.outcome == "released"
    assert hook.settled == ["released"]
    assert [found.standing for found in hooked.peek(include="all")] == ["snoozed"]


def test_a_hook_that_settles_what_it_is_asked_about_refuses_the_outcome_and_changes_nothing(
    hooked: MessageQueue, hook: Interrupted
) -> None:
    hooked.send("one")
    [delivery] = hooked.receive()
    hook.meanwhile = lambda _: delivery.ack()
    with pytest.raises(AlreadySettled):
        delivery.reject("no")
    assert hooked.counts().in_flight == 1
    delivery.ack()
    assert hook.settled == ["acked"]
    assert hooked.counts().total == 0


def test_what_a_hook_refused_can_be_settled_again(hooked: MessageQueue, hook: Interrupted) -> None:
    def refuse(_: BaseDelivery) -> None:
        raise Vetoed

    hooked.send("one")
    [delivery] = hooked.receive()
    hook.meanwhile = refuse
    with pytest.raises(Vetoed):
        delivery.ack()
    delivery.reject("no")
    assert [letter.reason for letter in hooked.dead_letters()] == ["no"]


def test_of_several_deliveries_one_of_which_is_settled_none_is_changed(hooked: MessageQueue) -> None:
    hooked.send_many(["one", "two"])
    with hooked.receive(2) as batch:
        first, second = batch
        second.ack()
        with pytest.raises(AlreadySettled):
            hooked.run(hooked.core.claimer.settle([(first, Extend(0)), (second, Extend(0))]))
    assert hooked.counts().total == 0


def be_renewed(delivery: BaseDelivery, outcomes: SettleBuffer, clock: TimeMachine) -> None:
    """Have the lease of a delivery renewed now."""
    assert delivery.lease is not None
    delivery.renew_until, delivery.lease.renew_at = None, clock.now()
    outcomes.renew(clock.now())
    assert outcomes.urgent(clock.now()) is delivery.lease


def test_a_renewal_does_not_shorten_the_extension_that_a_user_asked_for(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send("one")
    [delivery] = queue.receive()
    outcomes = queue.core.claimer._outcomes  # noqa: SLF001 - the order is the point
    ticket = outcomes.demand([(delivery, Extend(clock.now() + 600_000_000))])
    be_renewed(delivery, outcomes, clock)
    assert ticket.left == 1
    queue.run(queue.core.claimer.flush())
    assert ticket.left == 0
    assert delivery.lease_until == clock.instant + timedelta(minutes=10)


def test_a_renewal_makes_a_shorter_extension_that_a_user_asked_for_longer(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send_many(["one", "two"])
    one, two = queue.receive(2)
    outcomes = queue.core.claimer._outcomes  # noqa: SLF001 - the order is the point
    ticket = outcomes.demand([(one, Extend(clock.now() + 31_000_000))])
    clock.advance("12s")
    two.renew_until = None
    be_renewed(one, outcomes, clock)
    queue.run(queue.core.claimer.flush())
    assert ticket.left == 0
    assert one.lease_until == two.lease_until == clock.instant + timedelta(seconds=30)


@pytest.mark.parametrize("minutes", [(1, 10), (10, 1)])
def test_of_two_extensions_that_wait_the_longer_is_for_both_callers(
    queue: MessageQueue, clock: TimeMachine, minutes: tuple[int, int]
) -> None:
    queue.send("one")
    [delivery] = queue.receive()
    outcomes = queue.core.claimer._outcomes  # noqa: SLF001 - the order is the point
    tickets = [outcomes.demand([(delivery, Extend(clock.now() + each * 60 * SECOND))]) for each in minutes]
    queue.run(queue.core.claimer.flush())
    assert [(ticket.left, ticket.lost, ticket.error) for ticket in tickets] == [(0, [], None)] * 2
    assert delivery.lease_until == clock.instant + timedelta(minutes=10)


def test_an_extension_that_one_of_its_two_callers_withdraws_is_made_for_the_other(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send("one")
    [delivery] = queue.receive()
    outcomes = queue.core.claimer._outcomes  # noqa: SLF001 - the order is the point
    wanted = Extend(clock.now() + 600 * SECOND)
    leaves, stays, leaves_too = [outcomes.demand([(delivery, wanted)]) for _ in range(3)]
    outcomes.withdraw(leaves)
    outcomes.withdraw(leaves_too)
    queue.run(queue.core.claimer.flush())
    assert (leaves.left, stays.left, leaves_too.left) == (1, 0, 1)
    assert delivery.lease_until == clock.instant + timedelta(minutes=10)


def test_an_extension_that_waits_as_the_message_is_acked_is_refused(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("one")
    [delivery] = queue.receive()
    outcomes = queue.core.claimer._outcomes  # noqa: SLF001 - the order is the point
    extended, acked = [outcomes.demand([(delivery, one)]) for one in (Extend(clock.now() + 600 * SECOND), ACK)]
    queue.run(queue.core.claimer.flush())
    assert isinstance(extended.error, AlreadySettled)
    assert (acked.left, acked.lost, acked.error) == (0, [], None)
    assert (queue.stats.acked, queue.stats.lost, queue.counts().total) == (1, 0, 0)


def test_no_extension_is_reported_as_made_that_an_ack_replaced_which_then_failed(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send("one")
    [delivery] = queue.receive()
    outcomes, lease = queue.core.claimer._outcomes, delivery.lease  # noqa: SLF001 - the order is the point
    assert lease is not None
    before = delivery.lease_until
    extended, acked = [outcomes.demand([(delivery, one)]) for one in (Extend(clock.now() + 600 * SECOND), ACK)]
    outcomes.urgent(clock.now())
    assert outcomes.fail(lease, StoreUnavailable("away"))
    assert isinstance(acked.error, StoreUnavailable)
    assert isinstance(extended.error, AlreadySettled)
    assert (delivery.settled, delivery.lease_until) == (None, before)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_message_that_is_acked_while_the_hooks_are_asked_about_an_extension_stays_acked(
    hooked: MessageQueue, hook: Interrupted, *, is_committed: bool
) -> None:
    hooked.send("one")
    [delivery] = hooked.receive()
    claimer = hooked.core.claimer
    hook.meanwhile = (
        (lambda _: in_another_thread(delivery.ack)) if is_committed else (lambda held: claimer.settle_later(held, ACK))
    )
    with pytest.raises(AlreadySettled, match="acked"):
        delivery.extend("10m")
    hooked.run(claimer.flush())
    assert (delivery.settled, hook.settled) == ("acked", ["acked"])
    assert (hooked.stats.acked, hooked.stats.lost, hooked.counts().total) == (1, 0, 0)


def test_an_extension_that_comes_after_the_ack_of_a_transaction_loses_no_message(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send("one")
    [delivery] = queue.receive()
    claimer = queue.core.claimer
    extended = claimer._outcomes.demand([(delivery, Extend(clock.now() + 600 * SECOND))])  # noqa: SLF001 - as above
    with claimer.recorder.settling([(delivery, ACK)]):  # as a transaction until it has recorded its commit
        assert queue.delete(delivery.message_id)
        queue.run(claimer.flush())
    assert isinstance(extended.error, AlreadySettled)
    assert (delivery.settled, queue.stats.lost) == (None, 0)


class Afterwards(Faulty):
    """Something else happens after the next commit, before its answer arrives."""

    happens: Callable[[], object] | None = None

    def perform(self, request: Request) -> object:
        answer = super().perform(request)
        happens = self.happens
        if isinstance(request, Commit) and happens:
            self.happens = None
            happens()
        return answer


def test_who_acks_while_a_renewal_finds_the_message_gone_is_told_that_it_is_lost_and_so_are_the_hooks(
    place: Place, clock: TimeMachine, hook: Interrupted
) -> None:
    store, tickets = Afterwards(place.store(clock)), list[SettleTicket]()
    queue = MessageQueue.builder().store(store).name("emails").lease("30s").clock(clock).hook(hook).build()
    queue.send("one")
    [delivery] = queue.receive()
    assert MessageQueue.builder().store(store).name("emails").clock(clock).build().delete(delivery.message_id)
    outcomes = queue.core.claimer._outcomes  # noqa: SLF001 - the order is the point
    be_renewed(delivery, outcomes, clock)
    store.happens = lambda: tickets.append(outcomes.demand([(delivery, ACK)]))
    queue.receive()
    assert [ticket.lost for ticket in tickets] == [[delivery]]
    assert (delivery.settled, queue.stats.lost, queue.stats.acked, hook.settled) == ("lost", 1, 0, ["lost"])


def test_only_the_first_of_the_acks_that_wait_for_a_common_commit_wakes_the_leader(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send_many(["one", "two", "three", "four"])
    first, second, third, fourth = queue.receive(4)
    outcomes = queue.core.claimer._outcomes  # noqa: SLF001 - wake-ups cost, and change nothing else
    assert outcomes.add(first, ACK)
    assert not outcomes.add(second, ACK)
    assert outcomes.urgent(clock.now()) is None  # the leader has seen both, and rests until their time is over
    assert not outcomes.add(third, ACK)
    clock.advance("5ms")
    assert outcomes.urgent(clock.now()) is first.lease
    queue.run(queue.core.claimer.flush())
    assert outcomes.urgent(clock.now()) is None
    assert outcomes.add(fourth, ACK)


def test_keeping_leases_again_and_again_leaves_no_thread_behind() -> None:
    """Each thread asks whether to go on only when all have left and one has come back."""
    ask = threading.Event()
    told: list[bool] = []
    everybody = threading.Semaphore(0)

    def keeping(stopped: Callable[[], bool], _: Wakeup) -> None:
        assert ask.wait(DEADLINE)
        told.append(stopped())
        everybody.release()

    keeper = RenewalThread(keeping, lambda: None, SystemClock())
    for _ in range(5):
        with keeper:
            pass
    with keeper:
        ask.set()
        for _ in range(6):
            assert everybody.acquire(timeout=DEADLINE)
    assert sorted(told) == [False] + [True] * 5
