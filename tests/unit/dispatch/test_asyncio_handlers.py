"""`async def` handlers: thousands on one event loop, cancelled when their time is over, each settled once."""

from __future__ import annotations

import asyncio
import functools
import logging
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from astyqueue import MessageQueue, aio
from astyqueue.clock import SystemClock
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.handlers.handler import AsyncCall, Call
from astyqueue.errors import BadSetting, HandlersStuck, Reject, Retry, Snooze
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Gate, Stage
from tests.unit.dispatch.test_outcomes import reasons
from tests.unit.dispatch.test_stuck import Lines, lines

__all__ = ["lines"]

Handle = Callable[[aio.Delivery], Awaitable[object]]


async def turn() -> None:
    """Let the other coroutines go on."""
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    await event.wait()


class AsyncGate:
    """An async handler that signals that it was entered, and waits to be let go by another thread."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.cancelled = threading.Semaphore(0)
        self.threads: set[threading.Thread] = set()
        self._open: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, _: aio.Delivery) -> None:
        self._open = self._open or asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.threads.add(threading.current_thread())
        self.entered.release()
        try:
            await self._open.wait()
        except asyncio.CancelledError:
            self.cancelled.release()
            raise

    def when_entered(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=DEADLINE)

    def when_cancelled(self) -> None:
        assert self.cancelled.acquire(timeout=DEADLINE)

    def open(self) -> None:
        assert self._loop is not None
        assert self._open is not None
        self._loop.call_soon_threadsafe(self._open.set)


class Deaf(AsyncGate):
    """One that takes no notice of being cancelled."""

    async def __call__(self, delivery: aio.Delivery) -> None:
        while True:
            try:
                await super().__call__(delivery)
            except asyncio.CancelledError:
                continue
            return


@pytest.mark.every_store
def test_messages_are_acked_when_their_coroutine_ends(stage: Stage) -> None:
    seen: list[object] = []

    async def handle(delivery: aio.Delivery) -> None:
        await turn()
        seen.append(delivery.body)

    stage.queue.send_many(range(20))
    dispatcher = stage.start(handle)
    assert stage.when_settled(20) == {"acked": 20}
    dispatcher.drain(None)
    assert sorted(map(str, seen)) == sorted(map(str, range(20)))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (LookupError("no such address"), "rejected"),
        (Reject("no longer wanted"), "rejected"),
        (Retry("1h"), "rejected"),
        (Snooze("1h"), "released"),
        (SystemExit(3), "rejected"),
        (KeyboardInterrupt(), "rejected"),
        (asyncio.CancelledError(), "rejected"),
    ],
)
def test_an_error_decides_the_outcome_as_in_a_thread(stage: Stage, error: BaseException, outcome: str) -> None:
    async def handle(delivery: aio.Delivery) -> None:
        await turn()
        if delivery.body == "bad":
            raise error

    stage.queue.send_many(["bad", "good"])
    dispatcher = stage.start(handle, max_attempts=1)
    stage.when_settled(2)
    dispatcher.drain(None)
    assert sorted(map(str, stage.heard.outcomes)) == [f"('bad', '{outcome}')", "('good', 'acked')"]


def test_ten_thousand_are_in_flight_in_one_process() -> None:
    count = 10_000
    gate = AsyncGate()
    clock = SystemClock()
    with MessageQueue.builder().store(MemoryStore(clock)).clock(clock).name("emails").build() as queue:
        queue.send_many(range(count))
        with Dispatcher.builder().queue(queue).handler(gate).coroutines(count).build() as dispatcher:
            gate.when_entered(count)
            assert len(gate.threads) == 1
            assert queue.stats.acked == 0
            gate.open()
            dispatcher.drain(None)
        assert queue.stats.acked == count


def test_no_more_are_in_flight_than_allowed(stage: Stage) -> None:
    running, most = 0, 0

    async def handle(_: aio.Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await turn()
        running -= 1

    stage.queue.send_many(range(200))
    builder = Dispatcher.builder().queue(stage.queue).handler(handle).coroutines(7)
    dispatcher = stage.begin(builder.build())
    stage.when_settled(200)
    dispatcher.drain(None)
    assert most == 7


def test_a_coroutine_past_its_timeout_is_cancelled_and_its_attempt_has_failed(
    stages: Stages, clock: TimeMachine, lines: Lines
) -> None:
    stage = stages(clock, lease="1h", max_attempts=1)
    gate = AsyncGate()
    stage.queue.send("slow")
    dispatcher = stage.start(gate, timeout="5s")
    gate.when_entered()
    clock.advance("5s")
    gate.when_cancelled()
    stage.when_settled(1)
    assert reasons(stage) == [("failed", "TimeoutError: no outcome within 5s", 1)]
    dispatcher.drain(None)
    assert [lines.of(event) for event in ("ended_after_timeout", "stuck", "abandoned")] == [[], [], []]
    assert stage.heard.outcomes == [("slow", "rejected")]


def test_a_coroutine_that_does_not_end_when_it_is_cancelled_counts_as_stuck_after_five_seconds(
    stages: Stages, clock: TimeMachine
) -> None:
    stage = stages(clock, lease="1h", max_attempts=1)
    deaf = Deaf()
    stage.queue.send("slow")
    builder = Dispatcher.builder().queue(stage.queue).handler(deaf, timeout="5s").max_stuck(1)
    dispatcher = stage.begin(builder.build())
    deaf.when_entered()
    clock.advance("5s")
    deaf.when_cancelled()
    stage.when_settled(1)
    assert dispatcher.running
    clock.advance("5s")
    with pytest.raises(HandlersStuck):
        dispatcher.run()
    deaf.open()


def test_stuck_coroutines_end_no_worker_that_has_threads_left(stages: Stages, clock: TimeMachine, lines: Lines) -> None:
    """Four are stuck, and there are only two threads, all of them free; the limit is ten."""
    stage = stages(clock, lease="1h", max_attempts=1)
    deaf = [Deaf() for _ in range(4)]
    builder = Dispatcher.builder().threads(2).queue(stage.queue).max_stuck(10)
    for number, one in enumerate(deaf):
        stage.queue.send(number, headers={"task": f"deaf {number}"})
        builder.handler(one, task=f"deaf {number}", timeout="5s")
    dispatcher = stage.begin(builder.build())
    for one in deaf:
        one.when_entered()
    clock.advance("5s")
    for one in deaf:
        one.when_cancelled()
    stage.when_settled(4)
    clock.advance("5s")
    clock.advance("2m")
    stuck = lines.first("stuck")
    facts = vars(stuck)["facts"]
    assert (stuck.levelno, facts["kind"], facts["hint"].split(":")[0]) == (
        logging.WARNING,
        "asyncio",
        "it was cancelled and goes on",
    )
    assert "threads" not in facts
    assert dispatcher.running
    assert "in __call__" in (stuck.exc_text or "")
    for one in deaf:
        one.open()


def test_a_drain_waits_for_coroutines_and_a_stop_cancels_them(stages: Stages) -> None:
    for stops in (False, True):
        stage = stages()
        gate = AsyncGate()
        stage.queue.send("one")
        dispatcher = stage.start(gate)
        gate.when_entered()
        if stops:
            dispatcher.stop()
            gate.when_cancelled()
            assert stage.heard.outcomes == [("one", "released")]
        else:
            dispatcher.drain(None, wait=False)
            gate.open()
            dispatcher.drain(None)
            assert stage.heard.outcomes == [("one", "acked")]


def test_each_message_has_a_context_of_its_own(stage: Stage) -> None:
    variable: ContextVar[object] = ContextVar("variable")
    seen: list[object] = []

    async def handle(delivery: aio.Delivery) -> None:
        seen.append(variable.get(None))
        variable.set(delivery.body)
        await turn()
        seen.append(variable.get() == delivery.body)

    stage.queue.send_many(range(1, 11))
    dispatcher = stage.start(handle)
    stage.when_settled(10)
    dispatcher.drain(None)
    assert sorted(map(str, seen)) == ["None"] * 10 + ["True"] * 10


@pytest.mark.every_store
def test_a_coroutine_awaits_what_it_does_to_its_delivery(stage: Stage) -> None:
    async def handle(delivery: aio.Delivery) -> None:
        assert await delivery.extend("1h") == delivery.lease_until
        if delivery.body == "ack":
            await delivery.ack()
            assert delivery.settled == "acked"
        else:
            await delivery.reject("unwanted")

    stage.queue.send_many(["ack", "reject"])
    dispatcher = stage.start(handle)
    stage.when(lambda: stage.heard.count("acked") + stage.heard.count("rejected") == 2)
    dispatcher.drain(None)
    assert max(map(str, stage.heard.outcomes)) == "('reject', 'rejected')"
    assert stage.stats.acked == 1


@pytest.mark.parametrize("batch", [None, (1, 0)])
def test_a_handler_that_keeps_the_loop_is_named_with_its_stack(
    stage: Stage, lines: Lines, batch: tuple[int, int] | None
) -> None:
    go_on = threading.Event()

    async def hold_the_loop(_: object) -> None:
        assert go_on.wait(DEADLINE)

    sent = stage.queue.send("one", headers={"task": "mail.send"})
    builder = Dispatcher.builder().queue(stage.queue).handler(hold_the_loop, task="mail.send", batch=batch)
    dispatcher = stage.begin(builder.coroutines(10, blocked_after="50ms").build())
    line = lines.first("blocked")
    go_on.set()
    dispatcher.drain(None)
    facts = vars(line)["facts"]
    assert (facts["queue"], facts["task"], facts["id"]) == ("emails", "mail.send", sent.id)
    assert line.levelno == logging.WARNING
    assert "in hold_the_loop" in str(line.exc_text)
    assert len(lines.of("blocked")) == 1
    assert stage.stats.acked == 1


def test_coroutines_and_threads_work_side_by_side(stage: Stage) -> None:
    threads, coroutines = Gate(), AsyncGate()
    for number in range(3):
        stage.queue.send(number, headers={"task": "in.thread"})
        stage.queue.send(number, headers={"task": "awaited"})
    builder = Dispatcher.builder().queue(stage.queue, threads=3).handler(threads, task="in.thread")
    dispatcher = stage.begin(builder.handler(coroutines, task="awaited").build())
    threads.when_entered(3)
    coroutines.when_entered(3)
    coroutines.open()
    threads.open.set()
    dispatcher.drain(None)
    assert stage.stats.acked == 6


def test_a_factory_may_make_async_handlers_also_of_tasks_that_were_not_named_in_advance(stage: Stage) -> None:
    seen: list[object] = []

    def factory(name: str) -> AsyncCall:
        async def handle(delivery: aio.Delivery) -> None:
            await delivery.extend("1m")
            seen.append(name)

        return handle

    for name in ("known", "unknown", "known", "unknown"):
        stage.queue.send(1, headers={"task": name})
    dispatcher = stage.begin(Dispatcher.builder().queue(stage.queue).handlers(factory, tasks=["known"]).build())
    stage.when(lambda: stage.stats.acked == 4)
    dispatcher.drain(None)
    assert sorted(map(str, seen)) == ["known", "known", "unknown", "unknown"]


async def awaited(_: aio.Delivery) -> None:
    """Nothing."""


def plain(_: Delivery) -> None:
    """Nothing."""


def test_async_middleware_wraps_async_handlers_and_plain_middleware_the_others(stage: Stage) -> None:
    seen: list[str] = []

    async def trace_async(delivery: aio.Delivery, call_next: AsyncCall) -> object:
        seen.append(f"async before {delivery.body}")
        result = await call_next(delivery)
        seen.append(f"async after {delivery.body}")
        return result

    def trace(delivery: Delivery, call_next: Call) -> object:
        seen.append(f"plain {delivery.body}")
        return call_next(delivery)

    stage.queue.send("a", headers={"task": "awaited"})
    stage.queue.send("b", headers={"task": "plain"})
    builder = Dispatcher.builder().queue(stage.queue).handler(awaited, task="awaited").handler(plain, task="plain")
    dispatcher = stage.begin(builder.middleware(trace, trace_async).build())
    stage.when_settled(2)
    dispatcher.drain(None)
    assert sorted(seen) == ["async after a", "async before a", "plain b"]


@pytest.mark.parametrize("async_handler", [True, False])
def test_middleware_that_fits_no_handler_of_a_kind_is_refused(still: Stage, *, async_handler: bool) -> None:
    async def trace_async(delivery: aio.Delivery, call_next: AsyncCall) -> object:
        return await call_next(delivery)

    def trace(delivery: Delivery, call_next: Call) -> object:
        return call_next(delivery)

    builder = Dispatcher.builder().queue(still.queue).handler(awaited if async_handler else plain)
    with pytest.raises(BadSetting, match="no middleware can wrap it"):
        builder.middleware(trace if async_handler else trace_async).build()


class AwaitedObject:
    async def __call__(self, _: aio.Delivery) -> None:
        """Nothing."""


@pytest.mark.parametrize("call", [AwaitedObject(), functools.partial(awaited)])
def test_what_is_async_is_found_out(stage: Stage, call: AsyncCall) -> None:
    stage.queue.send("one")
    dispatcher = stage.start(call)
    assert stage.when_settled(1) == {"acked": 1}
    dispatcher.drain(None)


def test_a_kind_that_a_function_cannot_run_as_is_refused(still: Stage) -> None:
    for call, kind in ((awaited, "thread"), (awaited, "process"), (plain, "asyncio"), (plain, "fibre")):
        with pytest.raises(BadSetting, match="kind"):
            Dispatcher.builder().queue(still.queue).handler(call, kind=kind)


def test_a_coroutine_may_drain_its_dispatcher(stage: Stage) -> None:
    async def handle(_: aio.Delivery) -> None:
        dispatcher.drain(None)

    dispatcher = stage.begin(Dispatcher.builder().queue(stage.queue).handler(handle).build())
    stage.queue.send("one")
    dispatcher.run()
    assert stage.heard.outcomes == [("one", "acked")]


def test_at_the_exit_of_the_interpreter_a_coroutine_of_a_queue_that_joined_late_costs_no_attempt() -> None:
    program = """
        import asyncio, threading
        from astyqueue import Dispatcher, connect
        from astyqueue.queue.hooks import Hook

        class Heard(Hook):
            def after_settle(self, delivery, outcome):
                print(outcome, flush=True)

        began = threading.Event()

        async def handle(_):
            began.set()
            await asyncio.Event().wait()

        connection = connect("memory://", hooks=[Heard()])
        late = connection.queue("late", max_attempts=1)
        dispatcher = Dispatcher.builder().queue(connection.queue("first")).handler(print).build().start()
        dispatcher.add_queue(late, handle)
        late.send("one")
        assert began.wait(20)
    """
    code = [sys.executable, "-c", textwrap.dedent(program)]
    finished = subprocess.run(code, timeout=60, check=False, capture_output=True, text=True)
    assert (finished.returncode, finished.stdout.split()) == (0, ["released"]), finished.stderr
