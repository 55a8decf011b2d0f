"""Slots by the calendar and the clocks of a zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Self, TypeVar

from astyqueue.clock import SECOND
from astyqueue.errors import BadInput
from astyqueue.instants import LATEST, instant_of
from astyqueue.triggers.base import Trigger, not_anchored
from astyqueue.triggers.expressions import Form, read_expression
from astyqueue.triggers.fields import Fields
from astyqueue.triggers.walls import END, Stretch, stretches, zone_named

C = TypeVar("C", bound="Cron")

#: To anchor a trigger with a count, its slots are walked once; this many take about a tenth of a second.
MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True, init=False)
class Cron(Trigger):
    """A slot whenever the clocks of a zone show what an expression admits; `docs/explanation/triggers.md` has the rules.

    An expression that admits every hour goes by what the clocks show: it has a slot each time they show it. One that
    leaves an hour out names times of a day: each has one slot, when the clocks first show it, or first have passed it.
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
        """Five fields, minute to day of week, or `@daily` and its like; with `seconds` a sixth field, seconds, last.

        Slots are from `start` to `end`, both included, and `count` in all. Raises `BadExpression`, or BadInput for a
        zone that the IANA database does not have.
        """
        form: Form = "seconds" if seconds else "unix"
        self._fill(expression=" ".join(expression.split()), form=form, zone=zone_named(zone), count=count)
        self._fill(start_us=None if start is None else instant_of(start), end_us=None if end is None else instant_of(end))
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
        """As Quartz writes it: six fields with seconds first, or seven with a year last; `?`; 1 is Sunday."""
        bounded = cls("@daily", zone, start=start, end=end, count=count)
        return _checked(bounded.but(expression=" ".join(expression.split()), form="quartz"))

    def after(self, moment: int) -> int | None:
        """The first slot strictly later than `moment`; slots are whole seconds, from 1970 on."""
        if self.count is not None:
            raise not_anchored(self)
        earliest = max(moment, -1) if self.start_us is None else max(moment, self.start_us - 1, -1)
        found = self._first(earliest // SECOND + 1)
        return None if found is None or found * SECOND > (LATEST if self.end_us is None else self.end_us) else found * SECOND

    def anchored(self, moment: int, *, seed: str = "") -> Cron:  # noqa: ARG002 - nothing is drawn
        """A count becomes the end that it leads to, counting the slots from `start`, or from this moment on."""
        if self.count is None:
            return self
        start_us = moment if self.start_us is None else self.start_us
        uncounted = self.but(count=None, start_us=start_us)
        slot = start_us - 1
        for _ in range(self.count):
            following = uncounted.after(slot)
            if following is None:
                return uncounted
            slot = following
        return uncounted.but(end_us=slot)

    def _first(self, second: int) -> int | None:
        """The first second from this one on that is a slot."""
        fields = read_expression(self.expression, self.form)
        for stretch in stretches(self.zone, second) if second <= END else ():
            earliest = max(second, stretch.begin)
            found = _shown(fields, stretch, earliest) if fields.hourly else _first_reached(fields, stretch, earliest)
            if found is None or found < stretch.end:
                return found
        return None


def _shown(fields: Fields, stretch: Stretch, earliest: int) -> int | None:
    """When a clock that runs on as in this stretch next shows what the fields admit; None when it never does."""
    wall = fields.first(earliest + stretch.offset)
    return None if wall is None else wall - stretch.offset


def _first_reached(fields: Fields, stretch: Stretch, earliest: int) -> int | None:
    """As `_shown`, but no wall time counts again, and those jumped over count when the stretch begins."""
    begin = stretch.begin + stretch.offset
    if stretch.begin == earliest and (skipped := fields.first(stretch.reached)) is not None and skipped <= begin:
        return stretch.begin
    wall = fields.first(max(stretch.reached, earliest + stretch.offset))
    return None if wall is None else wall - stretch.offset


def _checked(cron: C) -> C:
    """The trigger itself, when its fields make one; raises otherwise."""
    read_expression(cron.expression, cron.form)
    if cron.count is not None and not (type(cron.count) is int and 1 <= cron.count <= MOST_COUNTED):
        problem = f"count is how many slots there are, from 1 to {MOST_COUNTED}, and {cron.count!r} was given"
        raise BadInput(problem)
    if cron.start_us is not None and cron.end_us is not None and cron.end_us < cron.start_us:
        problem = "end is before start: there would be no slot"
        raise BadInput(problem)
    return cron
