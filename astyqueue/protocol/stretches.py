"""Reading past what was deleted: stretch by stretch, where one slice would pass more of it than the store puts up with.

A store of many machines keeps a tombstone for each deleted column for a day, and gives up a read that passes too many. So a
long slice is read in slices of time, in ascending order, until the asked number is found or the end is reached.

How long a stretch may be follows from the rate of ids that this process has seen in the row. A process that has seen none
begins with short stretches and doubles them. A stretch that the store gives up is read again in shorter ones, and its length
is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.errors import SliceTooLong
from astyqueue.ids import Id
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Column, Slice

_SECOND: Final = 1_000_000
#: Ids that the first stretch of a walk passes, and those that any stretch passes at most. Cassandra gives up at 100 000
#: tombstones; what lies between is for a rate that was higher than the one seen.
_FIRST: Final = 10_000
_MOST: Final = 40_000
#: The first stretch where no rate is known.
_CAUTIOUS: Final = 30 * _SECOND
#: After a failure a stretch is so many times shorter, after a success so many times longer.
_SHORTER: Final = 16
_LONGER: Final = 2
#: What lies ahead of the present is tried in one read again after a stretch, and each time after one so many times longer.
_FURTHER: Final = 4
#: A length that failed is remembered as a limit, which rises by this part of itself with each stretch that reached it.
_RISES: Final = 1_024
#: A longer pause between two claims counts as one of this length: the rate is to be the one of busy times.
_PAUSE: Final = 60 * _SECOND
#: No row takes more ids a second for long; what was sent at one moment would show any rate.
_FASTEST: Final = 3_000
#: The rate is that of about so much time.
_REMEMBERED: Final = 600 * _SECOND
#: Before this, a store has no tombstones left, or few: stretches grow without limit.
_PURGED: Final = 48 * 3_600 * _SECOND
_NEVER: Final = 1 << 62


@dataclass(slots=True)
class Strides:
    """How long the stretches of one type of column in one row may be, as far as one process knows; all times in microseconds.

    Wrong numbers cost reads, never a column. `like`: the strides of similar rows, whose rate counts until one is seen here.
    `crowded`: the moment from which on the rest of the row could be read at once, although it lay ahead of the present.
    """

    like: Strides | None = None
    crowded: int = 0
    _ids: float = 0
    _time: float = 0
    _last: int = _CAUTIOUS
    _limit: int = _NEVER

    def saw(self, count: int, after: Id, last: Id) -> None:
        """Take note of so many ids behind `after`, up to `last`: they tell the rate at which ids come."""
        self._ids += count
        self._time += max(0, min(ids.moment(last) - ids.moment(after), _PAUSE))
        if self._time > _REMEMBERED:
            self._ids, self._time = self._ids / 2, self._time / 2
        if self.like:
            self.like.saw(count, after, last)

    @property
    def known(self) -> bool:
        """Whether a rate is known."""
        return self._ids > 0 or (self.like is not None and self.like.known)

    def lasts(self, count: int) -> int:
        """The time in which so many ids come, at the rate that is known; for ever if none is."""
        if self._ids > 0:
            return count * max(int(self._time / self._ids), _SECOND // _FASTEST)
        return self.like.lasts(count) if self.like else _NEVER

    @property
    def longest(self) -> int:
        """What no stretch exceeds."""
        return max(1, min(self._limit, self.lasts(_MOST)))

    @property
    def first(self) -> int:
        """The length of the first stretch of a walk."""
        return max(1, min(self._limit, self.lasts(_FIRST) if self.known else self._last))

    @property
    def at_once(self) -> int:
        """What is read in one stretch, if it is all there is to read."""
        return self.longest if self.known else self.first

    def went_well(self, length: int) -> None:
        """A stretch of this length was read."""
        self._last = max(self._last, length)
        if length >= self._limit:
            self._limit += max(1, self._limit // _RISES)

    def failed(self, length: int) -> None:
        """A stretch of this length was too much for the store."""
        self._last = max(1, min(self._last, length // _SHORTER))
        self._limit = max(1, min(self._limit, length // 2))


class Through(NamedTuple):
    """What was read. `long`: it had to be read in stretches, for all that was deleted there."""

    columns: list[Column]
    long: bool


def read_through(wanted: Slice, now: int, strides: Strides, *, whole: bool = False, exact: bool = False) -> Steps[Through]:
    """The columns of a slice of one priority, read upwards in as many stretches as it takes.

    With `whole` it is tried in one read first: that is for slices in which little was deleted as a rule. So is one that begins where
    nobody has looked yet.
    """
    walk = Walk.through(wanted, now, strides, whole=whole, exact=exact)
    found: list[Column] = []
    while not walk.over and (wanted.limit is None or len(found) < wanted.limit):
        found += yield from walk.step(None if wanted.limit is None else wanted.limit - len(found))
    return Through(found, walk.long)


def read_in_pages(wanted: Slice, page: int, strides: Strides, *, exact: bool = False) -> Steps[list[Column]]:
    """Every column from the beginning of a slice on, so many at a time, upwards; most of them lie ahead of the present."""
    found: list[Column] = []
    while True:
        part = replace(wanted, limit=page)
        columns, _ = yield from read_through(part, ids.moment(part.after), strides, whole=True, exact=exact)
        found += columns
        if len(columns) < page:
            return found
        wanted = replace(wanted, after=columns[-1].name.id, beyond=True)


@dataclass(slots=True, kw_only=True)
class Walk:
    """One slice on its way, a step at a time: up to `end` in stretches, the rest in one read.

    That is also the read of the last stretch, unless the rest is to be read `apart`. `long`: it takes stretches, for all that was
    deleted there.
    """

    wanted: Slice
    strides: Strides
    now: int
    exact: bool
    start: int
    end: int
    length: int
    whole: bool
    apart: bool
    long: bool
    over: bool = False
    _further: int = 0

    @classmethod
    def through(cls, wanted: Slice, now: int, strides: Strides, *, whole: bool = False, exact: bool = False) -> Walk:
        """Begin; with `whole`, or where nobody has looked yet, all of it is tried in one read first."""
        bound = ids.moment(wanted.until)
        start = max(0, ids.moment(wanted.after))
        crowded = now < strides.crowded and start < strides.crowded
        end = max(start, min(strides.crowded if crowded else now, bound))
        whole = (whole or start == 0) and not (crowded and now < bound)
        span = max(1, end - start)
        return cls(
            wanted=wanted,
            strides=strides,
            now=now,
            exact=exact,
            start=start,
            end=end,
            length=span if whole or span <= strides.at_once else strides.first,
            whole=whole,
            apart=crowded and end < bound,
            long=not whole and strides.known and span > strides.longest,
        )

    def step(self, limit: int | None) -> Steps[list[Column]]:
        """Read the next part, or the first so many columns of it. One that is too much for the store shows nothing: the next is shorter."""
        if not self.whole:
            self.length = min(self.length, self._limit())
        part = replace(self.wanted, until=self._until(), limit=limit)
        try:
            columns = yield from read_one(part, exact=self.exact)
        except SliceTooLong:
            if not self._shorten(part):
                raise
            self.whole = False
            return []
        if limit is not None and len(columns) == limit:
            self.wanted = replace(self.wanted, after=columns[-1].name.id, beyond=True)
            self.start = max(self.start, ids.moment(columns[-1].name.id))
        elif part.until == self.wanted.until:
            self.over = True
        else:
            self._go_on(part.until)
        return columns

    def _limit(self) -> int:
        purged = self.now - _PURGED
        return self.strides.longest if self.start >= purged else purged - self.start

    def _until(self) -> Id:
        """Where the next part ends."""
        rest = self.start >= self.end or (not self.apart and self.start + self.length >= self.end)
        return self.wanted.until if rest else min(self.wanted.until, ids.first_at(min(self.start + self.length, self.end)))

    def _shorten(self, part: Slice) -> bool:
        """Go on with a shorter part, or walk first through some of what was taken for the rest; False if there is no shorter one."""
        self.long = True
        if self.start >= self.end:
            self._further = self._further * _FURTHER or self.strides.first
            self.end = self.start + self._further
            self.strides.crowded = max(self.strides.crowded, self.end)
            self.length, self.apart = self.strides.first, True
            return True
        span = min(self.length, self.end - self.start)
        if part.until == self.wanted.until and self.end < ids.moment(self.wanted.until):
            self.apart = True  # what was too much may all lie in the rest
        elif 0 < (older := self.now - _PURGED - self.start) < span:
            self.length = older
            return True
        elif span <= 1:
            return False
        else:
            self.strides.failed(span)
        self.length = max(1, min(self.strides.first, span // _SHORTER))
        return True

    def _go_on(self, reached: Id) -> None:
        at = ids.moment(reached)
        self.strides.went_well(at - self.start)
        self.start, self.length = at, self.length * _LONGER
        self.wanted = replace(self.wanted, after=reached, beyond=False)
