"""Row locks of a user's lock manager: an object with `acquire` and `release`, called in a thread of its own.

A manager may be slow, wrong, raise or never return. So callers wait for it at most half a second, its errors reach no
consumer, and a lock that was acquired too late is released.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Final, Protocol

from astyqueue.clock import Clock
from astyqueue.errors import Busy
from astyqueue.protocol.coordination.row_lock import LockHandle
from astyqueue.protocol.steps import Steps
from astyqueue.structured_log import log_event
from astyqueue.units import SECOND
from astyqueue.waiting import Rest, Wakeup

#: The longest wait for `acquire`. After it the row counts as busy, and so does every other row until the call has
#: ended.
PATIENCE: Final = SECOND // 2

_log: Final = logging.getLogger("astyqueue.queue")


class LockManager(Protocol):
    """The interface of a user's lock manager. Rows have the same names in every process."""

    def acquire(self, row: str) -> bool:
        """Take the lock of a row and return True; if it is taken, return False (or raise Busy) at once."""
        ...

    def release(self, row: str) -> None:
        """Release the lock of a row that was acquired."""
        ...


class ManagerCall(Protocol):
    """One call of a lock manager."""

    def carry_out(self, manager: LockManager) -> None:
        """Make the call; errors of the manager are raised."""
        ...


class ManagedLock:
    """The row lock of one queue, by a lock manager. Calls are made one after the other."""

    leases = False

    def __init__(self, clock: Clock, hand_in: Callable[[ManagerCall], None]) -> None:
        """`hand_in` queues a call, without blocking, for another thread to make after those before it."""
        self._clock = clock
        self._hand_in = hand_in
        self._asked: _Acquire | None = None

    def acquire(self, row: str) -> Steps[LockHandle | None]:
        """Acquire the lock of a row; None if it is busy, or if the manager does not answer within half a second."""
        if self._asked is not None and self._asked.answer is None:
            return None
        asked = self._asked = _Acquire(row, Wakeup(self._clock))
        self._hand_in(asked)
        until = self._clock.monotonic() + PATIENCE
        try:
            while asked.answer is None and self._clock.monotonic() < until:
                yield Rest(asked.wakeup, until)
        except BaseException:
            if asked.give_up():
                self._release(row)
            raise
        return LockHandle(let_go=partial(self._release, row)) if asked.give_up() else None

    def _release(self, row: str) -> None:
        self._hand_in(_Release(row))


class CallingThread:
    """Makes the calls of one queue in a thread that starts with the first call and ends with this object."""

    def __init__(self, manager: LockManager) -> None:
        """`manager` is called from the new thread only."""
        self._manager = manager
        self._calls: SimpleQueue[ManagerCall | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def hand_in(self, call: ManagerCall) -> None:
        """Queue a call."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=_serve, args=(self._manager, self._calls), name="astyqueue-row-lock", daemon=True
            )
            self._thread.start()
            weakref.finalize(self, self._calls.put, None)
        self._calls.put(call)


class _Acquire:
    """A call of `acquire` for a row, and its answer."""

    def __init__(self, row: str, wakeup: Wakeup) -> None:
        self.row = row
        self.wakeup = wakeup
        self.answer: bool | None = None
        self._given_up = False
        self._lock = threading.Lock()

    def carry_out(self, manager: LockManager) -> None:
        """Call `acquire`; release the lock if the caller no longer waits."""
        answer: object = None
        try:
            answer = manager.acquire(self.row)
        except Busy:
            answer = False
        finally:
            wanted = self._answered(yes=answer is True)
        if not isinstance(answer, bool):
            called = f"acquire({self.row!r}) of {type(manager).__name__}"
            message = f"{called} returned {answer!r}: it must return True or False, or raise Busy"
            raise TypeError(message)
        if answer and not wanted:
            manager.release(self.row)

    def _answered(self, *, yes: bool) -> bool:
        with self._lock:
            self.answer = yes
            wanted = not self._given_up
        self.wakeup.set()
        return wanted

    def give_up(self) -> bool:
        """Stop waiting; returns whether the lock was acquired by now."""
        with self._lock:
            self._given_up = True
            return self.answer is True


@dataclass(frozen=True, slots=True)
class _Release:
    """A call of `release` for a row."""

    row: str

    def carry_out(self, manager: LockManager) -> None:
        """Call `release`."""
        manager.release(self.row)


def _serve(manager: LockManager, calls: SimpleQueue[ManagerCall | None]) -> None:
    """Make the calls; of successive failures only the first is logged, because rows are tried again and again."""
    failing = False
    while (call := calls.get()) is not None:
        failure = failure_of(call, manager)
        if failure is not None and not failing:
            log_event(_log, logging.ERROR, "lock_manager_failed", exc_info=failure, manager=type(manager).__name__)
        failing = failure is not None


def failure_of(call: ManagerCall, manager: LockManager) -> BaseException | None:
    """Make a call; returns the error that it raised."""
    try:
        call.carry_out(manager)
    except BaseException as failure:  # noqa: BLE001 - user code may raise anything, and the thread must go on
        return failure
    return None
