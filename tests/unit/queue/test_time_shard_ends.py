"""Messages in a row whose time shard has just ended are found as soon as others, in use and idle."""

from __future__ import annotations

import random

import pytest

from astyqueue.model.settings import Layout
from astyqueue.queue.row_sharing import idle_queues
from astyqueue.queue.row_sharing.idle_queues import IN_USE
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.unit.queue.idle_processes import RING, Lossy, Process, ShiftedClock, delay_of, sender
from tests.unit.queue.stepped_workers import MILLISECOND


@pytest.fixture(autouse=True)
def _the_same_every_time() -> None:
    random.seed(1)


@pytest.fixture
def store(clock: TimeMachine) -> Lossy:
    clock.advance("57m")
    return Lossy(MemoryStore(clock))


@pytest.mark.parametrize("layout", [Layout(time_shards=3), RING], ids=["three rows", "248 rows"])
def test_a_message_that_was_sent_just_before_its_time_shard_ended_begins_at_once(
    store: Lossy, clock: TimeMachine, layout: Layout
) -> None:
    """The next read of the bell is about the rows of the next time shard."""
    process, sending = Process(clock, store, layout=layout), sender(store, clock, layout=layout)
    end_of_time_shard(process, before=20 * SECOND)
    sending.send(1)
    end_of_time_shard(process, before=MILLISECOND)

    def send() -> None:
        sending.send(1)
        process.pass_time(MILLISECOND, MILLISECOND)

    assert delay_of(process, "mail", send) <= 10 * MILLISECOND


@pytest.mark.parametrize("layout", [Layout(time_shards=3), RING], ids=["three rows", "248 rows"])
@pytest.mark.parametrize("quiet", [5 * SECOND, 100 * SECOND])
def test_a_message_of_a_clock_that_is_behind_begins_soon_although_its_time_shard_has_ended(
    store: Lossy, clock: TimeMachine, layout: Layout, quiet: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is in use, or idle and had a turn in the time shard that began."""
    monkeypatch.setattr(idle_queues, "_TURN", SECOND // 4)
    process = Process(clock, store, layout=layout)
    end_of_time_shard(process, before=quiet)
    sender(store, clock, layout=layout).send(1)
    end_of_time_shard(process, before=0)
    process.pass_time(SECOND)
    behind = ShiftedClock(clock, -3 * SECOND // 2)
    assert process.mail.core.scheduler.activity.idle is (quiet > IN_USE)
    assert delay_of(process, "mail", lambda: sender(store, behind, layout=layout).send(1)) <= SECOND


@pytest.mark.parametrize("layout", [Layout(time_shards=3), RING], ids=["three rows", "248 rows"])
def test_a_turn_just_after_a_time_shard_began_finds_what_was_sent_to_its_rows(
    store: Lossy, clock: TimeMachine, layout: Layout
) -> None:
    """Without its notice; it is the first time that the process looks at the queue in that time shard."""
    process = Process(clock, store, layout=layout)
    end_of_time_shard(process, before=SECOND // 10)
    store.loses = True
    clock.advance("0.1s")
    assert delay_of(process, "mail", lambda: sender(store, clock, layout=layout).send(1)) <= 2 * SECOND + SECOND // 5


@pytest.mark.parametrize("lost", [False, True], ids=["with its notice", "without"])
def test_a_suspended_process_finds_what_was_sent_in_a_time_shard_that_began_and_ended_meanwhile(
    store: Lossy, clock: TimeMachine, *, lost: bool
) -> None:
    """That row was not current when it last looked, nor is it one that ended within the last minute."""
    minutes = Layout(time_shards=30, time_shard_us=60 * SECOND, concurrency_shards=8)
    process = Process(clock, store, layout=minutes)
    process.become_idle()
    clock.advance("1m")
    store.loses = lost
    sender(store, clock, layout=minutes).send(1)
    clock.advance("3m")
    assert delay_of(process, "mail", lambda: None) <= (3 * SECOND if lost else 50 * MILLISECOND)


def test_a_queue_whose_turns_are_rare_finds_in_the_next_one_what_was_sent_before_the_time_shard_ended(
    store: Lossy, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a process with 75 idle queues. Two messages are sent after the end, and their ring is the last one."""
    monkeypatch.setattr(idle_queues, "_TURN", 150 * SECOND)
    process, sending = Process(clock, store, layout=RING), sender(store, clock, layout=RING)
    end_of_time_shard(process, before=SECOND)
    store.loses = True
    sending.send(1)
    process.pass_time(2 * SECOND)
    sending.send(2)
    process.pass_time(150 * SECOND, SECOND // 8)
    assert len(process.mail.got) == 3


def end_of_time_shard(process: Process, *, before: int) -> None:
    """Let time pass until this long before the time shard ends."""
    end = process.mail.core.ring.closes(process.clock.now()) - before
    process.pass_time(end - process.clock.now() - SECOND, SECOND // 4)
    left = end - process.clock.now()
    process.pass_time(left, left)
