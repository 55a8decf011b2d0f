"""The pipe between the supervisor of `astyqueue worker -p` and one of its processes.

The supervisor writes requests into it. It does not send signals, because a service manager sends its own to each
process of a service, and two of them would mean to stop at once. When the supervisor dies, however that happens, the
operating system closes its end, and the process drains.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Final, NamedTuple, Self

#: The variable that names the number of a process, and the descriptor of its end of the pipe.
_VARIABLE: Final = "ASTYQUEUE_SUPERVISED"
#: Bytes of a request: its stage and the number of the signal that it stands for.
_REQUEST: Final = 2
#: The stages of an end: drain, then stop at once. Zero: a signal that does not end the process.
DRAIN: Final = 1


class ControlPipe:
    """The supervisor's end."""

    def __init__(self) -> None:
        """Make the pipe. Only the read end is passed on to the process."""
        self.read_end, self._write_end = os.pipe()

    def environment(self, number: int) -> dict[str, str]:
        """The environment of the process with this number."""
        return {**os.environ, _VARIABLE: f"{number}:{self.read_end}"}

    def close_read_end(self) -> None:
        """The process has it now."""
        os.close(self.read_end)

    def request(self, stage: int, signal: int) -> None:
        """Have the process reach a stage of its end, or with stage 0 act on a signal."""
        with contextlib.suppress(BrokenPipeError):  # it has ended
            os.write(self._write_end, bytes((stage, signal)))

    def close(self) -> None:
        """The process has ended."""
        os.close(self._write_end)


class Supervised(NamedTuple):
    """The end of a process: its number among those of the supervisor, from 1."""

    number: int
    descriptor: int

    @classmethod
    def of_this_process(cls) -> Self | None:
        """The end of this process, None if it has no supervisor. Processes that tasks start do not inherit it."""
        number, _, descriptor = os.environ.pop(_VARIABLE, "").partition(":")
        if not number.isdecimal() or not descriptor.isdecimal():
            return None
        os.set_inheritable(int(descriptor), False)  # noqa: FBT003 - the name of the function says what
        return cls(int(number), int(descriptor))

    def watch(self, act: Callable[[int, int], None], drain_on: int) -> None:
        """Call `act` with each request, in a new thread; with the signal `drain_on` when the supervisor has died."""

        def read() -> None:
            while len(request := os.read(self.descriptor, _REQUEST)) == _REQUEST:
                act(*request)
            act(DRAIN, drain_on)

        threading.Thread(target=read, name="astyqueue:supervised", daemon=True).start()
