"""A lock manager as a user may supply it: it may be slow, hang, fail, forget its locks, or grant a lock twice.

The processes of a simulation share it. Each calls it as astyqueue does, one call after the other, but in the
simulation's time.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from astyqueue.errors import Busy
from astyqueue.queue.row_sharing.external_lock import ManagerCall, failure_of
from astyqueue.units import SECOND
from tests.simulation.engine.client import Agent, Pause, SimulatedProcess
from tests.simulation.engine.event_loop import EventLoop

#: How likely a call fails, in one simulation, and how many of those hang.
_FAULT_RATES: Final = (0, 0.03, 0.15, 0.5)
_HANGS: Final = 0.2
#: How long a call takes: usually, when it is slow, and at most when it hangs.
_USUAL: Final = SECOND // 1_000
_SLOW: Final = SECOND // 3
_LONGEST: Final = 20 * SECOND
#: The longest time for which the manager is unavailable.
_UNAVAILABLE: Final = 30 * SECOND
#: Locks expire after this time, or never.
_LIVES: Final = (None, None, 2 * SECOND, 30 * SECOND)
#: How likely locks end with their process, and how likely the manager works without errors after the faults.
_ENDS_WITH_PROCESS: Final = 0.3
_RECOVERS: Final = 0.7


class ManagerFault(StrEnum):
    """How a call may fail."""

    FAILS = "manager fails"
    RAISES_BUSY = "manager raises Busy"
    ANSWERS_NONE = "manager answers None"
    DENIES = "manager denies"
    GRANTS_TWICE = "manager grants a lock twice"
    FORGETS = "manager forgets its locks"
    UNAVAILABLE = "manager is unavailable"


class ManagerFailure(Exception):
    """The error of a manager that fails."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A lock that was granted to a process, and when."""

    by: SimulatedProcess
    since: int


class Manager:
    """One lock for each row.

    `granted` counts how often each process was granted a row and has not released it; `violations` lists what no
    process may do.
    """

    def __init__(self, event_loop: EventLoop, rng: random.Random, steps: Counter[str]) -> None:
        """Nothing is locked."""
        self.granted: Counter[tuple[str, str]] = Counter()
        self.violations: list[str] = []
        self._event_loop = event_loop
        self._rng = rng
        self._steps = steps
        self._fault_rate = rng.choice(_FAULT_RATES)
        self._life = rng.choice(_LIVES)
        self._ends_with_process = rng.random() < _ENDS_WITH_PROCESS
        self._recovers = rng.random() < _RECOVERS
        self._held: dict[str, _Held] = {}
        self._unavailable_until = 0

    def recover(self) -> None:
        """Answer without errors from now on, in most simulations; what is locked stays locked."""
        if self._recovers:
            self._fault_rate, self._unavailable_until = 0, 0

    def time(self) -> int:
        """How long the next call takes."""
        if not self._is_faulty():
            return int(self._rng.expovariate(1 / _USUAL))
        if self._rng.random() < _HANGS:
            self._steps["manager hangs"] += 1
            return self._rng.randint(SECOND, _LONGEST)
        return int(self._rng.expovariate(1 / _SLOW))

    def acquire(self, client: SimulatedProcess, row: str) -> object:
        """The answer to a process that requests a row."""
        self._check_available()
        fault = self._rng.choice(tuple(ManagerFault)) if self._is_faulty() else None
        if fault:
            self._steps[fault] += 1
        match fault:
            case ManagerFault.FAILS:
                raise ManagerFailure(fault)
            case ManagerFault.RAISES_BUSY:
                raise Busy(row)
            case ManagerFault.ANSWERS_NONE:
                return None
            case ManagerFault.DENIES:
                return False
            case ManagerFault.FORGETS:
                self._held.clear()
            case ManagerFault.UNAVAILABLE:
                self._unavailable_until = self._event_loop.now + self._rng.randint(SECOND, _UNAVAILABLE)
                self._check_available()
        if fault is not ManagerFault.GRANTS_TWICE and self._is_held(row):
            return False
        self._held[row] = _Held(client, self._event_loop.now)
        self.granted[client.name, row] += 1
        return True

    def release(self, client: SimulatedProcess, row: str) -> None:
        """Release a row for a process; if that fails, the row stays locked."""
        self.granted[client.name, row] -= 1
        if self.granted[client.name, row] < 0:
            self.violations.append(f"{client.name} released row {row} more often than it was granted it")
        self._check_available()
        if self._is_faulty():
            raise ManagerFailure(ManagerFault.FAILS)
        held = self._held.get(row)
        if held and held.by is client:
            del self._held[row]

    def _is_faulty(self) -> bool:
        return self._rng.random() < self._fault_rate

    def _check_available(self) -> None:
        if self._event_loop.now < self._unavailable_until:
            raise ManagerFailure(ManagerFault.UNAVAILABLE)

    def _is_held(self, row: str) -> bool:
        held = self._held.get(row)
        if held is None or (self._ends_with_process and not held.by.up):
            return False
        return self._life is None or self._event_loop.now < held.since + self._life


class ManagerClient:
    """The client of the manager in one process, with its queue of calls."""

    def __init__(self, client: SimulatedProcess, manager: Manager) -> None:
        """No call is made yet."""
        self._client = client
        self._manager = manager
        self._calls: deque[ManagerCall] = deque()
        self._calling = False

    def acquire(self, row: str) -> bool:
        """Request a row."""
        return self._manager.acquire(self._client, row)  # type: ignore[return-value]  # a wrong answer is one of the faults

    def release(self, row: str) -> None:
        """Release a row."""
        self._manager.release(self._client, row)

    def submit(self, call: ManagerCall) -> None:
        """Make a call after those before it."""
        self._calls.append(call)
        if not self._calling:
            self._calling = True
            self._client.start(self._make_calls())

    def _make_calls(self) -> Agent:
        while self._calls:
            yield Pause(self._manager.time())
            failure = failure_of(self._calls.popleft(), self)
            if failure is not None and not isinstance(failure, ManagerFailure | TypeError):
                raise failure
        self._calling = False
