"""Of several outcomes for one delivery the first one counts, and a reported success is in the store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.errors import AlreadySettled, Vetoed
from astyqueue.protocol.settling.outcomes import ACK, Extend
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.consuming.settle_buffer import SettleBuffer
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.delivery_loop import RenewalThread
from astyqueue.queue.hooks import Hook
from astyqueue.testing import TimeMachine
from astyqueue.waiting import Wakeup

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
