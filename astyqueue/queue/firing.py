"""Firing the schedules of a queue where its rows are worked on: no process of its own, and no leader."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from astyqueue.ids import is_derived
from astyqueue.model.event import Kind
from astyqueue.model.schedules import SCHEDULE
from astyqueue.protocol.fire import Schedules
from astyqueue.protocol.picking import Held
from astyqueue.protocol.process import Process
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.slots import Skipped
from astyqueue.protocol.steps import Steps
from astyqueue.queue.history import History
from astyqueue.queue.stats import Stats
from astyqueue.triggers import Triggers

#: Schedules of which it is remembered how late they are; of more, those seen first.
_REMEMBERED: Final = 10_000


@dataclass(slots=True)
class Late:
    """How late something was, in microseconds: how often it came, the sum, and the worst."""

    count: int = 0
    total: int = 0
    worst: int = 0

    def note(self, late: int) -> None:
        """It came so late, this time."""
        self.count += 1
        self.total += max(0, late)
        self.worst = max(self.worst, late)


@dataclass(slots=True)
class Lateness:
    """Of one schedule, in this process: from slot to fire, and from slot to when its message was handed to somebody."""

    fired: Late
    started: Late


class Firings:
    """Fires what is due in a row that is worked on here, unless it was turned off."""

    def __init__(self, process: Process, stats: Stats, triggers: Triggers | None, *, history: History) -> None:
        """Without triggers nothing is fired here: others do, or nobody."""
        self.lateness: dict[str, Lateness] = {}
        self._process = process
        self._stats = stats
        self._history = history
        self._schedules = None if triggers is None else Schedules(process, triggers)

    @property
    def on(self) -> bool:
        """Whether schedules are fired here."""
        return self._schedules is not None

    def turn_off(self) -> None:
        """Fire nothing here from now on."""
        self._schedules = None

    def fire(self, sight: Sight) -> Steps[int]:
        """Fire what is due, and say how many slots that were; costs no read unless something is."""
        if self._schedules is None or not sight.fires:
            return 0
        skipped: list[Skipped] = []
        events = self._history.events
        try:
            fired = yield from self._schedules.fire(sight, skipped)
        finally:
            self._history.note(Kind.SKIPPED, lambda: events.of_skipping(skipped))
        self._history.note(Kind.SENT, lambda: events.of_scheduled(sight.row, fired))
        self._history.note(Kind.FIRED, lambda: events.of_firing(sight.row, fired))
        self._stats.add("fired", len(fired))
        for one in fired:
            if late := self._of(one.schedule):
                late.fired.note(one.at - one.slot)
        return len(fired)

    def handed_out(self, messages: Iterable[Held]) -> None:
        """Take note of when messages of schedules reach somebody. Any sender may give a message their header, but no such id."""
        now = self._process.now()
        for entry, envelope in messages:
            name = (envelope.headers or {}).get(SCHEDULE)
            if name is not None and is_derived(entry.id) and (late := self._of(name)):
                late.started.note(now - envelope.due)

    def _of(self, name: str) -> Lateness | None:
        found = self.lateness.get(name)
        if found is None and len(self.lateness) < _REMEMBERED:
            found = self.lateness[name] = Lateness(Late(), Late())
        return found
