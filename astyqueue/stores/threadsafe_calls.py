"""Calls into an event loop from other threads: those that are added while it is busy wake it once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

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


class PerLoop(Generic[T]):
    """What an object needs once for each event loop whose tasks use it."""

    def __init__(self, make: Callable[[asyncio.AbstractEventLoop], T]) -> None:
        """`make` is called in a new event loop, for it."""
        self._make = make
        self._made: dict[asyncio.AbstractEventLoop, T] = {}

    def here(self) -> T:
        """That of the event loop that runs here."""
        loop = asyncio.get_running_loop()
        made = self._made.get(loop)
        return self._new(loop) if made is None else made

    def _new(self, loop: asyncio.AbstractEventLoop) -> T:
        """Make one, and forget those of closed loops. There is no lock: a fork could copy it while a thread has it."""
        for one in tuple(self._made):
            if one.is_closed():
                self._made.pop(one, None)
        return self._made.setdefault(loop, self._make(loop))
