"""Child processes that never outlive their parent.

Each runs this file as a script first, which has the kernel kill the process as soon as its parent ends, and executes
the given program then. This holds for every end of the parent, kill -9 included. On other systems than Linux the
program just runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


class Keeper:
    """Starts processes that are killed when this keeper is closed, or when its own process ends in any way.

    The kernel ties a child to the thread that started it, so one thread, which lives until `close`, starts them all.
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="keeper")

    def start(self, command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
        """The process of this command, with its output appended to a file.

        Ctrl-C in this terminal does not reach it.
        """
        return self._thread.submit(_started, command, output).result()

    def close(self) -> None:
        """End the thread, which kills all of its processes."""
        self._thread.shutdown()


def _started(command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
    tethered = [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]
    with output.open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - the command is built here, word by word
            tethered, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def become(starter: int, program: list[str]) -> None:
    """Replace this process by the program, unless the process `starter` has already ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == starter:
        os.execv(program[0], program)  # noqa: S606 - the caller names the program, and no shell parses it


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
