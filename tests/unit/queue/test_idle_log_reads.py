"""Idle queues learn of messages by notices: written late, by wrong clocks, or while the activity log cannot be read."""

from __future__ import annotations

import random

import pytest

from astyqueue.errors import StoreUnavailable
from astyqueue.protocol.coordination.activity_log import KEPT
from astyqueue.protocol.steps import run
from astyqueue.queue.row_sharing import idle_queues
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.queue.idle_processes import FOREVER, IDLE_LATENCY, RING, Lossy, Process, ShiftedClock, delay_of, sender
from tests.unit.queue.stepped_workers import MILLISECOND


@pytest.fixture(autouse=True)
def _the_same_every_time() -> None:
    random.seed(1)


@pytest.fixture
def store(clock: TimeMachine) -> Lossy:
    return Lossy(MemoryStore(clock))


def test_a_notice_that_is_written_late_is_read(
    store: Lossy, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_queues, "_TURN", FOREVER)
    process = Process(clock, store, ["letters", "mail"])
    process.become_idle()
    store.keeps = True
    sender(store, clock).send(1)
    process.pass_time(800 * MILLISECOND)
    assert delay_of(process, "mail", store.deliver) <= SECOND + IDLE_LATENCY


@pytest.mark.parametrize("ahead", [-1 * SECOND, SECOND, 20 * SECOND])
def test_a_notice_of_a_process_whose_clock_is_wrong_is_read(store: Lossy, clock: TimeMachine, ahead: int) -> None:
    process = Process(clock, store, ["letters", "mail"])
    process.become_idle()
    other = ShiftedClock(clock, ahead)
    sending = sender(store, other)
    delay = delay_of(process, "mail", lambda: sending.send(1), 2 * 60 * SECOND)
    assert delay <= max(0, ahead) + SECOND + IDLE_LATENCY


@pytest.mark.parametrize("minutes", [5, 45])
def test_what_happened_while_the_log_could_not_be_read_is_found_afterwards(
    store: Lossy, clock: TimeMachine, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_queues, "_TURN", FOREVER)
    process = Process(clock, store, ["letters", "mail"])
    process.become_idle()
    process.mail.dead = process.queues["letters"].dead = True  # suspended
    clock.advance("10s")
    sender(store, clock).send(1)
    clock.advance(f"{minutes}m")
    assert (minutes * 60 * SECOND > KEPT) == (minutes == 45)
    if minutes == 45:
        store.kept, store.loses = [], True
    process.mail.dead = process.queues["letters"].dead = False
    assert delay_of(process, "mail", lambda: None) <= 2 * IDLE_LATENCY


def test_a_process_suspended_while_it_read_the_log_goes_on_to_read_it(store: Lossy, clock: TimeMachine) -> None:
    process = Process(clock, store, ["letters", "mail"], paced=True)
    process.become_idle()
    store.log_reads = 0
    while not store.log_reads:
        process.pass_time(MILLISECOND, MILLISECOND)
    clock.advance("10m")
    process.pass_time(2 * SECOND + IDLE_LATENCY)
    assert delay_of(process, "mail", lambda: sender(store, clock).send(1)) <= 2 * IDLE_LATENCY


def test_an_error_of_the_log_goes_to_a_consumer_and_the_next_one_reads_on(store: Lossy, clock: TimeMachine) -> None:
    process = Process(clock, store, ["letters", "mail"])
    process.become_idle()
    assert failed_reads(process, store, 5 * SECOND) == {"letters", "mail"}
    assert delay_of(process, "mail", lambda: sender(store, clock).send(1)) <= IDLE_LATENCY


def test_a_notice_that_was_written_late_is_read_although_the_log_cannot_be_read_for_a_second(
    store: Lossy, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read that begins two seconds back, which comes once a second, is made again if it fails."""
    monkeypatch.setattr(idle_queues, "_TURN", FOREVER)
    process = Process(clock, store, ["letters", "mail"])
    process.become_idle()
    store.keeps = True
    run(sender(store, clock).core.doorbell.notify_idle(), store)
    process.pass_time(600 * MILLISECOND)
    store.deliver()
    failed_reads(process, store, 6 * SECOND // 5)
    process.pass_time(IDLE_LATENCY)
    assert not process.mail.core.scheduler.activity.idle


def test_after_the_clock_was_set_back_an_idle_queue_still_learns_of_messages_by_notices(
    store: Lossy, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moments of these are earlier than that at which it became idle. One stands for several messages."""
    monkeypatch.setattr(idle_queues, "_TURN", FOREVER)
    process, sending = Process(clock, store, ["letters", "mail"], RING), sender(store, clock, layout=RING)
    process.become_idle()
    clock.set(clock.now() - 600 * SECOND)
    sending.send(1, delay=3_600)
    process.pass_time(5 * SECOND, SECOND // 8)
    assert delay_of(process, "mail", lambda: sending.send(1)) <= SECOND // 4


def failed_reads(process: Process, store: Lossy, duration: int) -> set[str]:
    """Let time pass in which no read of the log succeeds; returns the queues whose consumers fail, and begin anew."""
    failed = set()
    store.unreadable = True
    for _ in range(duration // (50 * MILLISECOND)):
        process.clock.advance("50ms")
        for name, worker in process.queues.items():
            try:
                worker.work()
            except StoreUnavailable:
                failed.add(name)
                worker.start()
    store.unreadable = False
    return failed
