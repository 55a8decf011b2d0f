"""The trigger whose occurrences follow the calendar and clocks of a zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Self, TypeVar

from astyqueue.durations import LATEST, instant_of
from astyqueue.errors import BadInput
from astyqueue.triggers.base import Trigger, not_anchored, wrong_end
from astyqueue.triggers.cron.matcher import Fields
from astyqueue.triggers.cron.parser import Form, read_expression
from astyqueue.triggers.cron.timezone import END, Stretch, stretches, zone_named
from astyqueue.units import SECOND

C = TypeVar("C", bound="Cron")

#: The most occurrences of a trigger with a count: anchoring walks them once, which takes about a tenth of a second.
MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True, init=False)
class Cron(Trigger):
    """Occurs whenever the clocks of a zone show a time that an expression admits; see `docs/explanation/triggers.md`.

    An expression that admits every hour has an occurrence each time the clocks show an admitted time. One that leaves
    an hour out names times of a day: each has one occurrence a day, when the clocks first show that time, or first have
    passed it.
    """

    kind: ClassVar[str] = "cron"

    expression: str
    zone: str
    form: Form
    start_us: int | None
    end_us: int | None
    count: int | None

    def __init__(
        self,
        expression: str,
        zone: str = "UTC",
        *,
        seconds: bool = False,
        start: datetime | None = None,
        end: datetime | None = None,
        count: int | None = None,
    ) -> None:
        """Five fields, minute to day of week, or a short form such as `@daily`; `seconds` adds a sixth field.

        There are at most `count` occurrences, from `start` to `end`, both included. BadExpression for an invalid
        expression, BadInput for a zone that the IANA database does not have.
        """
        form: Form = "seconds" if seconds else "unix"
        self._fill(expression=" ".join(expression.split()), form=form, zone=zone_named(zone), count=count)
        self._fill(
            start_us=None if start is None else instant_of(start), end_us=None if end is None else instant_of(end)
        )
        _checked(self)

    @classmethod
    def quartz(
        cls,
        expression: str,
        zone: str = "UTC",
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        count: int | None = None,
    ) -> Self:
        """A trigger in Quartz's form: six fields with seconds first, or seven with a year last; `?`; 1 is Sunday."""
        bounded = cls("@daily", zone, start=start, end=end, count=count)
        return _checked(bounded.but(expression=" ".join(expression.split()), form="quartz"))

    def after(self, moment: int) -> int | None:
        """The first occurrence strictly later than `moment`; occurrences are whole seconds, from 1970 on."""
        if self.count is not None:  # also with a start: `anchored` walks the occurrences once, not each call of this
            raise not_anchored(self)
        earliest = max(moment, -1) if self.start_us is None else max(moment, self.start_us - 1, -1)
        found = self._first(earliest // SECOND + 1)
        return (
            None
            if found is None or found * SECOND > (LATEST if self.end_us is None else self.end_us)
            else found * SECOND
        )

    def anchored(self, moment: int, *, seed: str = "") -> Cron:  # noqa: ARG002 - nothing is drawn
        """The same with a count replaced by the end it leads to, counted from `start`, or else from this moment."""
        if self.count is None:
            return self
        start_us = moment if self.start_us is None else self.start_us
        uncounted = self.but(count=None, start_us=start_us)
        occurrence = start_us - 1
        for _ in range(self.count):
            following = uncounted.after(occurrence)
            if following is None:
                return uncounted
            occurrence = following
        return uncounted.but(end_us=occurrence)

    def _first(self, second: int) -> int | None:
        """The first second from this one on that is an occurrence."""
        fields = read_expression(self.expression, self.form)
        for stretch in stretches(self.zone, second) if second <= END else ():
            earliest = max(second, stretch.begin)
            found = _shown(fields, stretch, earliest) if fields.hourly else _first_reached(fields, stretch, earliest)
            if found is None or found < stretch.end:
                return found
        return None


def _shown(fields: Fields, stretch: Stretch, earliest: int) -> int | None:
    """When a clock with the offset of this stretch next shows a time that the fields admit; None if it never does."""
    wall = fields.first(earliest + stretch.offset)
    return None if wall is None else wall - stretch.offset


def _first_reached(fields: Fields, stretch: Stretch, earliest: int) -> int | None:
    """As `_shown`, but repeated wall times do not count, and skipped ones count when the stretch begins."""
    begin = stretch.begin + stretch.offset
    if stretch.begin == earliest and (skipped := fields.first(stretch.reached)) is not None and skipped <= begin:
        return stretch.begin
    wall = fields.first(max(stretch.reached, earliest + stretch.offset))
    return None if wall is None else wall - stretch.offset


def _checked(cron: C) -> C:
    """The trigger itself; BadInput if its fields are invalid."""
    read_expression(cron.expression, cron.form)
    if cron.count is not None and not (type(cron.count) is int and 1 <= cron.count <= MOST_COUNTED):
        problem = f"count is {cron.count!r}: give the number of occurrences, from 1 to {MOST_COUNTED}"
        raise BadInput(problem)
    if problem := wrong_end(cron.start_us, cron.end_us):
        raise BadInput(problem)
    return cron
