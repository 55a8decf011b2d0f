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


def end_of_time_shard(process: Process, *, before: int) -> None:
    """Let time pass until this long before the time shard ends."""
    end = process.mail.core.ring.closes(process.clock.now()) - before
    process.pass_time(end - process.clock.now() - SECOND, SECOND // 4)
    left = end - process.clock.now()
    process.pass_time(left, left)
