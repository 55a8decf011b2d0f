"""What TERM and INT do to a worker."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.durations import Duration

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
#: A shell tells a process that was ended by a signal from others by this offset of its exit code.
_BY_SIGNAL: Final = 128


class Signals:
    """The first signal drains, the second gives back what still runs and leaves, a third ends the process on the spot."""

    def __init__(self, dispatcher: Dispatcher, drain_timeout: Duration) -> None:
        """Nothing is caught yet."""
        self._dispatcher = dispatcher
        self._drain_timeout = drain_timeout
        self._received: list[int] = []

    def catch(self) -> None:
        """Catch them from now on."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._received.append(number)
        if len(self._received) == 1:
            self._dispatcher.drain(self._drain_timeout, wait=False)
        else:
            for caught in _SIGNALS:
                signal.signal(caught, signal.SIG_DFL)
            self._dispatcher.stop(wait=False)

    @property
    def forced(self) -> int | None:
        """The exit code of a worker that did not get to finish, if a second one came."""
        return _BY_SIGNAL + self._received[1] if len(self._received) > 1 else None
