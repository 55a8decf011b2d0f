"""The settings of a queue as they are in the store, followed while it is open."""

from __future__ import annotations

from typing import Final

from astyqueue.clock import SECOND
from astyqueue.model.settings import Behaviour, Settings
from astyqueue.protocol.process import Process
from astyqueue.protocol.settings import load_settings
from astyqueue.protocol.steps import Steps

#: Between two looks at the stored settings: half of the ten seconds within which every process follows a change.
_EVERY: Final = 5 * SECOND


class Following:
    """The settings of one queue; whoever leads the claimer looks at the stored ones every few seconds."""

    def __init__(self, process: Process, settings: Settings) -> None:
        """Begin with settings that were just read."""
        self.settings = settings
        self._process = process
        self._next = process.now() + _EVERY

    @property
    def behaviour(self) -> Behaviour:
        """How the queue behaves, as far as is known."""
        return self.settings.behaviour

    def follow(self) -> Steps[None]:
        """Read the settings again if that is due; a queue that was dropped goes on with the last known ones."""
        now = self._process.now()
        if now < self._next and self._next - now <= _EVERY:
            return
        self._next = now + _EVERY
        stored = yield from load_settings(self.settings.name)
        if stored is not None:
            self.settings = stored
