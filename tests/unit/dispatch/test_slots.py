"""Slots that all queues of a dispatcher share: whose turn it is, how much is claimed, and who joins or leaves."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue import MessageQueue
from astyqueue.dispatch.builder import DispatcherBuilder
from astyqueue.dispatch.delivery_limits import AdaptivePrefetch
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.handlers import Call, HandlerRegistry
from astyqueue.dispatch.queue_patterns import PatternWatch, QueuePattern
from astyqueue.dispatch.slots import ClaimCredit, FreeSlots, ReadyDeliveries
from astyqueue.dispatch.subscription import QueueOptions
from astyqueue.errors import BadSetting, Closed, HandlersStuck
from astyqueue.queue.connection import Connection
from astyqueue.queue.delivery.base_delivery import Waiter
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.store import Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.dispatch.stage import DEADLINE, Gate


class Order:
    """A handler that notes the queue of each message, and signals each."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self.seen = threading.Semaphore(0)

    def of(self, name: str) -> Call:
        def handle(_: Delivery) -> None:
            self.queues.append(name)
            self.seen.release()

        return handle

    def first(self, count: int) -> list[str]:
        """The queues of the first messages, once that number has been handled."""
        for _ in range(count):
            assert self.seen.acquire(timeout=DEADLINE)
        return self.queues[:count]


class Crew:
    """Queues in one store, and dispatchers that are stopped at the end."""

    def __init__(self, clock: TimeMachine) -> None:
        self.clock = clock
        self.store: Store = MemoryStore(clock)
        self.started: list[Dispatcher] = []

    def queue(self, name: str, *bodies: object, **options: object) -> MessageQueue:
        builder = MessageQueue.builder().store(self.store).clock(self.clock).name(name).options(**options)
        queue = builder.build()
        if bodies:
            queue.send_many(bodies)
        return queue

    def begin(self, builder: DispatcherBuilder[Dispatcher]) -> Dispatcher:
        self.started.append(builder.build())
        return self.started[-1].start()


@pytest.fixture
def crew(clock: TimeMachine) -> Iterator[Crew]:
    made = Crew(clock)
    yield made
    for dispatcher in made.started:
        dispatcher.stop()


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
    while heavy.stats.received + light.stats.received < 320:
        look_around(heavy)
        look_around(light)
    gate.open.set()
    turns = Counter(order.first(200))
    assert turns["heavy"] == pytest.approx(150, rel=0.05)
    assert turns["light"] == pytest.approx(50, rel=0.05)


class Claims:
    """The claims of one queue, made by the test, whose messages are handled as soon as they come."""

    def __init__(self, free: FreeSlots, clock: TimeMachine, *, weight: int) -> None:
        pace = AdaptivePrefetch(1, SECOND, None)
        self.woken = 0
        self.credit = ClaimCredit(
            free, ReadyDeliveries(clock, pace, None), pace, weight=weight, wake=lambda: setattr(self, "woken", 1)
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
    first.credit.rests()
    assert second.woken == 1
    assert second.credit.credit() == 1


def test_a_queue_in_which_nothing_is_due_is_offered_no_slot_until_it_asks_again(clock: TimeMachine) -> None:
    free = FreeSlots()
    idle, busy = Claims(free, clock, weight=1), Claims(free, clock, weight=1)
    assert (idle.credit.credit(), busy.credit.credit()) == (0, 0)
    idle.credit.rests(wants=False)
    free.add_free()
    assert (idle.woken, busy.woken) == (0, 1)
    assert (busy.credit.credit(), idle.credit.credit()) == (1, 0)
    busy.credit.rests()
    assert idle.woken == 1


def test_claims_may_rest_once_more_after_their_queue_was_closed(crew: Crew) -> None:
    queue = crew.queue("mail")
    dispatcher = Dispatcher.builder().queue(queue).handler(print).build()
    [subscription] = dispatcher._supervisor.subscriptions  # noqa: SLF001 - no thread, so that the order is certain
    queue.close()
    subscription.waiting.rests()


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
def test_weights_and_limits_out_of_bounds_are_refused(crew: Crew, options: dict[str, int]) -> None:
    with pytest.raises(BadSetting):
        Dispatcher.builder().queue(crew.queue("one"), **options)
    with pytest.raises(BadSetting):
        Dispatcher.builder().threads(0)
    dispatcher = crew.begin(Dispatcher.builder().queue(crew.queue("two")).handler(print))
    with pytest.raises(BadSetting):
        dispatcher.add_queue(crew.queue("three"), print, **options)


class Leaves(logging.Handler):
    """Signals each queue that has left a dispatcher."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._left = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        if "left" in record.getMessage().split():
            self._left.release()

    def when_left(self) -> None:
        assert self._left.acquire(timeout=DEADLINE)


@pytest.fixture
def leaves(caplog: pytest.LogCaptureFixture) -> Iterator[Leaves]:
    caplog.set_level(logging.INFO)
    handler = Leaves()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def test_queues_join_and_leave_while_a_dispatcher_runs(crew: Crew, leaves: Leaves) -> None:
    """No time passes: a queue has left when its last handler ends."""
    order, gate = Order(), Gate()
    one, two = crew.queue("one", 1), crew.queue("two", *range(3), lease="1h")
    dispatcher = crew.begin(Dispatcher.builder().threads(1).queue(one).handler(order.of("one")))
    assert order.first(1) == ["one"]
    dispatcher.add_queue(two, gate)
    gate.when_entered()
    dispatcher.remove_queue(two)
    gate.open.set()
    leaves.when_left()
    assert dispatcher.queues == [one]
    left = two.counts()
    assert (left.waiting + len(gate.bodies), left.in_flight) == (3, 0)
    one.send("more")
    order.first(1)
    assert order.queues == ["one", "one"]


def test_a_queue_whose_handlers_are_async_has_left_when_the_last_of_them_ends(crew: Crew, leaves: Leaves) -> None:
    entered, may_end = threading.Event(), threading.Event()

    async def handle(_: object) -> None:
        entered.set()
        await asyncio.to_thread(may_end.wait, DEADLINE)

    one, two = crew.queue("one"), crew.queue("two", 1, lease="1h")
    builder = Dispatcher.builder().queue(one).handler(print).queue(two).handler(handle)
    dispatcher = crew.begin(builder)
    assert entered.wait(DEADLINE)
    dispatcher.remove_queue(two)
    one.send("goes on")
    may_end.set()
    leaves.when_left()
    assert (dispatcher.queues, two.counts().total) == ([one], 0)


def test_a_queue_that_has_nothing_leaves_at_once_while_others_are_busy(crew: Crew, leaves: Leaves) -> None:
    gate = Gate()
    one, two = crew.queue("one", 1, lease="1h"), crew.queue("two")
    dispatcher = crew.begin(Dispatcher.builder().threads(2).queue(one).handler(gate).queue(two).handler(print))
    gate.when_entered()
    dispatcher.remove_queue(two)
    leaves.when_left()
    gate.open.set()
    assert dispatcher.queues == [one]


def test_a_dispatcher_that_ended_takes_no_queue(crew: Crew) -> None:
    dispatcher = crew.begin(Dispatcher.builder().queue(crew.queue("one")).handler(print))
    dispatcher.stop()
    with pytest.raises(Closed, match="build another"):
        dispatcher.add_queue(crew.queue("two"), print)


def test_queues_that_match_a_pattern_join_within_five_seconds_and_leave_when_they_are_dropped(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "astyqueue.worker")
    order = Order()
    connection = Connection(crew.store, crew.clock)
    crew.queue("mail.one", 1)
    other = crew.queue("other", 1)
    builder = Dispatcher.builder().queues("mail.*", connection, weight=2).handler(order.of("mail"))
    dispatcher = crew.begin(builder)
    assert order.first(1) == ["mail"]
    assert repr(dispatcher).startswith("<Dispatcher of mail.one:2 with 8 threads")
    two = crew.queue("mail.two", 1)
    while len(order.queues) < 2:  # it joins; what no slot took for two seconds comes again
        crew.clock.when_waiting(4).advance("5s")
    assert order.first(1) == ["mail"]
    assert len(dispatcher.queues) == 2
    two.drop()
    while len(dispatcher.queues) > 1:
        crew.clock.when_waiting(4).advance("1s")
    assert [queue.name for queue in dispatcher.queues] == ["mail.one"]
    assert dispatcher.running
    assert other.counts().waiting == 1
    events = [vars(record).get("event") for record in caplog.records]
    assert (events.count("joined"), events.count("left")) == (1, 1)


def test_a_queue_that_joins_is_logged_before_its_messages(crew: Crew, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "astyqueue.worker")
    order = Order()
    dispatcher = crew.begin(Dispatcher.builder().queue(crew.queue("one")).handler(print))
    dispatcher.add_queue(crew.queue("two", 1), order.of("two"))
    order.first(1)
    dispatcher.drain(None)
    events = [vars(record).get("event") for record in caplog.records]
    assert events.index("ready") < events.index("joined") < events.index("done")


def test_a_queue_that_is_dropped_while_it_joins_joins_again_when_it_is_created_again(crew: Crew) -> None:
    crew.queue("mail.one")
    joined: list[str] = []

    def join(queue: MessageQueue, _: QueuePattern) -> None:
        joined.append(queue.name)
        if len(joined) == 1:
            watch.forget(queue.name)

    pattern = QueuePattern("mail.*", Connection(crew.store, crew.clock), HandlerRegistry(), QueueOptions())
    watch = PatternWatch([pattern], [], join, joined.remove)
    for _ in range(3):
        watch.look()
    assert joined == ["mail.one"] * 2


def test_a_dispatcher_may_begin_before_any_queue_matches_its_pattern(crew: Crew) -> None:
    order = Order()
    dispatcher = crew.begin(
        Dispatcher.builder().queues("mail.*", Connection(crew.store, crew.clock)).handler(order.of("mail"))
    )
    crew.queue("mail.one", 1)
    while not order.queues:  # as above
        crew.clock.when_waiting(3).advance("5s")
    assert order.first(1) == ["mail"]
    assert [queue.name for queue in dispatcher.queues] == ["mail.one"]


def test_stuck_handlers_of_all_queues_count_against_the_slots_they_share(crew: Crew) -> None:
    gate, builder = Gate(), Dispatcher.builder().threads(2).max_stalled(2)
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
