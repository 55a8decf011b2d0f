"""Consumers that live for a moment: each opens the queue, receives without waiting until nothing comes, and ends."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime
from typing import Final

import pytest

from astyqueue import Message, MessageQueue
from astyqueue.clock import microseconds
from astyqueue.durations import as_microseconds
from astyqueue.protocol.steps import Commit, Read
from astyqueue.store import Batch, Store
from astyqueue.testing import Recording, TimeMachine
from astyqueue.units import SECOND
from tests.unit.protocol.worlds import put_at

QUEUE: Final = "emails"
HOUR_BEGINS: Final = microseconds(datetime(2026, 1, 1, 5, tzinfo=UTC))
HOUR: Final = 3_600 * SECOND
DAY: Final = 24 * HOUR
#: Time and concurrency shards.
LAYOUTS: Final = [(1, 1), (3, 1), (1, 4), (2, 2), (24, 4)]


class Application:
    """Processes that come one after the other, and live for a moment."""

    def __init__(self, store: Store, clock: TimeMachine, shards: tuple[int, int], **options: object) -> None:
        self.store = store
        self.clock = clock
        time_shards, concurrency_shards = shards
        new = MessageQueue.builder().store(store).name(QUEUE).clock(clock).priorities(2).lease("5m").backoff("10s")
        new.time_shards(time_shards).concurrency_shards(concurrency_shards).options(**options).build().close()

    def process(self) -> MessageQueue:
        return MessageQueue.builder().store(self.store).name(QUEUE).clock(self.clock).build()

    def send(self, count: int) -> None:
        with self.process() as queue:
            queue.send_many(range(count))

    def drain(self) -> list[str]:
        """The rows of the messages that a new process receives, all of which it acks."""
        rows: list[str] = []
        with self.process() as queue:
            while batch := queue.receive(100):
                rows += [delivery.row for delivery in batch]
                batch.ack()
        self.clock.advance("1ms")
        return rows

    @property
    def left(self) -> int:
        with self.process() as queue:
            counts = queue.counts()
        return counts.waiting + counts.in_flight + counts.delayed + counts.backing_off + counts.snoozed + counts.blocked


@pytest.fixture
def clock() -> TimeMachine:
    random.seed(1)
    return TimeMachine(HOUR_BEGINS - 3 * SECOND)


@pytest.mark.parametrize("shards", LAYOUTS, ids=str)
@pytest.mark.parametrize("hours", [0, 1, 5])
def test_what_waits_in_a_row_whose_owner_is_gone_is_found_in_any_hour(
    store: Store, clock: TimeMachine, shards: tuple[int, int], hours: int
) -> None:
    application = Application(store, clock, shards)
    application.send(20)
    assert len(application.drain()) == 20
    application.send(9)
    clock.advance(hours * HOUR // SECOND + 8)
    assert len(application.drain()) == 9


def test_what_waits_beside_a_suspect_in_a_past_row_is_received_after_it(store: Store, clock: TimeMachine) -> None:
    """A message whose process died with it is handed out alone."""
    application = Application(store, clock, (3, 1))
    application.send(3)
    with application.process() as dies:
        dies.receive(1)
    clock.advance("1h")
    assert len(application.drain()) == 3


@pytest.mark.parametrize("shards", LAYOUTS, ids=str)
@pytest.mark.parametrize("minutes", [1, 10, 45, 130, 7 * 60, 24 * 60])
def test_what_landed_behind_the_head_is_found_by_the_next_process(
    store: Store, clock: TimeMachine, shards: tuple[int, int], minutes: int
) -> None:
    """No process lives until its late scans are due. The id of the message is older than those received before."""
    application = Application(store, clock, shards)
    before = clock.now()
    clock.advance(0.1)
    application.send(20)
    row = application.drain()[0]
    store.send(Batch(row, (put_at(before),)))
    clock.advance(60 * minutes)
    assert len(application.drain()) == 1


@pytest.mark.parametrize("wait", ["900ms", "1s", "2s", "3s"])
def test_what_landed_behind_the_head_is_found_however_long_a_consumer_waits(
    store: Store, clock: TimeMachine, wait: str
) -> None:
    application = Application(store, clock, (1, 1))
    before = clock.now()
    clock.advance(0.1)
    application.send(2)
    row = application.drain()[0]
    store.send(Batch(row, (put_at(before),)))
    clock.advance("1m")
    received: list[int] = []
    with application.process() as queue:
        waits = threading.Thread(target=lambda: received.append(len(queue.receive(1, wait=wait))))
        waits.start()
        while waits.is_alive():
            waits.join(0.002)
            if clock.waiters:
                clock.advance("50ms")
    assert received == [1]


def test_new_processes_find_no_late_scan_to_make_once_one_has_made_it(store: Store, clock: TimeMachine) -> None:
    """Otherwise each would scan every row of the last day, while those that claimed there have long ended."""
    store = Recording(store)
    application = Application(store, clock, (24, 4))
    for _ in range(48):
        application.send(8)
        application.drain()
        clock.advance("30m")
    assert application.drain() == []
    store.requests.clear()
    assert application.drain() == []
    assert not [request for request in store.requests if isinstance(request, Commit)]
    assert len([request for request in store.requests if isinstance(request, Read)]) <= 16


@pytest.mark.parametrize("shards", LAYOUTS, ids=str)
def test_a_process_that_lives_on_and_receives_once_a_day_gets_all_that_is_due(
    store: Store, clock: TimeMachine, shards: tuple[int, int]
) -> None:
    application = Application(store, clock, shards)
    with application.process() as queue:
        for day in range(8):
            clock.advance(random.uniform(0, DAY // SECOND / 2))
            application.send(1)
            clock.advance(DAY // SECOND / 2)
            received = 0
            while batch := queue.receive(100):
                received += len(batch)
                batch.ack()
            assert received == 1, day


def test_a_claim_that_is_refused_as_another_process_was_there_does_not_end_a_receive(
    store: Store, clock: TimeMachine
) -> None:
    application = Application(store, clock, (24, 4), placement="key")
    messages = [Message(number, key="all in one row") for number in range(5)]
    with application.process() as one:
        one.send_many(messages)
        batch = one.receive(2)
        assert len(application.drain()) == 3
        one.send_many(messages)
        clock.advance("1s")
        batch.ack()
        assert len(one.receive(5)) == 5


@pytest.mark.parametrize("lease", ["15s", "10m"])
def test_a_permit_is_not_kept_for_a_process_that_looked_once_and_ended(
    store: Store, clock: TimeMachine, lease: str
) -> None:
    """None of them closes the queue, as if each was killed."""
    application = Application(store, clock, (1, 1), max_active_processes=1, permit_lease=lease)
    application.send(30)
    received = []
    for _ in range(10):
        received.append(len(application.process().receive(1)))
        clock.advance(as_microseconds(lease) / SECOND * 0.6)
    assert sum(received) >= 5, "each second one finds that the permit of the one before has run out"


@pytest.mark.parametrize("overflow", ["refuse", "block"])
def test_expired_messages_keep_no_place_from_senders_that_live_for_one_message(
    store: Store, clock: TimeMachine, overflow: str
) -> None:
    """Each looks into one row that it chooses by chance, and into all of them before it would refuse its message."""
    bound = {"max_messages": 20, "overflow": overflow, "overflow_wait": "0s", "expires_cap": "1m"}
    application = Application(store, clock, (24, 4), **bound)
    application.send(20)
    clock.advance("2h")
    application.send(20)
    with application.process() as queue:
        assert (queue.counts().waiting, queue.counts().dead) == (20, 20)


@pytest.mark.parametrize("seed", range(30))
def test_once_all_is_due_one_process_gets_all_of_it(store: Store, clock: TimeMachine, seed: int) -> None:
    """Messages of every kind, and processes that settle them, or end without that and leave their leases behind."""
    chance = random.Random(seed)
    clock.advance(chance.uniform(0, HOUR // SECOND))
    application = Application(store, clock, LAYOUTS[seed % len(LAYOUTS)])
    for _ in range(chance.randint(1, 11)):
        with application.process() as queue:
            for _ in range(chance.randint(1, 7)):
                _send_or_receive(queue, chance)
        clock.advance(chance.choice([0.3, 1, 30, 900, 5_000]))
    clock.advance(chance.choice([8_000, 40_000]))
    application.drain()
    assert application.left == 0


def _send_or_receive(queue: MessageQueue, chance: random.Random) -> None:
    match chance.randrange(10):
        case 0 | 1:
            queue.send_many(range(3), priority=chance.randrange(2))
        case 2:
            queue.send("unique", key=f"key {chance.random()}", unique="reject")
        case 3:
            queue.send("grouped", group=f"group {chance.randrange(3)}")
        case 4 | 5:
            queue.send("delayed", delay=chance.choice([1, 60, 7_200]))
        case _:
            for delivery in queue.receive(chance.choice([1, 5, 100])):
                match chance.randrange(5):
                    case 0 | 1:
                        delivery.ack()
                    case 2:
                        delivery.release(chance.choice([None, 5, 4_000]))
                    case 3:
                        delivery.fail()
