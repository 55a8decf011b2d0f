"""What a dispatcher does while the system starts no more threads, or opens no more files, as at its limits of them."""

from __future__ import annotations

import asyncio
import errno
import os
import threading

import pytest

from astyqueue import aio
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.execution import event_loop
from astyqueue.queue.connection import connect
from astyqueue.queue.queue import MessageQueue
from astyqueue.testing import TimeMachine
from tests.unit.dispatch.stage import DEADLINE, Stage
from tests.unit.dispatch.test_stuck import Lines, lines

__all__ = ["lines"]


class Limit:
    """Threads of this name cannot be started, until it is lifted."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused = threading.Event()
        self.lifted = False
        start = threading.Thread.start

        def starts(thread: threading.Thread) -> None:
            if thread.name.startswith(f"astyqueue:{name}") and not self.lifted:
                self.refused.set()
                message = "can't start new thread"
                raise RuntimeError(message)
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", starts)


class FileLimit:
    """No event loop can be made, because it needs files, until the limit is lifted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused = threading.Event()
        self.lifted = False
        made = asyncio.events.new_event_loop

        def make() -> asyncio.AbstractEventLoop:
            if self.lifted:
                return made()
            self.refused.set()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr(asyncio.events, "new_event_loop", make)


async def asynchronous(_: aio.Delivery) -> None:
    pass


async def batched(_: list[aio.Delivery]) -> None:
    pass


@pytest.mark.parametrize("batch", [None, (1, 0)])
def test_coroutines_run_though_no_thread_watches_over_their_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, batch: tuple[int, int] | None
) -> None:
    limit = Limit("watchdog", monkeypatch)
    dispatcher = stage.start(asynchronous if batch is None else batched, batch=batch, task="t")
    stage.queue.send("one", headers={"task": "t"})
    stage.when_settled(1)
    assert limit.refused.is_set()
    limit.lifted = True
    stage.queue.send("two", headers={"task": "t"})
    stage.when_settled(2)
    assert stage.heard.count("acked") == 2
    dispatcher.drain(None)


def test_the_first_message_of_a_batch_handler_is_handled_once_its_thread_can_be_started(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = threading.Event()
    with connect("memory://") as connection:
        queue = connection.queue("emails")
        builder = Dispatcher.builder().queues("e*", connection)
        builder.handler(lambda _: handled.set(), task="t", batch=(1, 0))
        dispatcher = stage.begin(builder.build())
        limit = Limit("handle", monkeypatch)
        queue.send("one", headers={"task": "t"})
        assert limit.refused.wait(DEADLINE)
        limit.lifted = True
        assert handled.wait(DEADLINE)
        dispatcher.drain(None)
        assert queue.counts().total == 0


def test_the_first_async_batch_is_handled_once_an_event_loop_can_be_started(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = Limit("loop", monkeypatch)
    monkeypatch.setattr(event_loop, "_handlers", event_loop._HandlerLoop())  # noqa: SLF001 - this process has one already
    dispatcher = stage.start(batched, batch=(1, 0), task="t")
    stage.queue.send("one", headers={"task": "t"})
    assert limit.refused.wait(DEADLINE)
    limit.lifted = True
    stage.when(lambda: stage.heard.count("acked") == 1)
    dispatcher.drain(None)


def test_a_loop_that_cannot_be_made_at_the_limit_of_open_files_is_an_error_and_is_made_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit, loops, errors = FileLimit(monkeypatch), event_loop._HandlerLoop(), list[str]()  # noqa: SLF001 - this process has one already

    def start() -> None:
        try:
            loops.running()
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert errors == [
        (
            f"the event loop for handlers could not be started (OSError: [Errno {errno.EMFILE}] Too many open files): "
            "raise the limits of open files and threads (ulimit -n, -u)"
        )
    ]
    limit.lifted = True
    called = threading.Event()
    loops.running().call_soon_threadsafe(called.set)
    assert called.wait(DEADLINE)
    loops._stop()  # noqa: SLF001 - as at the end of the process


def test_a_dispatcher_drains_though_its_event_loop_cannot_be_made_at_the_limit_of_open_files(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = FileLimit(monkeypatch)
    monkeypatch.setattr(event_loop, "_handlers", event_loop._HandlerLoop())  # noqa: SLF001 - this process has one already
    finished = threading.Event()
    dispatcher = stage.start(batched, batch=(1, 0), task="t")
    dispatcher.when_finished(finished.set)
    stage.queue.send("one", headers={"task": "t"})
    assert limit.refused.wait(DEADLINE)
    dispatcher.stop(wait=False)
    assert finished.wait(DEADLINE)


def test_a_queue_that_joins_is_served_by_a_claim_thread_of_others_if_none_can_be_started(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = threading.Event()
    dispatcher = stage.start(print)
    limit = Limit("claim", monkeypatch)
    other = MessageQueue.builder().store(stage.store).name("other").build()
    dispatcher.add_queue(other, lambda _: handled.set())
    assert limit.refused.is_set()
    other.send("one")
    assert handled.wait(DEADLINE)
    dispatcher.drain(None)


def test_a_queue_of_a_pattern_joins_once_a_claim_thread_can_be_started(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, clock: TimeMachine, lines: Lines
) -> None:
    handled = threading.Event()
    with connect("memory://", clock=clock) as connection:
        builder = Dispatcher.builder().queues("e*", connection).handler(lambda _: handled.set())
        dispatcher = stage.begin(builder.build())
        limit = Limit("claim", monkeypatch)
        connection.queue("emails").send("one")
        clock.advance("6s")
        assert limit.refused.wait(DEADLINE)
        lines.first("left")
        limit.lifted = True
        while not handled.wait(0.05):
            clock.advance("6s")
        dispatcher.drain(None)


def test_a_dispatcher_that_cannot_start_all_its_threads_ends_and_releases_what_it_claimed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    Limit("handle:2", monkeypatch)
    finished = threading.Event()
    stage.queue.send_many(range(3))
    dispatcher = Dispatcher.builder().queue(stage.queue, backlog=3).handler(print).build()
    dispatcher.when_finished(finished.set)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        dispatcher.start()
    assert finished.wait(DEADLINE)
    assert stage.queue.counts().in_flight == 0
