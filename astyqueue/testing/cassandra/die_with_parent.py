"""A script that executes the given program; the kernel kills it as soon as the process that started it ends.

This holds for every end of that process, kill -9 included. On other systems than Linux the program just runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def become(starter: int, program: list[str]) -> None:
    """Replace this process by the program, unless the process `starter` has already ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == starter:
        os.execv(program[0], program)  # noqa: S606 - the caller names the program, and no shell parses it


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
