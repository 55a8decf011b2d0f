"""What is left of a count when a schedule gets another trigger: all that was asked for, and no occurrence more."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astyqueue.clock import instant
from astyqueue.model.schedule import Schedule
from astyqueue.protocol.scheduling.schedule_commands import pause, resume
from astyqueue.triggers import Cron, Days, Every, Excluding, Trigger, Triggers
from astyqueue.units import SECOND
from tests.unit.protocol.schedule_table import MINUTE, Timetable

HOUR = 3_600 * SECOND
DAY = 24 * HOUR
#: More than any trigger here has.
MANY = 200


def to_come(schedule: Schedule) -> list[int]:
    """The occurrences that a schedule has left."""
    trigger = Triggers().read(schedule.anchored)
    assert trigger.after(schedule.last) == schedule.next
    return list(islice(series(trigger, schedule.last), MANY))


def series(trigger: Trigger, last: int) -> list[int]:
    """The occurrences of an anchored trigger later than this moment, up to `MANY`."""
    found: list[int] = []
    while len(found) < MANY and (following := trigger.after(found[-1] if found else last)) is not None:
        found.append(following)
    return found


def fire_all(table: Timetable) -> None:
    """Fire and work off all that is due."""
    while table.fire() or table.work():
        pass


@pytest.fixture
def table() -> Timetable:
    table = Timetable()
    table.clock.set(table.now // DAY * DAY + DAY)
    table.anchored = table.now
    return table


def test_a_count_from_a_start_has_the_occurrences_before_a_change_of_the_hour_in_it_already(table: Timetable) -> None:
    start = instant(table.now)
    table.make(trigger=Cron("0 9 * * *", start=start, count=10))
    table.clock.advance(4 * DAY // SECOND + 12 * 3_600)
    fire_all(table)
    assert table.there().occurrences == 5
    schedule = table.make(trigger=Cron("0 10 * * *", start=start, count=10))
    hours = [(occurrence - table.anchored) / HOUR for occurrence in to_come(schedule)]
    assert hours == [24 * day + 10 for day in range(5, 10)]


def test_a_greater_count_from_the_same_start_adds_the_difference(table: Timetable) -> None:
    start = instant(table.now + MINUTE)
    table.make(trigger=Every("1m", start=start, count=5))
    table.clock.advance("3m")
    fire_all(table)
    schedule = table.make(trigger=Every("1m", start=start, count=8))
    assert table.minutes(to_come(schedule)) == [4, 5, 6, 7, 8]


def test_a_count_that_is_used_up_fires_nothing_more_also_not_after_a_pause(table: Timetable) -> None:
    table.make(trigger=Every("1m", delay="1m", count=9))
    table.clock.advance("5m")
    fire_all(table)
    schedule = table.make(trigger=Every("2m", delay="1m", count=5))
    assert (schedule.next, schedule.occurrences) == (None, 5)
    table.run(pause(table.handle("digest"), "by hand"))
    table.clock.advance("20m")
    resumed = table.run(resume(table.handle("digest"), lambda one: Triggers().read(one.anchored)))
    assert (resumed.next, resumed.occurrences) == (None, 5)
    fire_all(table)
    assert table.sends() == [1, 2, 3, 4, 5]


def test_occurrences_that_wait_are_sent_when_the_new_count_is_used_up_and_no_others(table: Timetable) -> None:
    table.make(trigger=Every("1m", delay="1m", count=9), overlap="queue all")
    table.clock.advance("4m")
    table.fire()
    schedule = table.make(trigger=Every("2m", count=3), overlap="queue all")
    assert (schedule.next, len(schedule.backlog)) == (None, 3)
    table.clock.advance("20m")
    fire_all(table)
    assert table.there().ended
    assert table.sends() == [1, 2, 3, 4]


@pytest.mark.parametrize("trigger", [Every("1h", count=4), Cron("0 * * * *", count=4)])
def test_a_trigger_given_after_the_clock_was_set_back_has_its_whole_count_left(
    table: Timetable, trigger: Trigger
) -> None:
    table.make(trigger=Every("1m", delay="1m"))
    table.clock.advance("5h")
    fire_all(table)
    table.clock.set(table.now - 3 * HOUR)
    assert len(to_come(table.make(trigger=trigger))) == 4


def test_excluded_days_use_up_a_count_from_a_start_once(table: Timetable) -> None:
    start = instant(table.now)
    free = Days([f"{start + timedelta(days=1):%Y-%m-%d}"])

    def at(hour: int) -> Trigger:
        return Excluding(Cron(f"0 {hour} * * *", start=start, count=6), free)

    table.make(trigger=at(9))
    table.clock.advance(2 * DAY // SECOND + 12 * 3_600)
    fire_all(table)
    assert table.there().occurrences == 2
    hours = [(occurrence - table.anchored) / HOUR for occurrence in to_come(table.make(trigger=at(10)))]
    assert hours == [24 * day + 10 for day in range(3, 6)]


@st.composite
def triggers(draw: st.DrawFn, begin: datetime) -> Trigger:
    """A trigger of some minutes up to an end, with or without a start and a count."""
    minutes = draw(st.integers(1, 7))
    start = draw(st.none() | st.integers(-20, 30).map(lambda offset: begin + timedelta(minutes=offset)))
    count = draw(st.none() | st.integers(1, 20))
    end = begin + timedelta(minutes=draw(st.integers(60, 90)))
    if draw(st.booleans()):
        return Cron(f"*/{minutes} * * * *", start=start, count=count, end=end)
    return Every(f"{minutes}m", start=start, count=count, end=end)


def as_asked(table: Timetable, before: Schedule, wanted: Every | Cron) -> list[int]:
    """The occurrences to come by what the guide says: without a start, less those handled of a trigger with a count."""
    if wanted.document() == before.declared:
        return to_come(before)
    begin = max(table.now, before.last)
    if wanted.count is None or wanted.start_us is not None:
        return series(wanted.anchored(begin), max(table.now - 1, before.last))
    handled = before.occurrences if (before.declared or {}).get("count") else 0  # type: ignore[union-attr]  # an object
    uncounted = wanted.but(count=None).anchored(begin)
    return [one for one in series(uncounted, begin - 1) if one > before.last][: max(0, wanted.count - handled)]


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(data=st.data())
def test_handled_and_coming_occurrences_are_as_many_as_were_asked_for(data: st.DataObject) -> None:
    table = Timetable()
    begin = instant(table.now)
    for _ in range(data.draw(st.integers(1, 3))):
        wanted = data.draw(triggers(begin))
        assert isinstance(wanted, Every | Cron)
        if not series(wanted.anchored(table.now, seed="digest"), table.now - 1):
            continue  # it is refused: it would never send anything
        before = {one.name: one for one in table.all()}.get("digest")
        overlap = data.draw(st.sampled_from(["allow", "skip", "queue all"]))
        schedule = table.make(trigger=wanted, overlap=overlap, misfire=data.draw(st.sampled_from(["all", "once"])))
        coming = to_come(schedule)
        if before is not None:
            assert coming == as_asked(table, before, wanted)
            assert schedule.backlog == before.backlog
        if data.draw(st.booleans()):
            table.run(pause(table.handle("digest"), "by hand"))
        table.clock.advance(data.draw(st.integers(0, 30)) * 60 + 30)
        if table.there().paused and data.draw(st.booleans()):
            table.run(resume(table.handle("digest"), lambda one: Triggers().read(one.anchored)))
        works: bool = data.draw(st.booleans())
        while table.fire() or (works and table.work()):
            pass
        after = table.there()
        assert after.occurrences - schedule.occurrences + len(to_come(after)) == len(coming)
        table.clock.set(table.now - 5 * MINUTE * data.draw(st.integers(0, 1)))
