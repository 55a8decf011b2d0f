"""What a process follows while a queue is open: the settings that are in the store, and the store's time."""

from __future__ import annotations

from typing import Final

from astyqueue.clock import SECOND, Clock
from astyqueue.model.settings import Behaviour, Settings
from astyqueue.protocol.process import Process
from astyqueue.protocol.settings import load_settings
from astyqueue.protocol.steps import Steps
from astyqueue.queue.timekeeping import Timekeeping

#: Between two looks at the stored settings: half of the ten seconds within which every process follows a change.
_EVERY: Final = 5 * SECOND


class Following:
    """The settings of one queue; whoever leads the claimer looks at the stored ones every few seconds."""

    def __init__(self, process: Process, settings: Settings, clock: Clock) -> None:
        """Begin with settings that were just read; `clock` is corrected by the store's, if it is this machine's own."""
        self.settings = settings
        self.time = Timekeeping(clock)
        self._process = process
        self._next = process.now() + _EVERY

    @property
    def behaviour(self) -> Behaviour:
        """How the queue behaves, as far as is known."""
        return self.settings.behaviour

    def follow(self, *, only_sends: bool = False) -> Steps[None]:
        """Ask for the time and the settings again if that is due; a queue that was dropped goes on with the last known ones."""
        yield from self.time.follow(only_sends=only_sends)
        now = self._process.now()
        if now < self._next and self._next - now <= _EVERY:
            return
        self._next = now + _EVERY
        stored = yield from load_settings(self.settings.name)
        if stored is not None:
            self.settings = stored
