"""Hooks that prepare a store for a fork of its process.

A fork copies one thread and the memory. Locks that other threads hold stay locked for ever in the child, and what
belongs to a process id (a file lock, SQLite's record of its owner) is wrong there. So every watching store is called
before each fork, and after it on both sides.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    """An object to call before and after each fork."""

    def before_fork(self) -> None:
        """Wait for running calls, block new ones, and release what a child must not have."""
        ...

    def after_fork(self, *, child: bool) -> None:
        """Admit calls again, in the parent or in the child."""
        ...


class _Watch:
    """All watching objects, by weak references, so that they can be garbage-collected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watching: weakref.WeakSet[Forked] = weakref.WeakSet()
        self._still: list[Forked] = []
        self._registered = False

    def add(self, watching: Forked) -> None:
        with self._lock:
            self._watching.add(watching)
            if not self._registered and hasattr(os, "register_at_fork"):
                os.register_at_fork(
                    before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
                )
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
    """Call this object's hooks at every fork of the process, for as long as the object exists."""
    _WATCH.add(watching)
