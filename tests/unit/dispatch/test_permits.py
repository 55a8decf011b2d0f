"""Dispatchers of a queue that one process at a time may claim from: who stands by, and how it takes over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Queue
from typing import Final

import pytest

from astyqueue.clock import SystemClock
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.presence.stall_watch import Stall, StallWatch
from astyqueue.model.presence import WorkerState
from astyqueue.protocol.layout.rows import permits_row
from astyqueue.protocol.steps import Commit, Request, Send
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.queue import MessageQueue
from astyqueue.store import Store
from astyqueue.testing import Faulty, TimeMachine
from tests.support.places import Place
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Stage

PERMITS: Final = permits_row("emails")


class Watched(Faulty):
    """A store that signals when a process has reported that it stands by, and when one has released its permit."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.stands_by = threading.Event()
        self.released = threading.Event()

    def perform(self, request: Request) -> object:
        answer = super().perform(request)
        if isinstance(request, Send) and request.batch.row == PERMITS:
            self.stands_by.set()
        if isinstance(request, Commit) and request.batch.row == PERMITS and request.batch.deletes:
            self.released.set()
        return answer


class Two:
    """Two dispatchers of one queue, of which the second stands by; only a permit that is released is taken over."""

    def __init__(self, stages: Stages, store: Store) -> None:
        self.began: Queue[tuple[str, object]] = Queue()
        self.clock = SystemClock()
        watched = Watched(store)
        self.released = watched.released
        self.stage = stages(self.clock, watched, max_active_processes=1, permit_lease="1h", lease="1h")
        self.gate = threading.Event()
        self.first = self._start(self.stage, "first")
        self.sent("one", by="first")
        standby = Watched(store)
        self.second = self._start(stages(self.clock, standby), "second")
        self.send("two")
        assert standby.stands_by.wait(DEADLINE)
        assert self.began.get(timeout=DEADLINE) == ("first", "two")

    def _start(self, stage: Stage, name: str) -> Dispatcher:
        def handle(delivery: Delivery) -> None:
            self.began.put((name, delivery.body))
            if delivery.body == "blocks":
                assert self.gate.wait(DEADLINE)

        return stage.start(handle, threads=1)

    def send(self, body: str) -> None:
        self.stage.queue.send(body)

    def sent(self, body: str, *, by: str) -> None:
        """Send a message, and see which process begins it."""
        self.send(body)
        assert self.began.get(timeout=DEADLINE) == (by, body)


@pytest.fixture
def two(stages: Stages, place: Place) -> Two:
    return Two(stages, place.store(SystemClock()))


def ends(two: Two) -> None:
    two.first.drain()


def stops(two: Two) -> None:
    two.first.stop()


def leaves_the_queue(two: Two) -> None:
    two.first.remove_queue(two.stage.queue)


def is_quiet(two: Two) -> None:
    two.first.presence.quiet()


def closes_the_queue(two: Two) -> None:
    two.stage.queue.close()


@pytest.mark.parametrize("goes", [ends, stops, leaves_the_queue, is_quiet, closes_the_queue])
@pytest.mark.stores("memory", "sqlite")
def test_the_second_takes_over_when_the_first_goes_in_order(two: Two, goes: Callable[[Two], None]) -> None:
    two.sent("three", by="first")
    goes(two)
    assert two.released.wait(DEADLINE)
    two.second.queues[0].send("four")
    assert two.began.get(timeout=DEADLINE) == ("second", "four")


def test_a_process_that_is_resumed_stands_by(two: Two) -> None:
    two.first.presence.quiet()
    assert two.released.wait(DEADLINE)
    two.sent("three", by="second")
    two.first.presence.resume()
    two.sent("four", by="second")
    two.second.drain()
    two.sent("five", by="first")


def test_a_process_that_stands_by_says_so_in_its_report(two: Two) -> None:
    reports = [one.presence._presence(one.queues) for one in (two.first, two.second)]  # noqa: SLF001 - as it is written
    assert [list(one.standby) for one in reports] == [[], ["emails"]]
    assert [one.state for one in reports] == [WorkerState.RUNNING] * 2


def test_work_that_waits_for_the_process_that_claims_is_no_stall_of_one_that_stands_by(two: Two) -> None:
    def stall_of(queue: MessageQueue) -> Stall | None:
        clock = TimeMachine()
        dispatcher = Dispatcher.builder().threads(1).queue(queue).handler(print).build()
        watch = StallWatch(clock, dispatcher.presence._workload)  # noqa: SLF001 - of a dispatcher that never claims
        watch.after = 1
        watch.look()
        clock.advance("1h")
        watch.look()
        return watch.look()

    two.sent("blocks", by="first")
    two.stage.queue.send_many(range(1_000))
    assert stall_of(two.first.queues[0]) is not None
    assert stall_of(two.second.queues[0]) is None
    two.gate.set()
