"""When a worker with --burst ends, and that nothing it meets on the way ends the thread that looks."""

from __future__ import annotations

import threading

import pytest

from astyqueue.cli.worker.until_empty import WhenEmpty
from astyqueue.clock import SystemClock
from astyqueue.protocol.layout.columns import HEADER
from astyqueue.protocol.steps import Request
from astyqueue.queue.connection import connect
from astyqueue.queue.queue import MessageQueue
from astyqueue.schedules import Schedules
from astyqueue.store import Batch, Put
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, Recording, TimeMachine
from astyqueue.triggers import Every
from tests.support.places import Place

#: Most requests of a look at a queue that has a due message: its settings, and the timers and messages of its rows.
REQUESTS_OF_A_LOOK = 25


def ends_of(watched: WhenEmpty, capsys: pytest.CaptureFixture[str]) -> None:
    """Let its thread come to its end; it prints nothing."""
    watched.watch().join(60)
    assert capsys.readouterr().err == ""


def test_it_ends_once_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[bool] = []
    with connect("memory://") as connection:
        ends_of(WhenEmpty(lambda: [connection.queue("emails")], lambda: ended.append(True)), capsys)
    assert ended == [True]


def test_a_worker_is_not_ended_before_it_has_begun() -> None:
    begun, looks = threading.Event(), threading.Semaphore(0)
    ended: list[bool] = []

    def has_begun() -> bool:
        looks.release()
        return begun.is_set()

    with connect("memory://") as connection:
        queue = connection.queue("emails")
        thread = WhenEmpty(lambda: [queue], lambda: ended.append(begun.is_set()), begun=has_begun).watch()
        assert looks.acquire(timeout=60)
        assert looks.acquire(timeout=60)
        begun.set()
        thread.join(60)
    assert ended == [True]


def test_a_queue_that_joins_is_waited_for_too() -> None:
    left: list[int] = []
    machine = TimeMachine()
    with connect("memory://", clock=machine) as connection:
        queues = [connection.queue("emails")]
        queues[0].send("first")
        thread = WhenEmpty(lambda: [*queues], lambda: left.append(later.counts().total)).watch()
        machine.when_waiting()
        later = connection.queue("later")
        later.send("second")
        queues.append(later)
        queues[0].receive().ack()
        machine.advance("1s").when_waiting()
        later.receive().ack()
        machine.advance("1s")
        thread.join(60)
    assert left == [0]


def test_a_worker_that_ended_before_is_not_ended_again(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[bool] = []
    with connect("memory://") as connection:
        queue = connection.queue("emails")
        queue.close()
        ends_of(WhenEmpty(lambda: [queue], lambda: ended.append(True)), capsys)
    assert ended == []


def test_a_row_that_cannot_be_read_is_not_empty(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[bool] = []
    with connect("memory://") as connection:
        queue = connection.queue("emails")
        sent = queue.send("x")
        queue.receive()[0].release("1h")
        connection.store.commit(Batch(sent.id.row, (Put(HEADER, b"nonsense"),)), ())
        thread = WhenEmpty(lambda: [queue], lambda: ended.append(True)).watch()
        connection.close()
        thread.join(60)
    assert (ended, capsys.readouterr().err) == ([], "")


def test_a_paused_queue_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[bool] = []
    with connect("memory://") as connection:
        queue = connection.queue("emails")
        queue.send("due")
        queue.pause()
        ends_of(WhenEmpty(lambda: [queue], lambda: ended.append(True)), capsys)
        assert queue.counts().waiting == 1
    assert ended == [True]


def test_an_occurrence_that_is_due_is_waited_for() -> None:
    left: list[tuple[int, int]] = []
    machine = TimeMachine()
    with connect("memory://", clock=machine) as connection:
        queue = connection.queue("emails")
        Schedules(queue).add("digest", Every("1h"))
        thread = WhenEmpty(lambda: [queue], lambda: left.append((queue.stats.fired, queue.counts().total))).watch()
        machine.when_waiting()
        queue.receive().ack()
        machine.advance("1s")
        thread.join(60)
    assert left == [(1, 0)]


def test_an_occurrence_that_nobody_fires_is_not_waited_for_for_ever() -> None:
    ended: list[bool] = []
    machine = TimeMachine()
    with connect("memory://", clock=machine) as connection:
        queue = connection.queue("emails")
        Schedules(queue).add("digest", Every("1h"))
        thread = WhenEmpty(lambda: [queue], lambda: ended.append(True)).watch()
        machine.when_waiting().advance("10s")
        thread.join(60)
    assert ended == [True]


def test_where_nothing_is_fired_no_occurrence_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[bool] = []
    with connect("memory://") as connection:
        queue = connection.queue("emails")
        Schedules(queue).add("digest", Every("1h"))
        queue.core.fire_nothing()
        ends_of(WhenEmpty(lambda: [queue], lambda: ended.append(True)), capsys)
    assert ended == [True]


class Limited:
    """A queue that one process at a time may claim from: the active one has a message, and the other one stands by."""

    def __init__(self, place: Place) -> None:
        self.ended: list[bool] = []
        self.clock = clock = TimeMachine()
        store = place.store(clock)
        self.watched = Recording(store)
        self.active, self.standby = (
            MessageQueue.builder()
            .store(one)
            .clock(clock)
            .name("emails")
            .options(max_active_processes=1, permit_lease="1h", lease="1h")
            .build()
            for one in (store, self.watched)
        )
        self.active.send_many(["one", "two"])
        self.delivery = self.active.receive()[0]
        assert not self.standby.receive()
        assert self.standby.core.claimer.permit.stands_by
        self.thread = WhenEmpty(lambda: [self.standby], lambda: self.ended.append(True)).watch()

    def passes(self, seconds: int) -> None:
        """Let this time pass in steps of a quarter of a second, each once the watching thread rests."""
        for _ in range(4 * seconds):
            self.clock.when_waiting().advance("250ms")
        self.clock.when_waiting()


@pytest.mark.stores("memory", "sqlite")
def test_a_process_that_stands_by_ends_when_the_active_one_has_done_all_the_work(place: Place) -> None:
    limited = Limited(place)
    limited.passes(5)
    looked = len(limited.watched.requests)
    limited.passes(20)
    assert 0 < len(limited.watched.requests) - looked <= 20 * REQUESTS_OF_A_LOOK
    assert not limited.ended
    limited.delivery.ack()
    limited.passes(3)
    assert not limited.ended
    limited.active.receive()[0].ack()
    limited.clock.advance("1s")
    limited.thread.join(60)
    assert limited.ended == [True]


@pytest.mark.stores("memory", "sqlite")
def test_a_process_that_stands_by_stays_for_the_work_that_the_active_one_leaves(place: Place) -> None:
    limited = Limited(place)
    limited.delivery.release()
    limited.active.close()
    limited.passes(3)
    assert not limited.ended
    for delivery in limited.standby.receive(10):
        delivery.ack()
    limited.clock.advance("1s")
    limited.thread.join(60)
    assert limited.ended == [True]


class Mistaken(Faulty):
    """A store whose own code has a mistake, which comes up once, when a queue is looked at."""

    mistakes = 0

    def perform(self, request: Request) -> object:
        if threading.current_thread().name == "astyqueue:burst" and not self.mistakes:
            self.mistakes = 1
            message = "a mistake"
            raise ZeroDivisionError(message)
        return super().perform(request)


def test_a_mistake_in_the_code_of_a_store_is_logged_and_the_queues_are_looked_at_again(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[bool] = []
    clock = SystemClock()
    queue = MessageQueue.builder().store(Mistaken(MemoryStore(clock))).name("emails").build()
    ends_of(WhenEmpty(lambda: [queue], lambda: ended.append(True)), capsys)
    assert ended == [True]
    assert "ZeroDivisionError: a mistake" in caplog.text
