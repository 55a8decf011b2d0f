"""The other way to find occurrences: look at each minute of some days in turn, and ask what the clocks show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from astyqueue.triggers import Trigger
from astyqueue.units import SECOND
from tests.unit.triggers.expressions import EVERY_HOUR, Drawn

#: Zones whose clocks change in every way there is, each in a year when they do: by half an hour (Lord Howe), with an
#: offset of three quarters (Chatham), a minute past midnight (St John's in 2010), at midnight (Havana, Santiago,
#: Cairo), back for one month (Casablanca), and with a day left out (Apia in 2011).
ZONES: Final = (
    ("Europe/Berlin", 2026),
    ("America/New_York", 2026),
    ("Australia/Lord_Howe", 2026),
    ("Pacific/Chatham", 2026),
    ("America/St_Johns", 2010),
    ("America/Havana", 2026),
    ("America/Santiago", 2026),
    ("Africa/Cairo", 2026),
    ("Africa/Casablanca", 2026),
    ("Pacific/Apia", 2011),
)
_EPOCH: Final = date(1970, 1, 1)
_DAY: Final = 1_440


class Seen(NamedTuple):
    """A wall time, in minutes of its day, and the minute (since 1970 UTC) at which it was seen."""

    wall: int
    minute: int
    skipped: bool


class Minutes:
    """Days in a row, of UTC, seen through the clocks of a zone."""

    def __init__(self, zone: str, first: int, last: int) -> None:
        """Days are counted from 1970-01-01; the day before the first is looked at, too, for what was shown before."""
        self.begin, self.end = first * _DAY * 60, (last + 1) * _DAY * 60
        self._shown: dict[int, list[Seen]] = defaultdict(list)
        self._reached: dict[int, list[Seen]] = defaultdict(list)
        clock = ZoneInfo(zone)
        top = shown(clock, (first - 1) * _DAY)
        for minute in range((first - 1) * _DAY, (last + 1) * _DAY):
            wall = shown(clock, minute)
            if minute >= first * _DAY:
                self._shown[wall // _DAY].append(Seen(wall % _DAY, minute, skipped=False))
                self._note_reached(range(top + 1, wall + 1), minute)
            top = max(top, wall)

    def _note_reached(self, walls: range, minute: int) -> None:
        """Note the wall times that the clocks come to at a minute; all but the last of them are skipped."""
        for wall in walls:
            self._reached[wall // _DAY].append(Seen(wall % _DAY, minute, skipped=wall < walls[-1]))

    def occurrences(self, drawn: Drawn) -> list[int]:
        """The seconds at which this expression has an occurrence.

        With every hour admitted, all at which it matches what is shown; otherwise those at which a time that matches is
        reached for the first time, be it shown or skipped.
        """
        seen = self._shown if drawn.hours == EVERY_HOUR else self._reached
        walls = frozenset(hour * 60 + minute for hour in drawn.hours for minute in drawn.minutes)
        days = [day for day in seen if drawn.day(_EPOCH + timedelta(days=day))]
        found = {
            second
            for day in days
            for wall, minute, skipped in seen[day]
            if wall in walls
            for second in ([minute * 60] if skipped else [minute * 60 + second for second in drawn.seconds])
        }
        return sorted(found)


def shown(zone: ZoneInfo, minute: int) -> int:
    """What the clocks of a zone show, in minutes since 1970-01-01 00:00 on the wall."""
    wall = datetime.fromtimestamp(minute * 60, zone).replace(tzinfo=UTC)
    return int(wall.timestamp()) // 60


def fired(trigger: Trigger, begin: int, end: int) -> list[int]:
    """The occurrences from one second until before another, in seconds, as the trigger gives them."""
    return [occurrence // SECOND for occurrence in occurrences(trigger, begin * SECOND, end * SECOND)]


def occurrences(trigger: Trigger, begin: int, end: int) -> Iterator[int]:
    """The occurrences from one moment until before another."""
    occurrence = trigger.after(begin - 1)
    while occurrence is not None and occurrence < end:
        yield occurrence
        occurrence = trigger.after(occurrence)


def year(which: int) -> range:
    """The days of a year, counted from 1970-01-01."""
    return range((date(which, 1, 1) - _EPOCH).days, (date(which + 1, 1, 1) - _EPOCH).days)


def changes(zone: str, days: range) -> list[int]:
    """The days within which the clocks of a zone are changed."""
    return [day for day in days if offset(zone, day) != offset(zone, day + 1)]


def offset(zone: str, day: int) -> int:
    return shown(ZoneInfo(zone), day * _DAY) - day * _DAY


def windows(zone: str, days: range, random: Random) -> list[Minutes]:
    """All days within three of a change, and twenty others."""
    changed = [Minutes(zone, day - 3, day + 3) for day in changes(zone, days)]
    return changed + [Minutes(zone, day, day) for day in random.sample(days, 20)]


def differing(drawn: Drawn, zone: str, spans: Iterable[Minutes]) -> list[int]:
    """The seconds that are occurrences only by looking at every minute, or only by asking the trigger."""
    trigger = drawn.trigger(zone)
    return [
        second
        for span in spans
        for second in sorted(set(span.occurrences(drawn)) ^ set(fired(trigger, span.begin, span.end)))
    ]
