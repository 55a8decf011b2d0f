"""The pipes between the supervisor of `astyqueue worker -p` and one of its processes.

Through one the supervisor makes requests. It does not send signals, because a service manager sends its own to each
process of a service, and two of them would mean to stop at once. When the supervisor dies, however that happens, the
operating system closes its end, and the process drains. Through the other the process says every second that it lives.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from enum import IntEnum, IntFlag
from typing import Final, Self

from astyqueue.clock import SystemClock
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: The variable that names the number of a process, and the descriptors of its ends of the pipes.
_VARIABLE: Final = "ASTYQUEUE_SUPERVISED"
_PARTS: Final = 3
#: Bytes of a request: its stage and the number of the signal that it stands for.
_REQUEST: Final = 2
#: The pause between two statuses.
_EVERY: Final = SECOND
#: What is read of statuses at once: the last one counts.
_READ: Final = 65_536


class Stage(IntEnum):
    """How far the end of a process has come: it drains, then stops at once, then its supervisor kills it.

    A request with NONE stands for a signal that does not end it.
    """

    NONE = 0
    DRAIN = 1
    STOP = 2
    KILL = 3


class Status(IntFlag):
    """What a process says of itself: that it has not stalled, and that it claims."""

    LIVE = 1
    READY = 2


class ProcessPipes:
    """The supervisor's ends."""

    def __init__(self) -> None:
        """Make both pipes. Only the ends of the process are passed on to it."""
        requests, self._requests = os.pipe()
        try:
            self._statuses, statuses = os.pipe()
        except OSError:
            os.close(requests)
            os.close(self._requests)
            raise
        os.set_blocking(self._statuses, False)
        self.of_process = (requests, statuses)

    def environment(self, number: int) -> dict[str, str]:
        """The environment of the process with this number."""
        return {**os.environ, _VARIABLE: ":".join(map(str, (number, *self.of_process)))}

    def passed_on(self) -> None:
        """Close the ends of the process, which has them now."""
        for descriptor in self.of_process:
            os.close(descriptor)

    def request(self, stage: Stage, signal: int) -> None:
        """Have the process reach a stage of its end, or with NONE act on a signal."""
        with contextlib.suppress(BrokenPipeError):  # it has ended
            os.write(self._requests, bytes((stage, signal)))

    def status(self) -> Status | None:
        """The latest status since the last call; None if the process has written none."""
        with contextlib.suppress(BlockingIOError):
            if written := os.read(self._statuses, _READ):
                return Status(written[-1])
        return None

    def close(self) -> None:
        """Close both, as the process has ended."""
        os.close(self._requests)
        os.close(self._statuses)


class Supervised:
    """The ends of a process: its number among those of the supervisor, from 1, and what it says of itself."""

    def __init__(self, number: int, requests: int, statuses: int) -> None:
        """Use `of_this_process`."""
        self.number = number
        self.status: Callable[[], Status] = _starting
        self._requests = requests
        self._statuses = statuses

    @classmethod
    def of_this_process(cls) -> Self | None:
        """The ends of this process, None if it has no supervisor. Processes that tasks start do not inherit them.

        From now on the process says every second that it lives.
        """
        parts = os.environ.pop(_VARIABLE, "").split(":")
        if len(parts) != _PARTS or not all(part.isdecimal() for part in parts):
            return None
        number, requests, statuses = map(int, parts)
        for descriptor in (requests, statuses):
            os.set_inheritable(descriptor, False)  # noqa: FBT003 - the name of the function says what
        os.set_blocking(statuses, False)
        made = cls(number, requests, statuses)
        threading.Thread(target=made._say, name="astyqueue:status", daemon=True).start()
        return made

    def _say(self) -> None:
        clock = SystemClock()
        pause = Wakeup(clock)
        while True:
            try:
                os.write(self._statuses, bytes([self.status()]))
            except BlockingIOError:  # the supervisor is suspended, and the pipe full
                pass
            except BrokenPipeError:
                return
            pause.wait(clock.monotonic() + _EVERY)

    def watch(self, act: Callable[[Stage, int], None], drain_on: int) -> None:
        """Call `act` with each request, in a new thread; with the signal `drain_on` when the supervisor has died."""

        def read() -> None:
            while len(request := os.read(self._requests, _REQUEST)) == _REQUEST:
                act(Stage(request[0]), request[1])
            act(Stage.DRAIN, drain_on)

        threading.Thread(target=read, name="astyqueue:requests", daemon=True).start()


def _starting() -> Status:
    return Status.LIVE
