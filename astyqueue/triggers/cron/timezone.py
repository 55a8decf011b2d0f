"""The wall clock of a time zone, as stretches of time with a constant offset from UTC.

Wall times are whole seconds since 1970-01-01 00:00 by the wall clock; moments here are whole seconds since 1970 UTC.
The zone data is this machine's, or else from the `tzdata` package.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from astyqueue.clock import instant
from astyqueue.durations import LATEST
from astyqueue.errors import BadInput
from astyqueue.triggers.cron.matcher import DAY
from astyqueue.units import SECOND

#: The end of the search for occurrences: no instant may be later.
END: Final = LATEST // SECOND
_LAST_YEAR: Final = instant(LATEST).year + 1

_SECOND: Final = timedelta(seconds=1)


class Stretch(NamedTuple):
    """From `begin` until before `end`, the wall clock is `offset` seconds ahead of UTC.

    `reached` is the greatest wall time before `begin`: less than the wall time at `begin` if the clock was put forward
    then, more if it was put back.
    """

    begin: int
    end: int
    offset: int
    reached: int


def zone_named(name: str) -> str:
    """The name itself if there is a zone of this name, else BadInput."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        problem = f"unknown time zone {name!r}: give a name of the IANA database, such as Europe/Paris or UTC"
        raise BadInput(problem) from error
    return name


def stretches(zone: str, second: int) -> Iterator[Stretch]:
    """The stretch that contains this second, and those that follow; each ends with its year at the latest."""
    for year in range(datetime.fromtimestamp(second, UTC).year, _LAST_YEAR):
        yield from (stretch for stretch in _stretches_of(zone, year) if stretch.end > second)


def first_shown(zone: str, wall: int, *, since: int) -> int:
    """The first second, not before `since`, at which a clock of the zone shows this wall time or has passed it."""
    for stretch in stretches(zone, since):
        if wall < stretch.end + stretch.offset:
            return max(since, stretch.begin, wall - stretch.offset)
    return END


@lru_cache(maxsize=4_096)
def _stretches_of(zone: str, year: int) -> tuple[Stretch, ...]:
    """The stretches of a year (UTC); `reached` includes clocks put back on the last day of the year before."""
    first, last = (int(datetime(which, 1, 1, tzinfo=UTC).timestamp()) for which in (year, year + 1))
    marks = sorted({first - DAY, first, last, *_changes(ZoneInfo(zone), first - DAY, last)})
    found: list[Stretch] = []
    for begin, end in pairwise(marks):
        offset = _offset(ZoneInfo(zone), begin)
        reached = max(found[-1].reached, begin + found[-1].offset) if found else begin + offset
        found.append(Stretch(begin, end, offset, reached))
    return tuple(stretch for stretch in found if stretch.begin >= first)


def _changes(zone: ZoneInfo, first: int, last: int) -> Iterator[int]:
    """The seconds from `first` to `last` at which the offset changes; at most one change a day is found."""
    for day in range(first, last, DAY):
        if _offset(zone, day) != _offset(zone, day + DAY):
            yield _change(zone, day)


def _change(zone: ZoneInfo, before: int) -> int:
    """The first second after `before`, within a day, with another offset."""
    old, after = _offset(zone, before), before + DAY
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if _offset(zone, middle) == old else (before, middle)
    return after


def _offset(zone: ZoneInfo, second: int) -> int:
    """How many seconds the clocks of a zone are ahead of UTC."""
    ahead = datetime.fromtimestamp(second, zone).utcoffset() or timedelta()
    return ahead // _SECOND
