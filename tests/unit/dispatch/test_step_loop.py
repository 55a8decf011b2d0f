"""One thread serves many queues: each in turn, none forgotten, and an error of one ends no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from astyqueue import Dispatcher, connect
from astyqueue.clock import SystemClock
from astyqueue.dispatch.step_loop import StepLoop, StepTask
from astyqueue.observe.observers import UNOBSERVED
from astyqueue.protocol.steps import Request, Steps, read
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.store import Slice
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, TimeMachine
from astyqueue.units import SECOND
from astyqueue.waiting import Rest, Wakeup
from tests.unit.dispatch.stage import DEADLINE


def task(steps: Steps[None], clock: TimeMachine) -> StepTask:
    return StepTask(steps, MemoryStore(clock=clock), UNOBSERVED)


@pytest.fixture
def started(clock: TimeMachine) -> Iterator[Callable[..., threading.Thread]]:
    threads = []

    def start(*steps: Steps[None]) -> threading.Thread:
        loop = StepLoop(clock, [task(one, clock) for one in steps])
        threads.append(threading.Thread(target=loop.run, daemon=True))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


def reading(name: str, times: int, log: list[str]) -> Steps[None]:
    for _ in range(times):
        log.append(name)
        yield from read(Slice(name, 0))


def resting(name: str, rest: Rest, log: list[str]) -> Steps[None]:
    yield rest
    log.append(name)


def test_a_task_that_is_added_wakes_the_loop_and_is_refused_once_all_others_have_ended(clock: TimeMachine) -> None:
    log: list[str] = []
    wakeup, added = Wakeup(clock), threading.Event()

    def late() -> Steps[None]:
        yield from reading("late", 2, log)
        added.set()
        wakeup.set()

    loop = StepLoop(clock, [task(resting("rested", Rest(wakeup, None), log), clock)])
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    assert loop.add(task(late(), clock))
    assert added.wait(DEADLINE)
    thread.join(DEADLINE)
    assert log == ["late", "late", "rested"]
    assert not loop.add(task(reading("too late", 1, log), clock))


def test_the_loop_says_when_a_task_begins_to_rest(clock: TimeMachine) -> None:
    rests: list[None] = []
    wakeup = Wakeup(clock)
    wakeup.set()
    steps = resting("rested", Rest(wakeup, None), [])
    StepLoop(clock, [StepTask(steps, MemoryStore(clock=clock), UNOBSERVED, lambda: rests.append(None))]).run()
    assert rests == [None]


def test_tasks_with_requests_take_turns(clock: TimeMachine) -> None:
    log: list[str] = []
    StepLoop(clock, [task(reading(name, 3, log), clock) for name in "abc"]).run()
    assert log == ["a", "b", "c"] * 3


def test_a_task_whose_rest_ends_gets_its_turn_while_another_is_busy(clock: TimeMachine) -> None:
    log: list[str] = []
    wakeup = Wakeup(clock)

    def busy() -> Steps[None]:
        for number in range(5):
            log.append(f"busy {number}")
            if number == 2:
                wakeup.set()
            yield from read(Slice("busy", 0))

    StepLoop(clock, [task(resting("rested", Rest(wakeup, None), log), clock), task(busy(), clock)]).run()
    assert log == ["busy 0", "busy 1", "busy 2", "rested", "busy 3", "busy 4"]


def test_a_signal_before_the_rest_is_not_lost(clock: TimeMachine) -> None:
    wakeup = Wakeup(clock)
    wakeup.set()
    log: list[str] = []
    StepLoop(clock, [task(resting("rested", Rest(wakeup, None), log), clock)]).run()
    assert log == ["rested"]


def test_one_signal_ends_one_rest(clock: TimeMachine, started: Callable[..., threading.Thread]) -> None:
    wakeup, log = Wakeup(clock), []
    first = threading.Event()

    def twice() -> Steps[None]:
        yield Rest(wakeup, None)
        log.append("first")
        first.set()
        yield Rest(wakeup, None)
        log.append("second")

    thread = started(twice())
    clock.when_waiting(1)
    wakeup.set()
    assert first.wait(DEADLINE)
    clock.when_waiting(1)
    assert log == ["first"]
    wakeup.set()
    thread.join(DEADLINE)
    assert log == ["first", "second"]


def test_rests_end_in_the_order_of_their_times(clock: TimeMachine, started: Callable[..., threading.Thread]) -> None:
    log: list[str] = []
    now = clock.monotonic()

    def until(name: str, seconds: int) -> Steps[None]:
        while clock.monotonic() < now + seconds * SECOND:
            yield Rest(Wakeup(clock), now + seconds * SECOND)
        log.append(name)

    thread = started(until("later", 2), until("sooner", 1))
    for _ in range(2):
        clock.when_waiting(1)
        clock.advance("1s")
    thread.join(DEADLINE)
    assert log == ["sooner", "later"]


def test_every_rest_ends_when_the_wall_clock_is_set(
    clock: TimeMachine, started: Callable[..., threading.Thread]
) -> None:
    log: list[str] = []
    thread = started(*(resting(name, Rest(Wakeup(clock), None), log) for name in "ab"))
    clock.when_waiting(1)
    clock.set(clock.now() - SECOND)
    thread.join(DEADLINE)
    assert sorted(log) == ["a", "b"]


def test_a_mistake_of_one_task_is_raised_after_the_others_have_ended(clock: TimeMachine) -> None:
    log: list[str] = []

    def mistaken() -> Steps[None]:
        yield from read(Slice("a", 0))
        raise ZeroDivisionError

    loop = StepLoop(clock, [task(mistaken(), clock), task(reading("b", 3, log), clock)])
    with pytest.raises(ZeroDivisionError):
        loop.run()
    assert log == ["b"] * 3


def test_an_error_of_the_store_is_thrown_into_the_steps_that_asked(clock: TimeMachine) -> None:
    caught: list[BaseException] = []

    class Mistaken(Faulty):
        def perform(self, request: Request) -> object:
            raise ZeroDivisionError(request)

    def steps() -> Steps[None]:
        try:
            yield from read(Slice("a", 0))
        except ZeroDivisionError as error:
            caught.append(error)

    StepLoop(clock, [StepTask(steps(), Mistaken(MemoryStore(clock=clock)), UNOBSERVED)]).run()
    assert len(caught) == 1


def test_fifty_queues_are_served_by_four_claim_threads() -> None:
    clock = SystemClock()
    done: set[object] = set()
    finished = threading.Event()

    def handle(delivery: Delivery) -> None:
        done.add(delivery.body)
        if len(done) == 50:
            finished.set()

    with connect("memory://", clock=clock) as connection:
        builder = Dispatcher.builder()
        queues = [connection.queue(f"queue-{number}") for number in range(50)]
        for queue in queues:
            builder.queue(queue, threads=1).handler(handle)
        with builder.build() as dispatcher:
            for number, queue in enumerate(queues):
                queue.send(number)
            assert finished.wait(DEADLINE)
            claiming = [thread for thread in dispatcher.threads if thread.name.startswith("astyqueue:claim:")]
            assert len(claiming) == 4
