"""Row locks that somebody else manages: an object of the user's with `acquire` and `release`, called in a thread of its own.

Such an object may be slow, lie, raise or never answer. So nobody waits for it for ever, nothing that it raises reaches a
taker, and a yes that came too late is given back.
"""

from __future__ import annotations

import logging
import threading
import weakref
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Final, Protocol

from astyqueue.clock import SECOND, Clock
from astyqueue.errors import Busy
from astyqueue.protocol.rowlock import Grip
from astyqueue.protocol.steps import Steps
from astyqueue.wakeup import Rest, Wakeup

#: An answer is waited for so long; without one the row counts as busy, and so does every other until the call has ended.
PATIENCE: Final = SECOND // 2

_log: Final = logging.getLogger("astyqueue.queue")


class LockManager(Protocol):
    """What users hand in. Rows are told apart by their names, which are the same in every process."""

    def acquire(self, row: str) -> bool:
        """Take the lock of a row: True, or at once False (or raise Busy) if somebody else has it."""
        ...

    def release(self, row: str) -> None:
        """Let go of the lock of a row that was acquired."""
        ...


class ManagedLock:
    """The lock of the rows of one queue, as a manager has it. Calls are made one after the other, in one thread."""

    leases = False

    def __init__(self, manager: LockManager, clock: Clock) -> None:
        """The thread begins with the first row that is wanted, and ends with this object."""
        self._manager = manager
        self._clock = clock
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._asked: _Asked | None = None

    def acquire(self, row: str) -> Steps[Grip | None]:
        """Ask, and wait for the answer for half a second at most."""
        if self._asked is not None and self._asked.answer is None:
            return None
        asked = self._asked = self._ask(row)
        until = self._clock.monotonic() + PATIENCE
        try:
            while asked.answer is None and self._clock.monotonic() < until:
                yield Rest(asked.wakeup, until)
        except BaseException:
            if asked.give_up():
                self._release(row)
            raise
        return Grip(let_go=partial(self._release, row)) if asked.give_up() else None

    def _ask(self, row: str) -> _Asked:
        if self._thread is None:
            self._thread = threading.Thread(target=_serve, args=(self._manager, self._calls), name="astyqueue-row-lock", daemon=True)
            self._thread.start()
            weakref.finalize(self, self._calls.put, None)
        asked = _Asked(row, Wakeup(self._clock))
        self._calls.put(asked)
        return asked

    def _release(self, row: str) -> None:
        self._calls.put(_Release(row))


class _Asked:
    """A question to the manager: whether we may have this row."""

    def __init__(self, row: str, wakeup: Wakeup) -> None:
        self.row = row
        self.wakeup = wakeup
        self.answer: bool | None = None
        self._given_up = False
        self._lock = threading.Lock()

    def carry_out(self, manager: LockManager) -> None:
        """Ask it, and give back what nobody waits for any more."""
        answer: object = None
        try:
            answer = manager.acquire(self.row)
        except Busy:
            answer = False
        finally:
            wanted = self._tell(yes=answer is True)
        if not isinstance(answer, bool):
            message = f"acquire({self.row!r}) of {type(manager).__name__} said {answer!r}: let it say True or False, or raise Busy"
            raise TypeError(message)
        if answer and not wanted:
            manager.release(self.row)

    def _tell(self, *, yes: bool) -> bool:
        with self._lock:
            self.answer = yes
            wanted = not self._given_up
        self.wakeup.set()
        return wanted

    def give_up(self) -> bool:
        """Wait no more; whether the row was acquired by now."""
        with self._lock:
            self._given_up = True
            return self.answer is True


@dataclass(frozen=True, slots=True)
class _Release:
    """A row that is free again."""

    row: str

    def carry_out(self, manager: LockManager) -> None:
        """Tell the manager."""
        manager.release(self.row)


_Call = _Asked | _Release


def _serve(manager: LockManager, calls: SimpleQueue[_Call | None]) -> None:
    """Make the calls; of failures in a row only the first is told, for a row is tried again and again."""
    failing = False
    while (call := calls.get()) is not None:
        failure = _failure(call, manager)
        if failure is not None and not failing:
            told = "the row lock of %s failed; rows wait until it answers, or nobody has worked there for too long"
            _log.error(told, type(manager).__name__, exc_info=failure)
        failing = failure is not None


def _failure(call: _Call, manager: LockManager) -> BaseException | None:
    try:
        call.carry_out(manager)
    except BaseException as failure:  # noqa: BLE001 - the manager is not ours, and the thread must go on whatever it raises
        return failure
    return None
