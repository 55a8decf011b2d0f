"""What a process follows while a queue is open: the settings that are in the store, and the store's time."""

from __future__ import annotations

import logging
from typing import Final

from astyqueue.clock import SECOND, Clock
from astyqueue.errors import NotFound, Undecodable
from astyqueue.model.settings import Behaviour, Settings
from astyqueue.protocol.process import Process
from astyqueue.protocol.settings import load_settings
from astyqueue.protocol.steps import Steps
from astyqueue.queue.timekeeping import Timekeeping

_log: Final = logging.getLogger("astyqueue.queue")
#: Between two looks at the stored settings: half of the ten seconds within which every process follows a change.
_EVERY: Final = 5 * SECOND
#: A send looks only when nobody who claims or fires in this process has done so for that much longer.
_LEFT_TO_LEADER: Final = 3 * SECOND


class Following:
    """The settings of one queue; whoever leads the claimer looks at the stored ones every few seconds.

    A process that only sends has no such thread, so its sends look, and less often.
    """

    def __init__(self, process: Process, settings: Settings, clock: Clock) -> None:
        """Begin with settings that were just read; `clock` is corrected by the store's, if it is this machine's own."""
        self.settings = settings
        self.time = Timekeeping(clock)
        self._process = process
        self._next = process.now() + _EVERY
        self._missed = 0
        self._made_anew = False
        self._warned: set[str] = set()
        self._warn_of_unread()

    @property
    def gone(self) -> bool:
        """Whether the queue is not in the store any more: it was dropped, also if one of another layout has its name now."""
        return self._missed > 1 or self._made_anew

    @property
    def behaviour(self) -> Behaviour:
        """How the queue behaves, as far as is known."""
        return self.settings.behaviour

    def follow(self, *, only_sends: bool = False) -> Steps[None]:
        """Ask for the time and the settings again if that is due; for a send, if nobody else in this process did.

        The last known settings count on when the queue was dropped, and as far as those that are stored cannot be read. One that was made
        anew with another layout raises NotFound, from then on: it has other rows, and nobody would look for what is sent to those of
        the old one.
        """
        self._see_that_it_is_the_same()
        yield from self.time.follow(only_sends=only_sends)
        now, due = self._process.now(), self._next + (_LEFT_TO_LEADER if only_sends else 0)
        if now < due and self._next - now <= _EVERY:
            return
        self._next = now + _EVERY
        try:
            stored = yield from load_settings(self.settings.name, last=self.behaviour)
        except Undecodable as error:
            self._warn(str(error))
            return
        self._missed = 0 if stored is not None else self._missed + 1
        if stored is None:
            return
        self._made_anew = stored.layout != self.settings.layout
        self._see_that_it_is_the_same()
        self.settings = stored
        self._warn_of_unread()

    def _see_that_it_is_the_same(self) -> None:
        if self._made_anew:
            message = f"queue {self.settings.name!r} was dropped and made anew with another layout: restart this process"
            raise NotFound(message)

    def _warn_of_unread(self) -> None:
        if unread := ", ".join(sorted(self.settings.unread)):
            self._warn(
                f"queue {self.settings.name}: a newer astyqueue stored settings that this one does not understand and ignores: {unread}"
            )

    def _warn(self, problem: str) -> None:
        """Log a problem once, however often the settings are read."""
        if problem not in self._warned:
            self._warned.add(problem)
            _log.warning("%s", problem)
