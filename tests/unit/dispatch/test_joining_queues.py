"""Queues that join a dispatcher and leave it: named, added while it runs, or found by a pattern."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from astyqueue.dispatch.builder import DispatcherBuilder, DispatcherPlan
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.execution.waiting_lines import QueueOptions
from astyqueue.dispatch.handler_monitor import HandlerMonitor
from astyqueue.dispatch.handlers.handler import Call
from astyqueue.dispatch.handlers.handler_registry import GivenHandlers, HandlerRegistry
from astyqueue.dispatch.handlers.middleware import HandlerWrapping
from astyqueue.dispatch.queue_patterns import FoundQueue, PatternWatch, QueuePattern
from astyqueue.dispatch.step_loop import StepLoop, StepTask
from astyqueue.dispatch.subscription import QueueIdentity, Subscription
from astyqueue.errors import BadSetting, Closed, NotFound
from astyqueue.queue.connection import Connection, connect
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.stores.memory import MemoryStore
from tests.unit.dispatch import in_children
from tests.unit.dispatch.stage import DEADLINE, Crew, Gate, Order, Stage


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


def test_a_queue_whose_handler_is_for_a_process_does_not_join_a_dispatcher_without_processes(crew: Crew) -> None:
    dispatcher = crew.begin(Dispatcher.builder().queue(crew.queue("one")).handler(print))
    with pytest.raises(BadSetting, match=r"doing_nothing is for a process, and this dispatcher has none: .processes\("):
        dispatcher.add_queue(crew.queue("two"), in_children.doing_nothing, kind="process")
    assert [queue.name for queue in dispatcher.queues] == ["one"]


def test_a_queue_is_served_once_whatever_object_stands_for_it(crew: Crew) -> None:
    connection = Connection(crew.store, crew.clock)
    crew.queue("one")
    with pytest.raises(BadSetting, match="queue 'one' was given twice"):
        Dispatcher.builder().queue(connection.queue("one")).handler(print).queue(connection.queue("one"))
    dispatcher = crew.begin(Dispatcher.builder().queue(connection.queue("one")).handler(print))
    with pytest.raises(BadSetting, match="queue 'one' is served here already"):
        dispatcher.add_queue(connection.queue("one"), print)


def test_a_queue_is_removed_by_any_object_for_it_and_then_may_be_added_again(crew: Crew, leaves: Leaves) -> None:
    connection, order = Connection(crew.store, crew.clock), Order()
    crew.queue("one", 1)
    dispatcher = crew.begin(Dispatcher.builder().queue(crew.queue("other")).handler(print))
    dispatcher.add_queue(connection.queue("one"), order.of("one"))
    assert order.first(1) == ["one"]
    dispatcher.remove_queue(connection.queue("one"))
    leaves.when_left()
    assert [queue.name for queue in dispatcher.queues] == ["other"]
    with pytest.raises(NotFound, match="queue 'one' is not served here: this dispatcher serves other"):
        dispatcher.remove_queue(connection.queue("one"))
    dispatcher.add_queue(connection.queue("one"), print)


def test_a_pattern_leaves_out_a_queue_that_was_added_by_name_also_after_it_was_removed(
    crew: Crew, leaves: Leaves
) -> None:
    by_pattern, by_name = Order(), Order()
    connection = Connection(crew.store, crew.clock)
    crew.queue("other")
    builder = Dispatcher.builder().queues("mail.*", connection).handler(by_pattern.of("pattern"))
    dispatcher = crew.begin(builder.queue(connection.queue("other")).handler(print))
    dispatcher.add_queue(crew.queue("mail.one", 1), by_name.of("name"))
    assert by_name.first(1) == ["name"]
    crew.queue("mail.two", 1)
    while not by_pattern.queues:
        crew.clock.when_waiting(4).advance("5s")
    assert sorted(queue.name for queue in dispatcher.queues) == ["mail.one", "mail.two", "other"]
    dispatcher.remove_queue(connection.queue("mail.one"))
    leaves.when_left()
    crew.queue("mail.three", 1)
    while len(by_pattern.queues) < 2:
        crew.clock.when_waiting(4).advance("5s")
    assert sorted(queue.name for queue in dispatcher.queues) == ["mail.three", "mail.two", "other"]


def test_queues_of_one_name_in_two_stores_are_two(crew: Crew) -> None:
    order = Order()
    connections = [Connection(store, crew.clock) for store in (crew.store, MemoryStore(crew.clock))]
    builder = Dispatcher.builder()
    for number, connection in enumerate(connections):
        connection.queue("mail.one").send(1)
        builder.queues("mail.*", connection).handler(order.of(f"store {number}"))
    dispatcher = crew.begin(builder)
    assert sorted(order.first(2)) == ["store 0", "store 1"]
    assert [queue.name for queue in dispatcher.queues] == ["mail.one"] * 2


def test_a_queue_that_cannot_be_opened_hides_none_of_a_pattern(crew: Crew, caplog: pytest.LogCaptureFixture) -> None:
    """The first by name has no valid limit; the line names it."""
    order = Order()
    for name in ("mail.bad", "mail.good"):
        crew.queue(name, 1)

    def limit(name: str) -> int:
        return 0 if name == "mail.bad" else 5

    builder = Dispatcher.builder().queues("mail.*", Connection(crew.store, crew.clock), limit=limit)
    dispatcher = crew.begin(builder.handler(order.of("mail")))
    assert order.first(1) == ["mail"]
    assert [queue.name for queue in dispatcher.queues] == ["mail.good"]
    [failed] = [record for record in caplog.records if vars(record).get("event") == "queue_not_joined"]
    assert (vars(failed)["facts"]["queue"], failed.levelno) == ("mail.bad", logging.ERROR)


def test_a_queue_that_is_added_has_all_that_a_builder_gives_one(crew: Crew) -> None:
    order, seen = Order(), Order()
    dispatcher = crew.begin(Dispatcher.builder().queue(crew.queue("one")).handler(print))
    two = crew.queue("two", max_attempts=5)
    for number in range(2):
        two.send(number, headers={"task": "insert"})
    two.send("note", headers={"task": "note"})

    def insert(deliveries: list[Delivery]) -> None:
        order.note(str(len(deliveries)))
        message = "no more than once"
        raise ValueError(message)

    def factory(task: str) -> Call | None:
        return seen.of(task) if task == "note" else None

    dispatcher.add_queue(two, insert, task="insert", batch=(2, "1h"), max_attempts=1, timeout="5m", factory=factory)
    assert (order.first(1), seen.first(1)) == (["2"], ["note"])
    dispatcher.drain(None)
    assert [letter.reason for letter in two.dead_letters()] == ["ValueError: no more than once"] * 2
    with pytest.raises(BadSetting, match="needs a handler"):
        dispatcher.add_queue(crew.queue("three"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kind": "process"}, "no function was given for kind=: give it"),
        ({"task": "one", "batch": (2, "1h")}, "no function was given for task=, batch=: give it"),
        ({"tasks": "one"}, "tasks='one' is one text: give several names, as tasks=\\['one'\\]"),
    ],
)
def test_options_that_would_have_no_effect_on_a_factory_are_refused(
    crew: Crew, options: dict[str, Any], told: str
) -> None:
    dispatcher = crew.begin(Dispatcher.builder().queue(crew.queue("one")).handler(print))
    with pytest.raises(BadSetting, match=told):
        dispatcher.add_queue(crew.queue("two"), factory=lambda _: print, **options)
    assert [queue.name for queue in dispatcher.queues] == ["one"]


def test_names_of_tasks_without_a_factory_to_make_them_are_refused(crew: Crew) -> None:
    dispatcher = crew.begin(Dispatcher.builder().queue(crew.queue("one")).handler(print))
    with pytest.raises(BadSetting, match="tasks= names what a factory makes: give factory="):
        dispatcher.add_queue(crew.queue("two"), print, tasks=["one"])


def test_a_dispatcher_that_ended_takes_no_queue(crew: Crew) -> None:
    dispatcher = crew.begin(Dispatcher.builder().queue(crew.queue("one")).handler(print))
    dispatcher.stop()
    with pytest.raises(Closed, match="build another"):
        dispatcher.add_queue(crew.queue("two"), print)


def test_queues_that_match_a_pattern_join_within_five_seconds_and_leave_when_they_are_dropped(
    crew: Crew, leaves: Leaves, caplog: pytest.LogCaptureFixture
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
    leaves.when_left()  # logged after the queue is gone from the list
    events = [vars(record).get("event") for record in caplog.records]
    assert (events.count("joined"), events.count("left")) == (1, 1)


def test_a_batch_handler_has_a_thread_only_in_those_queues_of_a_pattern_that_have_messages(crew: Crew) -> None:
    handled = threading.Semaphore(0)

    def handle(deliveries: list[Delivery]) -> None:
        handled.release(len(deliveries))

    queues = [crew.queue(f"rows.{number}") for number in range(50)]
    queues[7].send_many(range(4))
    builder = Dispatcher.builder().queues("rows.*", Connection(crew.store, crew.clock)).threads(2)
    dispatcher = crew.begin(builder.handler(handle, batch=(4, "1h")))
    for _ in range(4):
        assert handled.acquire(timeout=DEADLINE)
    assert len(dispatcher.queues) == 50
    assert len(dispatcher.threads) < 20
    dispatcher.drain(None)
    assert [queue.counts().waiting for queue in queues] == [0] * 50


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
    joined: list[QueueIdentity] = []

    def join(found: FoundQueue) -> None:
        joined.append(QueueIdentity.of(found.queue))
        if len(joined) == 1:
            watch.forget(joined[0])

    registry = HandlerRegistry(GivenHandlers(), HandlerWrapping())
    pattern = QueuePattern("mail.*", Connection(crew.store, crew.clock), registry, QueueOptions())
    watch = PatternWatch([pattern], [], join, joined.remove)
    for _ in range(3):
        watch.look()
    assert [queue.name for queue in joined] == ["mail.one"] * 2


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


def test_the_parts_of_a_dispatcher_say_in_a_debugger_what_they_do(crew: Crew) -> None:
    builder: DispatcherBuilder[DispatcherPlan] = DispatcherBuilder(lambda plan: plan)
    plan = builder.queue(crew.queue("one", 3)).handler(print).build()
    [one] = plan.subscriptions
    monitor = HandlerMonitor(plan.pools, crew.clock, None, print)
    assert repr(one) == "<Subscription of one: 0 waiting, 0 running, 0 stuck, not started>"
    monitor.add(one)
    assert repr(monitor) == "<HandlerMonitor of 1 queues, 0 leaving: watches>"
    loop = StepLoop(crew.clock, [one.start(print)])
    assert repr(loop) == "<StepLoop: 1 tasks, 1 ready, 0 resting>"
    assert repr(one).endswith(" 0 stuck, <ClaimLoop of one: claims>>")
    monitor.remove(one)
    monitor.drain(0)
    assert repr(monitor) == "<HandlerMonitor of 1 queues, 1 leaving: drains>"
    one.end_claims()
    assert repr(one).endswith("<ClaimLoop of one: ended>>")
    monitor.finish()
    assert repr(monitor).endswith(": finished>")


def test_a_queue_may_be_removed_before_the_start(crew: Crew, leaves: Leaves) -> None:
    one, two = crew.queue("one", 1), crew.queue("two", 2)
    order = Order()
    builder = Dispatcher.builder().queue(one).handler(order.of("one")).queue(two).handler(order.of("two"))
    dispatcher = builder.build()
    dispatcher.remove_queue(two)
    dispatcher._monitor._let_leave()  # noqa: SLF001 - its thread may look before the others begin
    leaves.when_left()
    crew.started.append(dispatcher.start())
    assert order.first(1) == ["one"]
    assert dispatcher.queues == [one]
    dispatcher.drain(None)
    assert two.counts().waiting == 1


def test_a_queue_that_is_removed_while_another_thread_adds_it_leaves_once_it_has_joined(
    crew: Crew, leaves: Leaves, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = crew.queue("one"), crew.queue("two")
    dispatcher = crew.begin(Dispatcher.builder().queue(one).handler(print))
    remover = threading.Thread(target=dispatcher.remove_queue, args=(two,), daemon=True)
    begin, left_early = Subscription.start, []

    def start(subscription: Subscription, on_end: Callable[[Exception | None], None]) -> StepTask:
        remover.start()
        remover.join(0.05)
        left_early.append(not remover.is_alive())
        return begin(subscription, on_end)

    monkeypatch.setattr(Subscription, "start", start)
    dispatcher.add_queue(two, print)
    leaves.when_left()
    assert left_early == [False]
    assert dispatcher.queues == [one]


def test_threads_whose_queues_have_left_are_not_kept(crew: Crew, leaves: Leaves) -> None:
    dispatcher = crew.begin(Dispatcher.builder().queue(crew.queue("first")).handler(print))
    most = len(dispatcher.threads) + 1
    for number in range(5):
        joined = crew.queue(f"tenant{number}")
        dispatcher.add_queue(joined, print)
        assert len(dispatcher.threads) <= most
        dispatcher.remove_queue(joined)
        leaves.when_left()
        dispatcher.threads[-1 - dispatcher._plan.pools.size].join(DEADLINE)  # noqa: SLF001 - the one that claimed for it


def test_a_dispatcher_that_its_quota_ends_looks_for_no_more_queues(stage: Stage) -> None:
    with connect("memory://") as connection:
        connection.queue("emails").send("one")
        dispatcher = stage.begin(Dispatcher.builder().queues("e*", connection).handler(print).max_messages(1).build())
        dispatcher.run()
        for thread in dispatcher.threads:
            thread.join(DEADLINE)
        assert [thread.name for thread in dispatcher.threads if thread.is_alive()] == []
