"""Signals: Ctrl-C for commands that stop between two commits, and TERM and INT for a worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

from astyqueue.durations import Duration

if TYPE_CHECKING:
    from astyqueue.dispatch.dispatcher import Dispatcher


_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
#: Shells report a process that a signal ended with the exit code 128 + signal.
_BY_SIGNAL: Final = 128


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """A function that returns whether Ctrl-C was pressed inside the block, where it raises no KeyboardInterrupt."""
    pressed: list[int] = []

    def press(number: int, _: FrameType | None) -> None:
        pressed.append(number)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


class Signals:
    """The first signal drains the worker, the second releases running messages and exits, a third kills the process.

    A process that a task forked ends at the first.
    """

    def __init__(self, dispatcher: Dispatcher, drain_timeout: Duration) -> None:
        """Install nothing yet: `catch()` does."""
        self._dispatcher = dispatcher
        self._drain_timeout = drain_timeout
        self._received: list[int] = []
        self._process = os.getpid()

    def catch(self) -> None:
        """Install the handlers."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child that a task forked has nothing to drain
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._received.append(number)
        if len(self._received) == 1:
            self._dispatcher.drain(self._drain_timeout, wait=False)
        else:
            for caught in _SIGNALS:
                signal.signal(caught, signal.SIG_DFL)
            self._dispatcher.stop(wait=False)

    @property
    def forced(self) -> int | None:
        """The exit code of a worker that a second signal stopped; None if there was none."""
        return _BY_SIGNAL + self._received[1] if len(self._received) > 1 else None
