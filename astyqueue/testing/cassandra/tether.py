"""Run as a script: becomes the given program, which the kernel kills as soon as the one that started it is gone.

That holds however it goes, also by kill -9. It needs Linux; elsewhere the program is only what it is.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def become(starter: int, program: list[str]) -> None:
    """Replace this process by the program, unless the process `starter` is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == starter:
        os.execv(program[0], program)  # noqa: S606 - the program is the one that was asked for, and no shell reads it


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
