"""Whatever one message, a hook, a factory or a log line brings up costs no thread, and no other message its turn."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.handlers.handler import Call
from astyqueue.dispatch.running_executions import Execution, ExecutionsUnderWay
from astyqueue.dispatch.slots import SlotPool
from astyqueue.errors import ThreadsDied
from astyqueue.model.envelope import FORMAT
from astyqueue.protocol.layout.columns import message_name
from astyqueue.protocol.steps import Request
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.hooks import Hook
from astyqueue.store import Batch, Put
from astyqueue.testing import Faulty, TimeMachine
from tests.support.places import ONE_ROW, Place
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Stage

WORKER = logging.getLogger("astyqueue.worker")


def handle_all(stage: Stage, handler: Call, good: int, *, threads: int = 2) -> None:
    """Have messages handled until the good ones, numbers, are done; all threads of the dispatcher must be alive."""
    done = threading.Semaphore(0)

    def handle(delivery: Delivery) -> None:
        handler(delivery)
        if isinstance(delivery.body, int):
            done.release()

    dispatcher = stage.start(handle, threads=threads)
    for _ in range(good):
        assert done.acquire(timeout=DEADLINE)
    assert dispatcher.running
    assert all(thread.is_alive() for thread in dispatcher.threads)
    assert len(dispatcher.threads) == threads + 3
    dispatcher.drain(None)


def put(stage: Stage, value: bytes) -> None:
    """Put this into the store as a message, as some other program might."""
    id_ = stage.queue.core.process.id_at(stage.queue.clock.now())
    stage.queue.store.send(Batch("emails:0:0", (Put(message_name(0, id_), FORMAT + value),)))


ODD = [
    b'[%d,-62135647200000000,null,null,null,null,null,"a date before the year 1"]',
    b'[%d,0,null,"x",null,null,null,"headers that are text"]',
    b'[%d,0,null,["x"],null,null,null,"headers that are a list"]',
    b'[%d,0,null,{"task":["x"]},null,null,null,"a task that is a list"]',
]


@pytest.mark.parametrize("value", ODD, ids=lambda value: value.split(b'"')[-2].decode())
def test_a_message_that_holds_something_odd_costs_no_thread(stage: Stage, value: bytes) -> None:
    stage.queue.configure(history="all")
    now = stage.queue.clock.now()
    for _ in range(2):
        put(stage, value % now)
    stage.queue.send_many(range(4))
    handle_all(stage, lambda _: None, good=4)


@pytest.fixture
def mute() -> Iterator[None]:
    """A program's logging that fails over every line of a worker."""

    def refuse(_: logging.LogRecord) -> bool:
        message = "not this line"
        raise RuntimeError(message)

    WORKER.addFilter(refuse)
    WORKER.setLevel(logging.DEBUG)
    yield
    WORKER.removeFilter(refuse)
    WORKER.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("mute")
def test_a_log_line_that_cannot_be_written_fails_no_message(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    stage.queue.send_many(range(10))
    handle_all(stage, lambda _: None, good=10)
    assert stage.heard.count("acked") == 10
    assert "not this line" in capfd.readouterr().err


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_a_hook_that_raises_anything_costs_no_thread(stages: Stages, error: type[BaseException]) -> None:
    class Broken(Hook):
        def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:  # noqa: ARG002 - as said
            if delivery.body == "bad":
                raise error

        def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:  # noqa: ARG002 - as said
            raise error

    stage = stages(hooks=[Broken()])
    stage.queue.send_many(["bad", "bad", "bad", *range(4)])
    handle_all(stage, lambda _: None, good=4)


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_a_factory_that_raises_anything_is_a_failed_attempt(stages: Stages, error: type[BaseException]) -> None:
    def factory(name: str) -> Call:
        if name == "bad":
            raise error
        return lambda _: None

    stage = stages(max_attempts=1)
    for task in ("bad", "bad", "good"):
        stage.queue.send(task, headers={"task": task})
    dispatcher = stage.begin(Dispatcher.builder().queue(stage.queue, threads=1).handlers(factory).build())
    assert stage.when_settled(3) == {"rejected": 2, "acked": 1}
    assert all(thread.is_alive() for thread in dispatcher.threads)
    assert {letter.reason for letter in stage.queue.dead_letters()} == {error.__name__}


def test_a_factory_that_fails_before_the_start_for_a_task_known_in_advance_is_asked_again_for_its_messages(
    stage: Stage,
) -> None:
    asked: list[str] = []

    def factory(name: str) -> Call:
        asked.append(name)
        if len(asked) == 1:
            raise ConnectionError
        return lambda _: None

    dispatcher = Dispatcher.builder().queue(stage.queue).handlers(factory, tasks=["mail"]).build()
    assert asked == ["mail"]
    stage.begin(dispatcher)
    stage.queue.send("one", headers={"task": "mail"})
    assert stage.when_settled(1) == {"acked": 1}


def test_a_handler_thread_that_dies_is_replaced_and_the_log_says_so(
    stages: Stages, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stages()
    done = threading.Event()
    dispatcher = Dispatcher.builder().queue(stage.queue).handler(lambda _: done.set(), threads=1).build()
    executions = dispatcher._subscriptions[0].executions  # noqa: SLF001 - nothing is known that ends a thread
    carry_out = executions.carry_out

    def die_once(delivery: Delivery) -> None:
        monkeypatch.setattr(executions, "carry_out", carry_out)
        raise MemoryError(delivery)

    monkeypatch.setattr(executions, "carry_out", die_once)
    stage.begin(dispatcher)
    stage.queue.send("fatal")
    stage.when(lambda: stage.stats.received == 1)
    stage.queue.send("next")
    assert done.wait(DEADLINE)
    dispatcher.stop()
    [told] = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert told.startswith('thread_died queue=emails error="MemoryError')
    assert len(dispatcher._plan.pools.threads) == 1  # noqa: SLF001 - the one that died is not kept


def test_a_thread_that_cannot_be_started_in_the_place_of_one_that_died_is_tried_again(
    stages: Stages, clock: TimeMachine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, refused, handled = stages(clock), threading.Event(), threading.Event()
    dispatcher = Dispatcher.builder().queue(stage.queue).handler(lambda _: handled.set(), threads=1).build()
    executions, start = dispatcher._subscriptions[0].executions, threading.Thread.start  # noqa: SLF001 - as above

    def die(_: Delivery) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(threading.Thread, "start", refuse)
        raise MemoryError

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "astyqueue:handle:again" and not refused.is_set():
            refused.set()
            message = "can't start new thread"
            raise RuntimeError(message)
        start(thread)

    monkeypatch.setattr(executions, "carry_out", die)
    stage.begin(dispatcher)
    stage.queue.send_many(["fatal", "next"])
    assert refused.wait(DEADLINE)
    clock.when_waiting(3)
    clock.advance("1s")
    assert handled.wait(DEADLINE)
    dispatcher.drain(None)
    assert 'supervision_failed error="RuntimeError: can\'t start new thread"' in caplog.messages


@pytest.mark.parametrize("batch", [None, (2, "1h")])
def test_the_messages_of_a_handler_thread_that_died_are_handed_out_again(
    stages: Stages, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch, batch: tuple[int, str] | None
) -> None:
    stage, begin = stages(clock, lease="1m", **ONE_ROW), ExecutionsUnderWay.begin
    failed, handled = threading.Event(), threading.Semaphore(0)

    def begins(under_way: ExecutionsUnderWay, delivery: Delivery, now: int) -> Execution | None:
        if delivery.body == "two" and not failed.is_set():
            failed.set()
            raise MemoryError
        return begin(under_way, delivery, now)

    monkeypatch.setattr(ExecutionsUnderWay, "begin", begins)
    stage.queue.send_many(["one", "two"], headers={"task": "t"})
    builder = Dispatcher.builder().queue(stage.queue, threads=1, backlog=2)
    dispatcher = stage.begin(builder.handler(lambda _: handled.release(), task="t", batch=batch).build())
    assert failed.wait(DEADLINE)
    left = 1 if batch else 2
    for _ in range(500):  # the thread may die only after a move of the clock
        left -= handled.acquire(timeout=0.02)
        if not left:
            break
        clock.advance("10s")
    dispatcher.drain(None)
    assert stage.stats.acked == 2


def test_a_drain_ends_while_no_thread_can_be_started_in_the_place_of_one_that_died(
    still: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()
    dispatcher = Dispatcher.builder().queue(still.queue).handler(print, threads=2).build()

    def die(_: Delivery) -> None:
        monkeypatch.setattr(SlotPool, "_start_slot", refuse)
        raise MemoryError

    def refuse(_pool: SlotPool, _name: str) -> None:
        refused.set()
        message = "can't start new thread"
        raise RuntimeError(message)

    monkeypatch.setattr(dispatcher._subscriptions[0].executions, "carry_out", die)  # noqa: SLF001 - as above
    still.begin(dispatcher)
    still.queue.send("fatal")
    assert refused.wait(DEADLINE)
    dispatcher.drain(None)
    assert not dispatcher.running


def test_handler_threads_that_die_again_and_again_end_the_dispatcher_with_an_error(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stages()
    dispatcher = Dispatcher.builder().queue(stage.queue).handler(print, threads=2).build()

    def die(_: Delivery) -> None:
        raise MemoryError

    monkeypatch.setattr(dispatcher._subscriptions[0].executions, "carry_out", die)  # noqa: SLF001 - as above
    stage.started.append(dispatcher)
    stage.queue.send_many(range(20))
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(dispatcher.run)
        try:
            error = running.exception(DEADLINE)
        finally:
            dispatcher.stop(wait=False)
    assert isinstance(error, ThreadsDied)
    assert not dispatcher.running


def test_a_mistake_in_a_program_is_reported_with_its_traceback_and_the_dispatcher_goes_on(
    place: Place, stages: Stages, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    class Mistaken(Faulty):
        over = threading.Event()
        made = threading.Event()

        def perform(self, request: Request) -> object:
            if threading.current_thread().name.startswith("astyqueue:claim:") and not self.over.is_set():
                self.made.set()
                return len(1)  # type: ignore[arg-type]  # that is the mistake
            return super().perform(request)

    store = Mistaken(place.store(clock))
    stage = stages(clock, store)
    stage.queue.send("one")
    stage.start(lambda _: None, threads=1)
    assert store.made.wait(DEADLINE)
    clock.when_waiting(3)
    store.over.set()
    clock.advance("1s")
    assert stage.when_settled(1) == {"acked": 1}
    [traced] = [record for record in caplog.records if record.exc_info]
    assert traced.levelno == logging.ERROR
    assert traced.getMessage() == "unexpected_error queue=emails"
