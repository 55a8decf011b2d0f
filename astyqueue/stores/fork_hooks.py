"""Hooks that prepare a store for a fork of its process.

A fork copies one thread and the memory. Locks that other threads hold stay locked for ever in the child, and what
belongs to a process id (a file lock, SQLite's record of its owner) is wrong there. So the hooks of every store are
called before each fork, and after it on both sides.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import methodcaller
from typing import Final, Protocol

_ACQUIRE: Final = methodcaller("acquire")
_RELEASE: Final = methodcaller("release")


class Forked(Protocol):
    """An object to call before and after each fork."""

    def before_fork(self) -> None:
        """Wait for running calls, block new ones, and release what a child must not have.

        Called again after an interrupt, such as Ctrl-C, so an exception must leave nothing blocked.
        """
        ...

    def after_fork(self, *, child: bool) -> None:
        """Admit calls again, in the parent or in the child, if `before_fork` returned.

        Called again after an interrupt.
        """
        ...


class HeldLocks:
    """The locks that a hook holds during a fork. An interrupt leaves each lock either free, or recorded here.

    For that, one call of C acquires and records a lock, and one removes and releases it: no signal is handled between.
    """

    def __init__(self) -> None:
        """No lock is held."""
        self._held: list[threading.Lock | None] = []

    def take(self, locks: Sequence[threading.Lock]) -> None:
        """Wait for these locks, in their order; an exception releases them and all that were taken before."""
        try:
            if not self._held:
                self._held.append(None)  # ends the loop in `release`
            self._held.extend(filter(_ACQUIRE, locks))
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release all that are held."""
        if self._held:
            any(map(_RELEASE, iter(self._held.pop, None)))


class _Hooks:
    """All objects with hooks, by weak references, so that they can be garbage-collected.

    Python drops an exception of a hook and forks anyway. So an interrupt is kept while hooks run, and raised after the
    fork.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hooked: weakref.WeakSet[Forked] = weakref.WeakSet()
        self._held = HeldLocks()
        self._forking: int | None = None
        self._prepared: list[Forked] = []
        self._interrupts: list[int] = []
        self._registered = False

    def add(self, hooked: Forked) -> None:
        with self._lock:
            self._hooked.add(hooked)
            if not self._registered and hasattr(os, "register_at_fork"):
                self._register()
                self._registered = True

    def _register(self) -> None:
        """Register each function twice: a signal may be handled at its first instruction, and so end the first call.

        Functions to call before a fork are called in the reverse order.
        """
        for again in (True, False):
            os.register_at_fork(before=partial(self._before, again=again))
        for again in (False, True):
            os.register_at_fork(
                after_in_parent=partial(self._after, child=False, again=again),
                after_in_child=partial(self._after, child=True, again=again),
            )
        # Called from C, and in C: an exception that Python code raises here would be dropped. Python 3.13 drops it all
        # the same if it shows its warning of a fork beside threads, which it does after this, by Python code.
        os.register_at_fork(after_in_parent=partial(self._interrupts.sort, key=_thread.interrupt_main))

    def _before(self, *, again: bool) -> None:
        thread = threading.get_ident()
        if self._forking == thread:
            return
        failures: dict[Forked, Exception] = {}
        interrupted = _despite_interrupts(partial(self._prepare, thread, failures))
        self._interrupts[:] = [signal.SIGINT] * (interrupted or again)
        _raise(failures.values())

    def _prepare(self, thread: int, failures: dict[Forked, Exception]) -> None:
        """Let no other thread fork, and call the hooks of all objects that are neither prepared nor in `failures`."""
        if self._forking != thread:
            self._held.take((self._lock,))
            self._forking = thread
        for hooked in list(self._hooked):
            if hooked in self._prepared or hooked in failures:
                continue
            try:
                hooked.before_fork()
                self._prepared.append(hooked)
            except Exception as error:  # noqa: BLE001 - the others are prepared nevertheless
                failures[hooked] = error

    def _after(self, *, child: bool, again: bool) -> None:
        if self._forking is None or (not child and self._forking != threading.get_ident()):
            return
        failures: list[Exception] = []
        if _despite_interrupts(partial(self._admit, failures, child=child)) or again:
            self._interrupts[:] = [signal.SIGINT]
        _raise(failures)

    def _admit(self, failures: list[Exception], *, child: bool) -> None:
        """Call the hooks of all prepared objects, then let other threads fork."""
        while self._prepared:
            try:
                self._prepared[-1].after_fork(child=child)
            except Exception as error:  # noqa: BLE001 - calls are admitted to the others nevertheless
                failures.append(error)
            self._prepared.pop()
        self._forking = None
        self._held.release()


def _despite_interrupts(step: Callable[[], None]) -> bool:
    """Call `step` until it returns; returns whether it was interrupted before."""
    interrupted = False
    while True:
        try:
            step()
        except (KeyboardInterrupt, SystemExit):
            interrupted = True
        else:
            return interrupted


def _raise(failures: Iterable[Exception]) -> None:
    """Raise failures of hooks, which Python reports as exceptions that it ignored."""
    if raised := list(failures):
        message = "hooks of stores failed at a fork"
        raise ExceptionGroup(message, raised)


_HOOKS = _Hooks()


def call_at_forks(hooked: Forked) -> None:
    """Call this object's hooks at every fork of the process, for as long as the object exists."""
    _HOOKS.add(hooked)
