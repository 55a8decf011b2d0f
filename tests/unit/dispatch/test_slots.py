"""Slots that all queues of a dispatcher share: whose turn it is, how much is claimed, and who joins or leaves."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from astyqueue import MessageQueue
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.flow_control import AdaptivePrefetch
from astyqueue.dispatch.slots import ClaimCredit, FreeSlots, ReadyDeliveries
from astyqueue.errors import BadSetting, HandlersStuck
from astyqueue.queue.delivery.base_delivery import Waiter
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.dispatch.stage import DEADLINE, Crew, Gate, Order


def look_around(queue: MessageQueue) -> None:
    """Let the claims of a queue go once through everything there is to do."""
    waiter = Waiter(lambda: 0, lambda _: None)
    queue.run(queue.core.claimer.take(waiter, lambda: False, until=queue.clock.monotonic()))


def test_one_slot_serves_fifty_queues(crew: Crew) -> None:
    order, builder = Order(), Dispatcher.builder().threads(1)
    for number in range(50):
        builder.queue(crew.queue(f"q{number}", 1, 2)).handler(order.of(f"q{number}"))
    dispatcher = crew.begin(builder)
    assert Counter(order.first(100)) == {f"q{number}": 2 for number in range(50)}
    assert len(dispatcher.threads) == 1 + 1 + 4 + 1


def test_many_queues_need_no_thread_each_and_those_with_messages_are_all_handled(crew: Crew) -> None:
    order, builder = Order(), Dispatcher.builder()
    before = threading.active_count()
    for number in range(200):
        bodies = range(20) if number % 20 == 0 else ()
        builder.queue(crew.queue(f"q{number}", *bodies)).handler(order.of(f"q{number}"))
    crew.begin(builder)
    assert Counter(order.first(200)) == {f"q{number}": 20 for number in range(0, 200, 20)}
    assert threading.active_count() - before <= 8 + 4 + 2


def test_while_a_handler_runs_none_of_fifty_queues_hoards_a_message_for_its_slot(crew: Crew) -> None:
    gate, builder = Gate(), Dispatcher.builder().threads(1)
    queues = [crew.queue(f"q{number}", *range(10)) for number in range(50)]
    for queue in queues:
        builder.queue(queue).handler(gate)
    crew.begin(builder)
    gate.when_entered()
    for _ in range(2):
        for queue in queues:
            look_around(queue)
    assert sum(queue.stats.received for queue in queues) == 1
    gate.open.set()
    gate.when_entered(499)


def test_idle_slots_are_lent_at_once_to_the_one_queue_that_has_messages(crew: Crew) -> None:
    busy, idle, gate = crew.queue("busy", *range(8)), crew.queue("idle"), Gate()
    builder = Dispatcher.builder().threads(4).queue(idle, weight=100).handler(lambda _: None)
    crew.begin(builder.queue(busy).handler(gate))
    gate.when_entered(4)
    assert (len(gate.threads), busy.stats.received) == (4, 4)
    gate.open.set()
    gate.when_entered(4)


def test_under_load_turns_follow_the_weights(crew: Crew) -> None:
    """All messages wait for the one slot before it takes the first."""
    gate, order = Gate(), Order()
    first, heavy, light = crew.queue("first", 1), crew.queue("heavy", *range(160)), crew.queue("light", *range(160))
    dispatcher = crew.begin(Dispatcher.builder().threads(1).queue(first).handler(gate))
    gate.when_entered()
    dispatcher.add_queue(heavy, order.of("heavy"), weight=3, backlog=160)
    dispatcher.add_queue(light, order.of("light"), backlog=160)
    while sum(len(one.waiting) for one in dispatcher._subscriptions) < 320:  # noqa: SLF001 - claims count earlier
        look_around(heavy)
        look_around(light)
    gate.open.set()
    turns = Counter(order.first(200))
    assert turns["heavy"] == pytest.approx(150, rel=0.05)
    assert turns["light"] == pytest.approx(50, rel=0.05)


class Claims:
    """The claims of one queue, made by the test, whose messages are handled as soon as they come."""

    def __init__(self, free: FreeSlots, clock: TimeMachine, *, weight: int) -> None:
        prefetch = AdaptivePrefetch(1, SECOND, None)
        self.woken = 0
        self.credit = ClaimCredit(
            free,
            ReadyDeliveries(clock, prefetch, None),
            prefetch,
            weight=weight,
            wake=lambda: setattr(self, "woken", 1),
        )


def test_a_free_slot_is_offered_by_weight_to_the_queues_that_were_refused_and_to_one_at_a_time(
    clock: TimeMachine,
) -> None:
    free = FreeSlots()
    heavy, light = Claims(free, clock, weight=3), Claims(free, clock, weight=1)
    turns: Counter[int] = Counter()
    for _ in range(400):
        assert (heavy.credit.credit(), light.credit.credit()) == (0, 0)
        free.add_free()
        [woken] = [one for one in (heavy, light) if one.woken]
        woken.woken = 0
        turns[woken.credit.weight] += 1
        assert woken.credit.credit() == 1
        assert (heavy if woken is light else light).credit.credit() == 0
        woken.credit.arrived(1)
        free.take_free()
    assert turns == {3: 300, 1: 100}


def test_a_slot_promised_to_a_queue_that_finds_nothing_is_offered_to_the_next(clock: TimeMachine) -> None:
    free = FreeSlots()
    first, second = Claims(free, clock, weight=1), Claims(free, clock, weight=1)
    free.add_free()
    assert (first.credit.credit(), second.credit.credit()) == (1, 0)
    assert second.woken == 0
    first.credit.end_promise()
    assert second.woken == 1
    assert second.credit.credit() == 1


def test_a_queue_in_which_nothing_is_due_is_offered_no_slot_until_it_asks_again(clock: TimeMachine) -> None:
    free = FreeSlots()
    idle, busy = Claims(free, clock, weight=1), Claims(free, clock, weight=1)
    assert (idle.credit.credit(), busy.credit.credit()) == (0, 0)
    idle.credit.end_promise(wants=False)
    free.add_free()
    assert (idle.woken, busy.woken) == (0, 1)
    assert (busy.credit.credit(), idle.credit.credit()) == (1, 0)
    busy.credit.end_promise()
    assert idle.woken == 1


def test_claims_may_rest_once_more_after_their_queue_was_closed(crew: Crew) -> None:
    queue = crew.queue("mail")
    dispatcher = Dispatcher.builder().queue(queue).handler(print).build()
    [subscription] = dispatcher._monitor.subscriptions  # noqa: SLF001 - no thread, so that the order is certain
    queue.close()
    subscription.waiting.end_promises()


def test_threads_of_a_queue_limit_how_many_of_its_handlers_run_and_leave_the_other_slots_to_others(crew: Crew) -> None:
    limited, other, gate, others = crew.queue("limited", *range(6)), crew.queue("other", *range(2)), Gate(), Gate()
    builder = Dispatcher.builder().threads(4).queue(limited, threads=2).handler(gate)
    dispatcher = crew.begin(builder.queue(other).handler(others))
    gate.when_entered(2)
    others.when_entered(2)
    look_around(limited)
    assert (len(gate.bodies), limited.stats.received) == (2, 2)
    gate.open.set()
    others.open.set()
    gate.when_entered(4)
    dispatcher.drain(None)
    assert limited.counts().total == 0


def test_without_a_total_the_slots_are_the_sum_of_what_the_queues_were_given(crew: Crew) -> None:
    def handlers(**threads: int | None) -> int:
        builder = Dispatcher.builder()
        for name, count in threads.items():
            builder.queue(crew.queue(name), threads=count).handler(print)
        dispatcher = crew.begin(builder)
        return sum(thread.name.startswith("astyqueue:handle:") for thread in dispatcher.threads)

    assert handlers(one=2, two=3) == 5
    assert handlers(one=2, two=None) == 2 + 8
    assert handlers(one=None, two=None) == 8


@pytest.mark.parametrize("options", [{"weight": 0}, {"weight": 1.5}, {"weight": 1_001}, {"threads": 0}])
def test_weights_and_limits_out_of_bounds_are_refused(crew: Crew, options: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        Dispatcher.builder().queue(crew.queue("one"), **options)
    with pytest.raises(BadSetting):
        Dispatcher.builder().threads(0)
    dispatcher = crew.begin(Dispatcher.builder().queue(crew.queue("two")).handler(print))
    with pytest.raises(BadSetting):
        dispatcher.add_queue(crew.queue("three"), print, **options)


def test_stuck_handlers_of_all_queues_count_against_the_slots_they_share(crew: Crew) -> None:
    gate, builder = Gate(), Dispatcher.builder().threads(2).max_stuck(2)
    queues = [crew.queue(name, 1, max_attempts=1) for name in ("one", "two")]
    for queue in queues:
        builder.queue(queue).handler(gate, timeout="5s")
    dispatcher = builder.build()
    crew.started.append(dispatcher)
    with ThreadPoolExecutor(1) as running:
        outcome = running.submit(dispatcher.run)
        try:
            gate.when_entered(2)
            crew.clock.advance("5s")
            error = outcome.exception(DEADLINE)
        finally:
            dispatcher.stop(wait=False)
    assert isinstance(error, HandlersStuck)
    assert (error.stuck, error.threads) == (2, 2)
    gate.open.set()


def test_a_queue_that_is_shut_again_is_counted_out_once(clock: TimeMachine) -> None:
    slots = FreeSlots()
    slots.add_free(8)

    def credit() -> ClaimCredit:
        prefetch = AdaptivePrefetch(8, 60 * SECOND)
        return ClaimCredit(slots, ReadyDeliveries(clock, prefetch, None), prefetch, weight=1, wake=lambda: None)

    first, second, leaving = credit(), credit(), credit()
    assert first.credit() == 1  # not known to have messages: one slot at first, where others may need them
    first.end_promise()
    for _ in range(2):  # the supervising thread looks again while its last handler runs
        leaving.shut()
    assert second.credit() == 1
