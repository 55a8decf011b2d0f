"""A store or a queue that is not there any more: the dispatcher ends with an error, and does no more work."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from astyqueue import MessageQueue
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.errors import NotFound, StoreGone
from astyqueue.queue.connection import connect
from astyqueue.store import Store
from astyqueue.testing import TimeMachine
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE

#: Seconds that pass one by one, each with time for the dispatcher to see it.
_STEPS = 500


def error_of(running: Future[None], clock: TimeMachine) -> BaseException | None:
    """What ends this while time passes."""
    for _ in range(_STEPS):
        clock.advance("1s")
        with contextlib.suppress(TimeoutError):
            return running.exception(DEADLINE / _STEPS)
    return None


def how_it_ends(queue: MessageQueue, clock: TimeMachine, meanwhile: Callable[[], object]) -> BaseException | None:
    """What a dispatcher that has nothing to do ends with, when this happens and time passes."""
    dispatcher = Dispatcher.builder().queue(queue).handler(print, threads=1).build()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(dispatcher.run)
        try:
            clock.when_waiting(2)
            meanwhile()
            return error_of(running, clock)
        finally:
            dispatcher.stop(wait=False)


def remove(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


@pytest.mark.parametrize("anew", [False, True])
def test_an_idle_dispatcher_notices_that_its_file_was_removed_or_made_anew(
    tmp_path: Path, clock: TimeMachine, caplog: pytest.LogCaptureFixture, *, anew: bool
) -> None:
    path = tmp_path / "work.db"

    def replace() -> None:
        remove(path)
        if anew:
            with connect(f"sqlite:///{path}") as other:
                other.queue("emails").send("to the new file")

    with connect(f"sqlite:///{path}", clock=clock) as connection:
        error = how_it_ends(connection.queue("emails"), clock, replace)
    assert isinstance(error, StoreGone)
    assert "work.db" in str(error)
    assert "estart this process" in str(error)
    [told] = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert told.startswith('gone queue=emails error="StoreGone:')
    assert told.endswith('effect="the dispatcher is stopped"')


def test_a_dispatcher_whose_queue_is_closed_first_ends_and_says_in_which_order_to_end(
    stages: Stages, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    stage = stages(clock)
    assert how_it_ends(stage.queue, clock, stage.queue.close) is None
    [told] = [record.getMessage() for record in caplog.records if record.getMessage().startswith("closed")]
    assert told == 'closed queue=emails hint="stop the dispatcher before you close its queue"'


@pytest.mark.every_store
def test_a_dispatcher_notices_that_its_queue_was_dropped(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock)
    other = MessageQueue.builder().store(stage.store).clock(clock).name("emails").build()
    error = how_it_ends(stage.queue, clock, other.drop)
    assert isinstance(error, NotFound)
    assert str(error).startswith("queue 'emails' is no longer in the store")


def anew(queue: MessageQueue, store: Store, clock: TimeMachine) -> None:
    """Drop a queue and make one of its name with other rows, before any process reads it."""
    queue.drop()
    MessageQueue.builder().store(store).clock(clock).name("emails").concurrency_shards(3).build().close()


def test_a_dispatcher_notices_that_its_queue_was_made_anew_with_other_rows(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock)
    other = MessageQueue.builder().store(stage.store).clock(clock).name("emails").build()
    error = how_it_ends(stage.queue, clock, lambda: anew(other, stage.store, clock))
    assert isinstance(error, NotFound)
    assert "recreated" in str(error)


def test_nothing_is_sent_to_rows_that_the_queue_does_not_have_any_more(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock)
    with MessageQueue.builder().store(stage.store).clock(clock).name("emails").build() as producer:
        producer.send("to the old one")
        anew(stage.queue, stage.store, clock)
        clock.advance("9s")
        for _ in range(2):
            with pytest.raises(NotFound, match="recreated with another layout: restart"):
                producer.send("to nobody")


def test_a_queue_that_was_made_anew_with_the_same_rows_is_worked_on(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock)
    with MessageQueue.builder().store(stage.store).clock(clock).name("emails").build() as other:
        other.drop()
    with MessageQueue.builder().store(stage.store).clock(clock).name("emails").build() as again:
        clock.advance("6s")
        stage.queue.send("work")
        assert len(again.receive()) == 1


def test_a_file_that_is_read_all_the_time_is_looked_for_once_a_second(tmp_path: Path, clock: TimeMachine) -> None:
    path = tmp_path / "work.db"
    with connect(f"sqlite:///{path}", clock=clock) as connection:
        queue = connection.queue("emails")
        queue.send("one")
        queue.peek()
        remove(path)
        assert len(queue.peek()) == 1
        clock.advance("1s")
        with pytest.raises(StoreGone):
            queue.peek()
