"""Fires the schedules of a queue in the processes that claim from it: there is no scheduler process and no election."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from astyqueue.ids import is_derived
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Kind
from astyqueue.model.schedule import SCHEDULE
from astyqueue.observe.events import OccurrenceFired
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.fire import FiringPlan, RowSchedules
from astyqueue.protocol.steps import Client, Steps
from astyqueue.queue.history_writer import HistoryWriter
from astyqueue.queue.hooks import HookNotifier
from astyqueue.queue.metrics import QueueStats
from astyqueue.triggers import Triggers

#: The number of schedules whose lateness is measured: those seen first.
_REMEMBERED: Final = 10_000


@dataclass(slots=True)
class LatenessCounter:
    """Lateness in microseconds: count, sum and worst."""

    count: int = 0
    total: int = 0
    worst: int = 0

    def note(self, late: int) -> None:
        """Add one measurement, in microseconds."""
        self.count += 1
        self.total += max(0, late)
        self.worst = max(self.worst, late)


@dataclass(slots=True)
class Lateness:
    """The lateness of one schedule in this process: from occurrence to firing, and to the delivery of its message."""

    fired: LatenessCounter
    started: LatenessCounter


class ScheduleFiring:
    """Fires due occurrences in the rows that this process claims from, unless turned off."""

    def __init__(
        self,
        process: Client,
        stats: QueueStats,
        triggers: Triggers | None,
        *,
        history: HistoryWriter,
        notifier: HookNotifier,
    ) -> None:
        """Without `triggers` this process fires nothing; other processes must."""
        self.lateness: dict[str, Lateness] = {}
        self._process = process
        self._stats = stats
        self._history = history
        self._notifier = notifier
        self._schedules = None if triggers is None else RowSchedules(process, triggers)

    @property
    def on(self) -> bool:
        """Whether this process fires schedules."""
        return self._schedules is not None

    def turn_off(self) -> None:
        """Stop firing in this process for good."""
        self._schedules = None

    def fire(self, snapshot: RowSnapshot) -> Steps[int]:
        """Fire the due occurrences and return their number; reads nothing unless one is due."""
        if self._schedules is None or not snapshot.fires:
            return 0
        events = self._history.events
        fired = yield from self._schedules.fire(snapshot, on_commit=partial(self._committed, snapshot.row))
        self._history.note(Kind.SENT, lambda: events.of_scheduled(snapshot.row, fired))
        self._history.note(Kind.FIRED, lambda: events.of_firing(snapshot.row, fired))
        self._stats.add("fired", len(fired))
        for one in fired:
            if self._process.observers.on:
                message = MessageId(snapshot.row, one.run.priority, one.run.id)
                self._process.observers.notify(OccurrenceFired(snapshot.row, one.schedule, one.occurrence, message))
            if late := self._of(one.schedule):
                late.fired.note(one.at - one.occurrence)
        return len(fired)

    def _committed(self, row: str, plan: FiringPlan) -> None:
        """Record what a commit skipped and cancelled, and queue the calls of hooks."""
        events = self._history.events
        self._history.note(Kind.SKIPPED, lambda: events.of_skipping(plan.skipped))
        cancelled = [(schedule, MessageId(row, *run)) for schedule, run in plan.cancelled.values()]
        self._history.note(
            Kind.CANCELLED,
            lambda: [
                replace(
                    events.of_command(Kind.CANCELLED, one, schedule.template.key, why="replaced"),
                    schedule=schedule.name,
                )
                for schedule, one in cancelled
            ],
        )
        for _, one in cancelled:
            self._notifier.deleted(one, "replaced")

    def handed_out(self, messages: Iterable[ClaimedMessage]) -> None:
        """Measure when messages of schedules are delivered.

        Senders can give any message the header of a schedule, but not an id that is derived from one.
        """
        now = self._process.now()
        for entry, envelope in messages:
            name = (envelope.headers or {}).get(SCHEDULE)
            if name is not None and is_derived(entry.id) and (late := self._of(name)):
                late.started.note(now - envelope.due)

    def _of(self, name: str) -> Lateness | None:
        found = self.lateness.get(name)
        if found is None and len(self.lateness) < _REMEMBERED:
            found = self.lateness[name] = Lateness(LatenessCounter(), LatenessCounter())
        return found
