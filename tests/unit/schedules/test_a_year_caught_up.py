"""A hundred schedules fired through a queue for a year: no occurrence is missing, and none is there twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest

from astyqueue import MessageQueue
from astyqueue.clock import microseconds
from astyqueue.schedules import Schedules
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Cron, Every, Trigger
from astyqueue.units import SECOND
from tests.support.places import ONE_ROW

ZONES: Final = (
    *("Europe/Paris", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kolkata"),
    *("Pacific/Apia", "America/St_Johns", "Africa/Casablanca", "Asia/Tehran", "UTC"),
)
EXPRESSIONS: Final = (
    "30 2 * * *",
    "0 9 * * mon-fri",
    "0 */12 * * *",
    "0 0 L * *",
    "15 1-3 * * sat,sun",
    "5 4 * * fri#2",
    "@weekly",
    "0 3 1 * *",
)
HOURS: Final = 6


def triggers() -> dict[str, Trigger]:
    """A hundred of them, most with times around which clocks change."""
    crons = {f"{expression} {zone}": Cron(expression, zone) for expression in EXPRESSIONS for zone in ZONES}
    return crons | {f"every {hours}h": Every(f"{hours}h", jitter="1h") for hours in range(20, 40)}


@pytest.mark.full
def test_each_occurrence_of_a_hundred_schedules_is_fired_once_though_the_queue_is_read_every_six_hours() -> None:
    clock = TimeMachine()
    queue = MessageQueue.builder().store(MemoryStore(clock)).clock(clock).name("mail").options(**ONE_ROW).build()
    schedules = Schedules(queue)
    begin = clock.now()
    anchored = {name: trigger.anchored(begin, seed=name) for name, trigger in triggers().items()}
    for name, trigger in triggers().items():
        schedules.add(name, trigger, misfire="all 1000")
    found: dict[str, Counter[int]] = defaultdict(Counter)
    end = begin + 366 * 86_400 * SECOND
    while clock.now() < end:
        clock.advance(timedelta(hours=HOURS))
        for name, occurrence in _handed_out(queue):
            found[name][occurrence] += 1
    assert len(anchored) == 100
    for name, trigger in anchored.items():
        assert found[name] == Counter(_until(trigger, begin, clock.now())), name


def _handed_out(queue: MessageQueue) -> Iterator[tuple[str, int]]:
    """The schedules and occurrences of the messages that are due; they are acked."""
    while batch := queue.receive(limit=200):
        with batch:
            yield from [(delivery.headers["schedule"], microseconds(delivery.due)) for delivery in batch]


def _until(trigger: Trigger, begin: int, end: int) -> list[int]:
    occurrences: list[int] = []
    occurrence = trigger.after(begin - 1)
    while occurrence is not None and occurrence <= end:
        occurrences.append(occurrence)
        occurrence = trigger.after(occurrence)
    return occurrences
