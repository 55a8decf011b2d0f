"""Calls into an event loop from other threads: those that come while it is busy wake it once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

#: The calls that a loop makes at a time; between these other tasks have their turn.
_TOGETHER: Final = 32


class LoopCalls:
    """Calls that other threads have an event loop make, in the order in which they were added.

    Waking a loop costs a system call, and an interpreter that several threads compete for; so the calls that were added
    since it was woken are made together.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` makes the calls."""
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._woken = False

    def add(self, call: Callable[[], None]) -> None:
        """Have the loop make this call, which must not raise. Any thread may add one; a closed loop makes none."""
        self._calls.append(call)
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop was closed: no task waits there
                self._loop.call_soon_threadsafe(self._make)

    def _make(self) -> None:
        """Make the calls that were added so far; one that is added from now on wakes the loop again."""
        self._woken = False
        for _ in range(min(len(self._calls), _TOGETHER)):
            self._calls.popleft()()
        if self._calls and not self._woken:
            self._woken = True
            self._loop.call_soon(self._make)
