"""What a store does when its process forks: be still, let go of what cannot be shared, and go on.

A fork copies one thread and everything it sees. Locks held by other threads stay locked for ever in the copy, and what
belongs to a process by its number (a file lock, SQLite's idea of who holds one) is wrong there. So whoever watches is
asked to be still before each fork and told afterwards on which side it woke up.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    """Something that has to know about forks."""

    def before_fork(self) -> None:
        """Finish what is running, start nothing new, hold nothing that a copy must not hold."""
        ...

    def after_fork(self, *, child: bool) -> None:
        """Go on, in the process that forked or in the copy."""
        ...


class _Watch:
    """Everybody who has to know; only a weak hold on them, so that a forgotten store can go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watching: weakref.WeakSet[Forked] = weakref.WeakSet()
        self._still: list[Forked] = []
        self._registered = False

    def add(self, watching: Forked) -> None:
        with self._lock:
            self._watching.add(watching)
            if not self._registered and hasattr(os, "register_at_fork"):
                os.register_at_fork(before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child)
                self._registered = True

    def _before(self) -> None:
        self._lock.acquire()
        self._still = list(self._watching)
        for watching in self._still:
            watching.before_fork()

    def _after_in_parent(self) -> None:
        self._after(child=False)

    def _after_in_child(self) -> None:
        self._after(child=True)

    def _after(self, *, child: bool) -> None:
        for watching in self._still:
            watching.after_fork(child=child)
        self._still = []
        self._lock.release()


_WATCH = _Watch()


def watch(watching: Forked) -> None:
    """Tell this one about every fork of the process for as long as it lives."""
    _WATCH.add(watching)
