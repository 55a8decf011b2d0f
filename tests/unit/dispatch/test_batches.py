"""Handlers that get many deliveries in one call, each of which is settled apart."""

from __future__ import annotations

import asyncio
import threading

import pytest

from astyqueue import aio
from astyqueue.dispatch.builder import DispatcherBuilder
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.execution.batch_execution import BatchExecutions
from astyqueue.dispatch.execution.delivery_execution import DeliveryOutcome, HandlerExecutions
from astyqueue.dispatch.handlers.handler import Batch, BatchCall, Call, Handler
from astyqueue.dispatch.running_executions import BegunExecution
from astyqueue.dispatch.slots import SlotPool
from astyqueue.errors import BadSetting
from astyqueue.queue.connection import connect
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.support.places import Place
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Stage
from tests.unit.dispatch.test_outcomes import reasons


class Batches:
    """A batch handler, and the sizes of the batches that it got."""

    def __init__(self) -> None:
        self.came = threading.Semaphore(0)
        self.bodies: list[list[object]] = []

    def __call__(self, deliveries: list[Delivery]) -> None:
        self.bodies.append([delivery.body for delivery in deliveries])
        self.came.release()

    def when_called(self) -> None:
        assert self.came.acquire(timeout=DEADLINE)


def built(stage: Stage, call: BatchCall, size: int, within: str, **options: object) -> DispatcherBuilder[Dispatcher]:
    return Dispatcher.builder().queue(stage.queue).handler(call, batch=(size, within), **options)  # type: ignore[arg-type]  # as the test says


@pytest.mark.every_store
def test_a_batch_is_complete_with_its_size(stage: Stage) -> None:
    batches = Batches()
    stage.queue.send_many(range(250))
    dispatcher = stage.begin(built(stage, batches, 100, "1h").build())
    for _ in range(2):
        batches.when_called()
    stage.when(lambda: stage.stats.acked == 200)
    dispatcher.drain(None)
    assert [len(bodies) for bodies in batches.bodies[:2]] == [100, 100]


def test_a_batch_is_complete_some_time_after_its_first_delivery(stage: Stage) -> None:
    batches = Batches()
    dispatcher = stage.begin(built(stage, batches, 100, "50ms").build())
    stage.queue.send_many(range(3))
    stage.when(lambda: stage.stats.acked == 3)
    dispatcher.drain(None)
    assert [body for bodies in batches.bodies for body in bodies] == [0, 1, 2]


def test_a_drain_handles_what_was_gathered_at_once(stage: Stage) -> None:
    batches = Batches()
    dispatcher = stage.begin(built(stage, batches, 100, "1h").build())
    stage.queue.send("one")
    stage.when(lambda: stage.stats.received == 1)
    dispatcher.drain(None)
    assert stage.stats.acked + stage.stats.released == 1
    assert batches.bodies == ([["one"]] if stage.stats.acked else [])


def test_a_batch_handler_settles_some_and_its_error_fails_the_others(stage: Stage) -> None:
    def handle(deliveries: list[Delivery]) -> None:
        deliveries[0].ack()
        deliveries[1].reject("unwanted")
        message = "the rest"
        raise ValueError(message)

    stage.queue.send_many(range(4))
    dispatcher = stage.begin(built(stage, handle, 4, "1h", max_attempts=1).build())
    stage.when_settled(4)
    dispatcher.drain(None)
    assert sorted(map(str, stage.heard.outcomes)) == [
        "(0, 'acked')",
        "(1, 'rejected')",
        "(2, 'rejected')",
        "(3, 'rejected')",
    ]
    assert sorted(reason for _, reason, _ in reasons(stage)) == ["ValueError: the rest"] * 2 + ["unwanted"]


def test_batches_go_beside_handlers_of_single_messages(stage: Stage) -> None:
    batches, seen = Batches(), []
    for number in range(6):
        stage.queue.send(number, headers={"task": "batched" if number % 2 else "single"})
    builder = built(stage, batches, 3, "1h", task="batched")
    dispatcher = stage.begin(builder.handler(lambda one: seen.append(one.body), task="single").build())
    stage.when_settled(6)
    dispatcher.drain(None)
    assert (sorted(seen), [sorted(map(str, bodies)) for bodies in batches.bodies]) == ([0, 2, 4], [["1", "3", "5"]])


def test_a_batch_past_its_timeout_fails_each_of_its_messages(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, lease="1h", max_attempts=1)
    entered, go_on = threading.Event(), threading.Event()

    def handle(_: list[Delivery]) -> None:
        entered.set()
        assert go_on.wait(DEADLINE)

    stage.queue.send_many(range(3))
    dispatcher = stage.begin(built(stage, handle, 3, "1h", timeout="5s").build())
    assert entered.wait(DEADLINE)
    clock.advance("5s")
    stage.when_settled(3)
    go_on.set()
    dispatcher.drain(None)
    assert stage.heard.count("rejected") == 3


def test_what_cannot_be_is_refused(still: Stage) -> None:
    with pytest.raises(BadSetting, match=r"handles batches.*leave out kind"):
        built(still, Batches(), 10, "1s", kind="process")
    with pytest.raises(BadSetting, match="size of a batch"):
        built(still, Batches(), 0, "1s")


@pytest.mark.every_store
def test_an_async_batch_handler_runs_on_the_event_loop_and_its_deliveries_are_awaited(stage: Stage) -> None:
    loops, bodies = set(), []

    async def handle(deliveries: list[aio.Delivery]) -> None:
        loops.add(id(asyncio.get_running_loop()))
        bodies.append([delivery.body for delivery in deliveries])
        await deliveries[0].reject("unwanted")

    stage.queue.send_many(range(6))
    dispatcher = stage.begin(built(stage, handle, 3, "1h").build())
    stage.when_settled(6)
    dispatcher.drain(None)
    assert (len(loops), [len(each) for each in bodies]) == (1, [3, 3])
    assert (stage.heard.count("acked"), stage.heard.count("rejected")) == (4, 2)


def test_an_async_batch_past_its_timeout_is_cancelled_once_and_fails_each_of_its_messages(
    stages: Stages, clock: TimeMachine
) -> None:
    stage = stages(clock, lease="1h", max_attempts=1)
    entered, cleaned = threading.Event(), threading.Event()

    async def handle(_: list[aio.Delivery]) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.to_thread(bool)  # a second request to cancel would end this
            cleaned.set()
            raise

    stage.queue.send_many(range(3))
    dispatcher = stage.begin(built(stage, handle, 3, "1h", timeout="5s").build())
    assert entered.wait(DEADLINE)
    clock.advance("5s")
    stage.when_settled(3)
    assert cleaned.wait(DEADLINE)
    dispatcher.drain(None)
    assert [reason for _, reason, _ in reasons(stage)] == ["TimeoutError: no outcome within 5s"] * 3


def test_async_batches_of_a_caller_run_in_its_loop_and_go_back_when_it_cancels_them(place: Place) -> None:
    entered = threading.Event()

    async def handle(deliveries: list[aio.Delivery]) -> None:
        assert asyncio.get_running_loop() is loops[0]
        assert len(deliveries) == 2
        entered.set()
        await asyncio.Event().wait()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        connection = await aio.connect(place.url)
        queue = await connection.queue("emails")
        await queue.send_many([1, 2])
        builder = aio.Dispatcher.builder().queue(queue).handler(handle, batch=(2, "1h"))
        dispatcher = await builder.build()
        await dispatcher.start()
        await asyncio.to_thread(entered.wait, DEADLINE)
        [task] = [one for one in asyncio.all_tasks() if one is not asyncio.current_task() and dispatcher.blocking]
        task.cancel()
        await dispatcher.drain("10s")
        counts = await queue.counts()
        assert (counts.total, counts.dead) == (2, 0)
        await connection.close()

    loops: list[asyncio.AbstractEventLoop] = []
    asyncio.run(serve())


def test_handlers_of_a_factory_get_batches_too(stage: Stage) -> None:
    batches = Batches()

    def made(task: str) -> Handler | None:
        return Handler(task, batches, batch=Batch(3, 3_600 * SECOND)) if task == "insert" else None

    stage.queue.send_many(range(6), headers={"task": "insert"})
    builder = Dispatcher.builder().queue(stage.queue).handlers(made, tasks=["insert"])
    dispatcher = stage.begin(builder.build())
    stage.when_settled(6)
    dispatcher.drain(None)
    assert [len(bodies) for bodies in batches.bodies] == [3, 3]


def test_a_batch_handler_that_nobody_knew_of_gets_a_batch_of_one_first(stage: Stage) -> None:
    batches = Batches()
    stage.queue.send("one", headers={"task": "insert"})
    builder = Dispatcher.builder().queue(stage.queue)
    builder.handlers(lambda task: Handler(task, batches, batch=Batch(2, 3_600 * SECOND)))
    dispatcher = stage.begin(builder.build())
    stage.when_settled(1)
    stage.queue.send_many(["two", "three"], headers={"task": "insert"})
    stage.when_settled(3)
    dispatcher.drain(None)
    assert sorted(map(len, batches.bodies)) == [1, 2]


def test_a_stuck_batch_counts_as_one_handler_and_holds_no_slot_of_the_others(
    stages: Stages, clock: TimeMachine
) -> None:
    stage = stages(clock, lease="1h", max_attempts=1)
    entered, go_on = threading.Event(), threading.Event()

    def handle(_: list[Delivery]) -> None:
        entered.set()
        assert go_on.wait(DEADLINE)

    stage.queue.send_many(range(3))
    builder = built(stage, handle, 3, "1h", timeout="5s").max_stuck(2)
    dispatcher = stage.begin(builder.build())
    assert entered.wait(DEADLINE)
    [running] = dispatcher.presence._workload.running()  # noqa: SLF001 - as it is reported
    assert running.queue == "emails"
    clock.advance("5s")
    stage.when_settled(3)
    clock.advance("5s")
    under_way = dispatcher._subscriptions[0].executions.under_way  # noqa: SLF001 - as its supervisor sees them
    assert (len(under_way.stuck), under_way.slots_held) == (1, 0)
    go_on.set()
    dispatcher.drain(None)
    assert dispatcher.broken_by is None


def test_a_stop_gives_back_what_a_batch_has_gathered(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered, abandoned = threading.Event(), threading.Event()
    dispatcher = built(stage, Batches(), 100, "1h").build()
    subscription = dispatcher._subscriptions[0]  # noqa: SLF001 - to hold its threads where a stop may meet them
    executions = subscription.executions
    [batches] = (line.executions for line in subscription.waiting if isinstance(line.executions, BatchExecutions))
    gather, abandon, begin = batches._gathered, executions.abandon, executions.begin  # noqa: SLF001 - as above

    def gathers(first: Delivery) -> list[Delivery]:
        gathered.set()
        return gather(first)

    def abandons() -> list[DeliveryOutcome]:
        try:
            return abandon()
        finally:
            abandoned.set()

    def begins_late(delivery: Delivery) -> BegunExecution | None:
        assert abandoned.wait(DEADLINE)
        return begin(delivery)

    monkeypatch.setattr(batches, "_gathered", gathers)
    monkeypatch.setattr(executions, "abandon", abandons)
    monkeypatch.setattr(executions, "begin", begins_late)
    stage.begin(dispatcher)
    stage.queue.send_many(range(3))
    assert gathered.wait(DEADLINE)
    dispatcher.stop()
    assert stage.queue.counts().in_flight == 0


def test_a_line_of_batches_that_a_last_claim_makes_gathers_nothing_and_its_thread_ends(stage: Stage) -> None:
    with connect("memory://") as connection:
        connection.queue("emails").send("one")
        builder = Dispatcher.builder().queues("e*", connection).handler(Batches(), task="t", batch=(100, "1h"))
        dispatcher = stage.begin(builder.build())
        lines = dispatcher._subscriptions[0].waiting  # noqa: SLF001 - a claim has this line made
        dispatcher.stop()
        line = lines._line("batch t")  # noqa: SLF001 - as above
        assert isinstance(line.executions, BatchExecutions)
        assert isinstance(line.pool, SlotPool)
        for thread in line.pool.threads:
            thread.join(DEADLINE)
        assert line.pool.ended
        assert line.executions._shut  # noqa: SLF001 - it waits for no more deliveries


def test_an_async_batch_that_a_stop_gives_up_before_it_begins_is_not_called(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    called, abandoned = threading.Event(), threading.Event()

    async def handle(_: list[aio.Delivery]) -> None:
        called.set()

    dispatcher = built(stage, handle, 1, "0s").build()
    [line] = dispatcher._subscriptions[0].waiting  # noqa: SLF001 - to hold its thread where a stop may meet it
    batches = line.executions
    assert isinstance(batches, BatchExecutions)
    perform = batches._perform  # noqa: SLF001 - as above

    def performs_late(handling: HandlerExecutions, executions: list[BegunExecution]) -> BaseException | None:
        dispatcher.stop(wait=False)
        assert abandoned.wait(DEADLINE)
        return perform(handling, executions)

    monkeypatch.setattr(batches, "_perform", performs_late)
    dispatcher.when_finished(abandoned.set)
    stage.begin(dispatcher)
    stage.queue.send("one", headers={"task": "t"})
    assert abandoned.wait(DEADLINE)
    for thread in dispatcher.threads:
        if ":handle" in thread.name:
            thread.join(DEADLINE)
    assert not called.is_set()


def yielding(_: object) -> object:
    return (number for number in range(3))


async def yielding_later(_: object) -> object:
    return yielding(_)


@pytest.mark.parametrize(
    ("handler", "batch"), [(yielding, (2, "1h")), (yielding_later, (2, "1h")), (yielding_later, None)]
)
def test_whatever_runs_a_handler_a_result_that_shows_that_no_work_was_done_fails_its_messages(
    stages: Stages, handler: Call, batch: tuple[int, str] | None
) -> None:
    stage = stages(max_attempts=1)
    stage.queue.send_many(["one", "two"])
    stage.start(handler, batch=batch)
    assert stage.when_settled(2) == {"rejected": 2}
    why = "TypeError: the handler returned generator, so no work was done: await it, or iterate over it"
    assert [letter.reason for letter in stage.queue.dead_letters()] == [why] * 2
