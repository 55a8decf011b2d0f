"""A fair lock for the writing threads of this process."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Writers:
    """A lock that goes to the thread that has waited longest.

    SQLite lets one connection write at a time; the others poll, with growing delays. The threads of one process queue
    up here instead, and only the first competes with other processes.
    """

    def __init__(self) -> None:
        """Create the lock, free."""
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()
        except BaseException:
            self._leave(turn)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._guard:
            self._next()

    def _leave(self, turn: threading.Lock) -> None:
        """Stop waiting after an interrupt; the lock may have been granted already."""
        with self._guard:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:
                self._next()

    def _next(self) -> None:
        if self._waiting:
            self._waiting.popleft().release()
        else:
            self._taken = False
