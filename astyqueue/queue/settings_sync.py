"""Keeps this process in step with the store: the settings of a queue, and the store's time."""

from __future__ import annotations

import contextlib
import logging
import random
from typing import Final

from astyqueue import ids
from astyqueue.clock import Clock, Comparison, CorrectedClock
from astyqueue.errors import NotFound, StoreUnavailable, Undecodable
from astyqueue.model.settings import Behaviour, Settings
from astyqueue.protocol.admin.settings import load_settings
from astyqueue.protocol.coordination.store_time import clock_offset
from astyqueue.protocol.steps import Client, Steps
from astyqueue.structured_log import log_event
from astyqueue.units import BEGINNING, SECOND

_log: Final = logging.getLogger("astyqueue.queue")
#: The pause between two reads of the stored settings: half of the ten seconds within which every process follows a
#: change.
_EVERY: Final = 5 * SECOND
#: A send reads the settings only if they are overdue by this much: a process that claims or fires reads them anyway.
_LEFT_TO_LEADER: Final = 3 * SECOND
#: How often a process compares its clock with the store's: about once a minute if it claims or fires, once an hour if
#: it only sends. Clocks drift by less than a millisecond in a minute. Each process has its own moments, because all of
#: them use the same cell.
_CLOCK_EVERY: Final = 60 * SECOND
_CLOCK_EVERY_FOR_SENDERS: Final = 3_600 * SECOND
#: The pause before the next comparison after one that the store did not answer.
_CLOCK_AGAIN: Final = 20 * SECOND
#: A machine's clock that was set by more than this is compared at once.
_SET: Final = SECOND


class SettingsSync:
    """The settings of one queue; the claimer's leader reads the stored ones every five seconds while it is in use.

    A process that only sends has no leader, so its sends read them, less often.
    """

    def __init__(self, process: Client, settings: Settings, clock: Clock) -> None:
        """`settings` were just read; `clock` is corrected by the store's time if it is a CorrectedClock."""
        self.settings = settings
        self.time = ClockSync(clock)
        self._process = process
        self._next = process.now() + _EVERY
        self._was_stored = False
        self._dropped = False
        self._recreated = False
        self._warned: set[str] = set()
        self._warn_of_unread()

    def __repr__(self) -> str:
        """The queue, and when its settings are read again, or that it is gone."""
        return f"<SettingsSync of {self.settings.name}: {'gone' if self.gone else f'next read {self._next}'}>"

    @property
    def gone(self) -> bool:
        """Whether the queue is gone: it was dropped, even if a queue of another layout has its name now."""
        return self._dropped or self._recreated

    @property
    def behaviour(self) -> Behaviour:
        """The queue's behaviour, as last read."""
        return self.settings.behaviour

    def follow(self, *, only_sends: bool = False, idle: bool = False) -> Steps[None]:
        """Read the store's time and the settings again if that is due; for a send, if no leader of this process did.

        Those of an `idle` queue are not read: a process that changes them puts a notice into the activity log.

        The last known settings stay in force where the stored ones cannot be read, and for what this process has leased
        when the queue was dropped; a send raises NotFound then, unless it was created again. If it was recreated with
        another layout, NotFound is raised from then on: it has other rows, and no consumer would read messages sent to
        the old ones.
        """
        self.check_same_queue()
        yield from self.time.follow(only_sends=only_sends)
        now, due = self._process.now(), self._next + (_LEFT_TO_LEADER if only_sends else 0)
        early = idle or (now < due and self._next - now <= _EVERY)
        if early and not (only_sends and self._dropped):
            return
        self._next = now + _EVERY
        self._process.observers.check_log_levels()
        try:
            stored = yield from self.load(confirmed=self._was_stored)
        except Undecodable as error:
            self.warn(str(error))
            return
        if stored is not None:
            self.stored(stored)
            return
        self._dropped = self._was_stored
        if only_sends and self._dropped:
            message = f"queue {self.settings.name!r} was dropped: create it again, or stop its producers and consumers"
            raise NotFound(message)

    def load(self, *, confirmed: bool) -> Steps[Settings | None]:
        """The stored settings; None if there are none, which is `confirmed` by an exact read."""
        name, last = self.settings.name, self.behaviour
        stored = yield from load_settings(name, last=last)
        if stored is None and confirmed:
            stored = yield from load_settings(name, exact=True, last=last)
        return stored

    def stored(self, settings: Settings) -> None:
        """Take over settings that were just read; NotFound if they are those of a queue with another layout."""
        self._was_stored, self._dropped = True, False
        self._recreated = settings.layout != self.settings.layout
        self.check_same_queue()
        self.settings = settings
        self._warn_of_unread()

    def check_same_queue(self) -> None:
        """Raise NotFound if the queue was recreated with another layout."""
        if self._recreated:
            message = f"queue {self.settings.name!r} was recreated with another layout: restart this process"
            raise NotFound(message)

    def _warn_of_unread(self) -> None:
        if unread := ", ".join(sorted(self.settings.unread)):
            self.warn(f"a newer astyqueue stored settings that this one ignores: {unread}")

    def warn(self, problem: str) -> None:
        """Log a problem only once; the settings are read again and again."""
        if problem not in self._warned:
            self._warned.add(problem)
            log_event(_log, logging.WARNING, "settings_not_followed", queue=self.settings.name, error=problem)


class ClockSync:
    """Corrects this machine's clock by the store's; any other clock that the caller passed is used as it is.

    All queues of a connection share one clock, so one comparison serves all of them.
    """

    def __init__(self, clock: Clock) -> None:
        """Compare at the first opportunity."""
        self._clock = clock if isinstance(clock, CorrectedClock) else None
        self._spread = random.uniform(0.75, 1.25)
        self._not_before = BEGINNING

    def follow(self, *, only_sends: bool = False) -> Steps[None]:
        """Read the store's time if that is due; without an answer the clock stays, and is compared again in 20 s."""
        clock = self._clock
        if clock is None:
            return
        now = clock.comparison()
        if clock.compared is not None and self._holds(
            clock.compared, now, _CLOCK_EVERY_FOR_SENDERS if only_sends else _CLOCK_EVERY
        ):
            return
        if now.at < self._not_before:
            return
        before, clock.compared = clock.compared, now
        here, offset = clock.ahead, None
        try:
            with contextlib.suppress(StoreUnavailable):  # the caller's own request will raise it
                offset = yield from clock_offset(lambda: clock.now() - here, here, nonce=ids.nonce())
        finally:
            if offset is None:
                clock.compared, self._not_before = before, now.at + _CLOCK_AGAIN
            else:
                clock.ahead = offset

    def _holds(self, last: Comparison, now: Comparison, every: int) -> bool:
        return now.at - last.at < every * self._spread and abs(now.shift - last.shift) <= _SET
