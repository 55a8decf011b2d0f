"""A drain waits for all handlers that run but those that were given up, also one that comes during the start."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading

import pytest

from astyqueue import MessageQueue
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.testing import TimeMachine
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Gate, Stage
from tests.unit.dispatch.test_stuck import Lines, lines

__all__ = ["lines"]


@pytest.mark.parametrize("batch", [None, (1, 0)])
def test_a_drain_does_not_wait_for_a_handler_that_was_given_up(
    stages: Stages, clock: TimeMachine, lines: Lines, batch: tuple[int, int] | None
) -> None:
    stage, gate = stages(clock, lease="1h", max_attempts=1), Gate()
    builder = Dispatcher.builder().queue(stage.queue)
    stage.queue.send("slow", headers={"task": "t"})
    dispatcher = stage.begin(builder.handler(gate.hold, task="t", batch=batch, timeout="5s").build())
    assert gate.entered.acquire(timeout=DEADLINE)
    clock.advance("5s")
    lines.first("timed_out")
    dispatcher.drain(None)
    gate.open.set()
    assert not dispatcher.running


def test_coroutines_that_run_are_waited_for_beside_a_batch_that_was_given_up(
    stages: Stages, clock: TimeMachine, lines: Lines
) -> None:
    stage, began = stages(clock, lease="1h", max_attempts=1), threading.Semaphore(0)
    batch_may_end, may_end = asyncio.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def ignore_cancellation(_: object) -> None:
        began.release()
        while not batch_may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await batch_may_end.wait()

    async def handle(_: object) -> None:
        loops.append(asyncio.get_running_loop())
        began.release()
        await may_end.wait()

    builder = Dispatcher.builder().queue(stage.queue).handler(handle, task="one")
    builder.handler(ignore_cancellation, task="many", batch=(1, 0), timeout="5s")
    stage.queue.send("many", headers={"task": "many"})
    stage.queue.send("one", headers={"task": "one"})
    dispatcher = stage.begin(builder.build())
    for _ in range(2):
        assert began.acquire(timeout=DEADLINE)
    clock.advance("5s")
    lines.first("timed_out")
    assert not dispatcher._plan.pools._coroutine_pool().is_idle()  # noqa: SLF001 - one runs that is not given up
    loops[0].call_soon_threadsafe(may_end.set)
    dispatcher.drain(None)
    loops[0].call_soon_threadsafe(batch_may_end.set)
    assert ("one", "acked") in stage.heard.outcomes


def test_a_signal_handler_that_drains_in_the_middle_of_the_start_does_not_finish_it_early(
    still: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = Dispatcher.builder().queue(still.queue).handler(print).build()
    start, wait, hold = threading.Thread.start, dispatcher._monitor._wait, threading.Event()  # noqa: SLF001 - held below
    finished: list[bool] = []

    def waits() -> None:
        assert hold.wait(DEADLINE)
        wait()

    def starts(thread: threading.Thread) -> None:
        for _ in range(2 if thread.name == "astyqueue:monitor" and not finished else 0):
            dispatcher.drain(wait=False)
            finished.append(dispatcher._monitor.finished.is_set())  # noqa: SLF001 - what `run` waits for
        start(thread)

    monkeypatch.setattr(dispatcher._monitor, "_wait", waits)  # noqa: SLF001 - as above
    monkeypatch.setattr(threading.Thread, "start", starts)
    still.begin(dispatcher)
    assert (finished, dispatcher.running) == ([False, False], True)
    hold.set()
    dispatcher.drain(None)
    assert not dispatcher.running


def test_a_signal_that_the_system_gives_to_another_thread_is_handled_while_the_main_thread_runs_a_dispatcher(
    still: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = Dispatcher.builder().queue(still.queue).handler(print).build()
    finished, waits, handled = dispatcher._monitor.finished, threading.Event(), threading.Event()  # noqa: SLF001 - below
    wait, in_time = finished.wait, []

    def waiting(timeout: float | None = None) -> bool:
        waits.set()
        return wait(timeout)

    def other() -> None:
        assert waits.wait(DEADLINE)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        in_time.append(handled.wait(DEADLINE))
        dispatcher.drain(None)

    monkeypatch.setattr(finished, "wait", waiting)
    before = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    thread = threading.Thread(target=other)
    thread.start()
    try:
        dispatcher.run()
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join()
    assert in_time == [True]


def test_ctrl_c_stops_a_dispatcher_that_the_main_thread_runs_and_is_raised_there(
    still: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, waits = Gate(), threading.Event()
    still.queue.send("slow")
    dispatcher = Dispatcher.builder().queue(still.queue).handler(gate).build()
    finished, main = dispatcher._monitor.finished, threading.get_ident()  # noqa: SLF001 - as above
    wait = finished.wait

    def waiting(timeout: float | None = None) -> bool:
        waits.set()
        return wait(timeout)

    def interrupt() -> None:
        gate.when_entered()
        assert waits.wait(DEADLINE)
        signal.pthread_kill(main, signal.SIGINT)

    monkeypatch.setattr(finished, "wait", waiting)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            dispatcher.run()
    finally:
        signal.signal(signal.SIGINT, before)
        gate.open.set()
        thread.join()
    assert (dispatcher.running, still.heard.outcomes) == (False, [("slow", "released")])


def test_a_dispatcher_tells_that_it_gave_up_a_handler_that_ran_on_also_once_its_queue_has_left(
    stages: Stages, clock: TimeMachine, lines: Lines
) -> None:
    stage, gate = stages(clock, lease="1h", max_attempts=1), Gate()
    other = MessageQueue.builder().store(stage.store).clock(clock).name("other").build()
    stage.queue.send("slow")
    builder = Dispatcher.builder().queue(other).handler(print)
    dispatcher = stage.begin(builder.queue(stage.queue).handler(gate, timeout="5s").build())
    gate.when_entered()
    assert not dispatcher.abandoned
    clock.advance("5s")
    lines.first("timed_out")
    assert dispatcher.abandoned
    gate.open.set()
    dispatcher.remove_queue(stage.queue)
    lines.first("left")
    assert dispatcher.abandoned
    dispatcher.drain(None)
    assert dispatcher.abandoned


def test_all_who_wait_for_the_end_are_called_exactly_once_whatever_ends_it_and_whoever_asks_again(
    still: Stage,
) -> None:
    ended: list[str] = []
    dispatcher = Dispatcher.builder().queue(still.queue).handler(print).build()
    dispatcher.when_finished(lambda: ended.append("first"))
    dispatcher.when_finished(lambda: ended.append("second"))
    for _ in range(2):
        dispatcher.drain()
    dispatcher.stop()
    dispatcher.when_finished(lambda: ended.append("late"))
    dispatcher.stop()
    assert ended == ["first", "second", "late"]


def test_what_waits_for_the_end_is_called_once_if_it_is_given_while_the_monitor_finishes(
    still: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    dispatcher = still.begin(Dispatcher.builder().queue(still.queue).handler(print).build())
    finish = dispatcher._monitor.on_finished  # noqa: SLF001 - called once `finished` is set

    def finish_late() -> None:
        dispatcher.when_finished(lambda: ended.append("meanwhile"))
        finish()

    monkeypatch.setattr(dispatcher._monitor, "on_finished", finish_late)  # noqa: SLF001 - as above
    dispatcher.when_finished(lambda: ended.append("before"))
    dispatcher.drain()
    [monitor] = [thread for thread in dispatcher.threads if thread.name == "astyqueue:monitor"]
    monitor.join(DEADLINE)
    assert sorted(ended) == ["before", "meanwhile"]


@pytest.mark.parametrize("timeout", [0, None])
def test_a_drain_abandons_handlers_only_if_they_run_on_after_its_timeout(still: Stage, timeout: int | None) -> None:
    gate = Gate()
    still.queue.send("slow")
    dispatcher = still.start(gate)
    gate.when_entered()
    dispatcher.drain(timeout, wait=False)
    if timeout is None:
        gate.open.set()
    dispatcher.drain(None)
    gate.open.set()
    assert dispatcher.abandoned == (timeout == 0)
