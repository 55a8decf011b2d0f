"""A lock manager as a user might supply it: a server that is slow, hangs, fails, forgets, or grants a lock twice.

The processes of a world share it. Each calls it as astyqueue does, one call after the other, but in the world's time.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from astyqueue.errors import Busy
from astyqueue.queue.rows.managed_lock import ManagerCall, failure_of
from astyqueue.units import SECOND
from tests.simulation.engine.client import Agent, Pause, SimulatedProcess
from tests.simulation.engine.event_loop import Timeline

#: How likely a call goes wrong, in one world, and how many of those hang.
_MADNESS: Final = (0, 0.03, 0.15, 0.5)
_HANGS: Final = 0.2
#: How long a call takes: usually, when it is slow, and at most when it hangs.
_USUAL: Final = SECOND // 1_000
_SLOW: Final = SECOND // 3
_LONGEST: Final = 20 * SECOND
#: The longest time for which the manager is away.
_AWAY: Final = 30 * SECOND
#: Locks expire after so long, or never.
_LIVES: Final = (None, None, 2 * SECOND, 30 * SECOND)
#: Worlds in which locks end with the process that has them, and in which the manager works without errors at the end.
_ENDS_WITH_PROCESS: Final = 0.3
_MENDS: Final = 0.7


class Mood(StrEnum):
    """How a call may go wrong."""

    FAILS = "manager fails"
    TELLS = "manager tells that a row is busy"
    MUMBLES = "manager says neither yes nor no"
    DENIES = "manager says no"
    GIVES = "manager gives a lock to whoever asks"
    FORGETS = "manager forgets its locks"
    LEAVES = "manager goes away"


class OutOfOrder(Exception):
    """The error of a manager that fails."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A lock that was granted to a process, and when."""

    by: SimulatedProcess
    since: int


class Manager:
    """One lock for each row.

    `given` counts how often each process was granted a row and has not released it; `wrong` lists what no process may
    do.
    """

    def __init__(self, timeline: Timeline, chance: random.Random, steps: Counter[str]) -> None:
        """Nothing is locked."""
        self.given: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self._timeline = timeline
        self._chance = chance
        self._steps = steps
        self._madness = chance.choice(_MADNESS)
        self._life = chance.choice(_LIVES)
        self._ends_with_process = chance.random() < _ENDS_WITH_PROCESS
        self._mends = chance.random() < _MENDS
        self._held: dict[str, _Held] = {}
        self._away_until = 0

    def mend(self) -> None:
        """Answer without errors from now on, in most worlds; what is locked stays locked."""
        if self._mends:
            self._madness, self._away_until = 0, 0

    def time(self) -> int:
        """How long the next call takes."""
        if not self._is_mad():
            return int(self._chance.expovariate(1 / _USUAL))
        if self._chance.random() < _HANGS:
            self._steps["manager hangs"] += 1
            return self._chance.randint(SECOND, _LONGEST)
        return int(self._chance.expovariate(1 / _SLOW))

    def acquire(self, client: SimulatedProcess, row: str) -> object:
        """The answer to a process that asks for a row."""
        self._be_there()
        mood = self._chance.choice(tuple(Mood)) if self._is_mad() else None
        if mood:
            self._steps[mood] += 1
        match mood:
            case Mood.FAILS:
                raise OutOfOrder(mood)
            case Mood.TELLS:
                raise Busy(row)
            case Mood.MUMBLES:
                return None
            case Mood.DENIES:
                return False
            case Mood.FORGETS:
                self._held.clear()
            case Mood.LEAVES:
                self._away_until = self._timeline.now + self._chance.randint(SECOND, _AWAY)
                self._be_there()
        if mood is not Mood.GIVES and self._is_held(row):
            return False
        self._held[row] = _Held(client, self._timeline.now)
        self.given[client.name, row] += 1
        return True

    def release(self, client: SimulatedProcess, row: str) -> None:
        """Release a row for a process; if that fails, the row stays locked."""
        self.given[client.name, row] -= 1
        if self.given[client.name, row] < 0:
            self.wrong.append(f"{client.name} let go of row {row} more often than it was told that it had it")
        self._be_there()
        if self._is_mad():
            raise OutOfOrder(Mood.FAILS)
        held = self._held.get(row)
        if held and held.by is client:
            del self._held[row]

    def _is_mad(self) -> bool:
        return self._chance.random() < self._madness

    def _be_there(self) -> None:
        if self._timeline.now < self._away_until:
            raise OutOfOrder(Mood.LEAVES)

    def _is_held(self, row: str) -> bool:
        held = self._held.get(row)
        if held is None or (self._ends_with_process and not held.by.up):
            return False
        return self._life is None or self._timeline.now < held.since + self._life


class Desk:
    """The manager as one process sees it, and the queue of that process's calls."""

    def __init__(self, client: SimulatedProcess, manager: Manager) -> None:
        """No call is made yet."""
        self._client = client
        self._manager = manager
        self._calls: deque[ManagerCall] = deque()
        self._calling = False

    def acquire(self, row: str) -> bool:
        """Ask for a row."""
        return self._manager.acquire(self._client, row)  # type: ignore[return-value]  # a wrong answer is one of the faults

    def release(self, row: str) -> None:
        """Release a row."""
        self._manager.release(self._client, row)

    def hand_in(self, call: ManagerCall) -> None:
        """Make a call after those before it."""
        self._calls.append(call)
        if not self._calling:
            self._calling = True
            self._client.start(self._make_calls())

    def _make_calls(self) -> Agent:
        while self._calls:
            yield Pause(self._manager.time())
            failure = failure_of(self._calls.popleft(), self)
            if failure is not None and not isinstance(failure, OutOfOrder | TypeError):
                raise failure
        self._calling = False
