"""One simulated process: its clock, the agents that it runs, and the faults that hit it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final

from astyqueue.errors import OutcomeUnknown, StoreError
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.steps import Commit, Read, Request, Send
from astyqueue.store import Name
from astyqueue.waiting import Rest
from tests.simulation.cassandra.cluster import Cluster, OnAnswer, Scanned
from tests.simulation.engine.event_loop import SkewedClock


@dataclass(frozen=True, slots=True)
class Pause:
    """A request of an agent: do nothing for `duration` microseconds."""

    duration: int


_CHANGES: Final = (Send, Commit)
_OF_STORE: Final = (Read, Send, Commit)
#: Work in a process: steps of astyqueue, and pauses between them.
Agent = Generator[Request | Pause, Any, None]
#: Stands between a process and the store: may change a request, pass it on (several times, or never), and change its
#: answer.
Interceptor = Callable[[Read | Send | Commit, Callable[[Read | Send | Commit, OnAnswer], None], OnAnswer], None]


def original(
    request: Read | Send | Commit, forward: Callable[[Read | Send | Commit, OnAnswer], None], on_answer: OnAnswer
) -> None:
    """Pass every request and every answer on unchanged."""
    forward(request, on_answer)


@dataclass(slots=True, eq=False)
class _Task:
    """A running agent. `turn` counts its turns, so that a wake-up for an earlier turn is ignored.

    `rest` is what it waits for if it rests; `changes`: it waits for the answer to a change of the store.
    """

    agent: Agent
    turn: int = 0
    rest: Rest | None = None
    changes: bool = False


class SimulatedProcess:
    """A process that runs agents concurrently, one step at a time."""

    def __init__(self, name: str, clock: SkewedClock, cluster: Cluster, *, interceptor: Interceptor = original) -> None:
        """No agent runs yet."""
        self.name = name
        self.clock = clock
        self.up = True
        self.paused_until = 0
        self.requests = 0
        self.scanned: dict[str, list[bytes]] = {}
        self._requested_at: dict[Name | None, int] = {}
        self.unknowns = 0
        self.failures: list[Exception] = []
        self._cluster = cluster
        self._event_loop = cluster.event_loop
        self._interceptor = interceptor
        self._tasks: list[_Task] = []

    @property
    def busy(self) -> bool:
        """Whether any agent runs."""
        return self.up and bool(self._tasks)

    def start(self, agent: Agent, after: int = 0) -> None:
        """Run this agent, beginning in `after` microseconds."""
        task = _Task(agent)
        self._tasks.append(task)
        self._event_loop.call_later(after, self._go_on, task, 0, None)

    def stop(self, agent: Agent) -> bool:
        """End an agent, as when its task is cancelled; False if it ended or waits for the answer to a change.

        The store may carry out that change, so what it does would count as done by nobody.
        """
        task = next((task for task in self._tasks if task.agent is agent), None)
        if task is None or task.changes:
            return False
        task.turn += 1
        agent.close()
        self._end(task)
        self._rouse()
        return True

    def crash(self) -> None:
        """Stop for ever."""
        self.up = False
        self._event_loop.recheck()

    def _end(self, task: _Task) -> None:
        self._tasks.remove(task)
        self._event_loop.recheck()

    def _go_on(self, task: _Task, turn: int, answer: object) -> None:
        if not self.up or task.turn != turn:
            return
        if self.paused_until > self._event_loop.now:
            self._event_loop.call_at(self.paused_until, self._go_on, task, turn, answer)
            return
        task.turn += 1
        task.rest = None
        try:
            if isinstance(answer, StoreError):
                self.unknowns += isinstance(answer, OutcomeUnknown)
                request = task.agent.throw(answer)
            else:
                request = task.agent.send(answer)
        except StopIteration:
            self._end(task)
        except Exception as error:  # noqa: BLE001 - any error that an agent did not expect is reported with the history
            self._end(task)
            self.failures.append(error)
        else:
            self._begin(task, request)
        self._rouse()

    def _begin(self, task: _Task, request: Request | Pause) -> None:
        turn, task.changes = task.turn, isinstance(request, _CHANGES)
        if isinstance(request, _OF_STORE):
            self.requests += 1
            if isinstance(request, Commit):
                self._note(request)
            self._interceptor(request, self._forward, lambda answer: self._go_on(task, turn, answer))
        elif isinstance(request, Pause):
            self._event_loop.call_later(request.duration, self._go_on, task, turn, None)
        elif isinstance(request, Rest):
            task.rest = request
            if request.until is not None:
                left = max(0, request.until - self.clock.monotonic())
                self._event_loop.call_later(left, self._go_on, task, turn, None)
        else:
            self._event_loop.call_later(0, self._go_on, task, turn, request.call())

    def _note(self, commit: Commit) -> None:
        known = {expected.name for expected in commit.expects}
        made = [put.name for put in commit.batch.puts if put.name.type == Type.TIMER and put.name not in known]
        self._requested_at.update(dict.fromkeys([None, *made], int(self.clock.monotonic())))

    def requested_at(self, timer: Name | None) -> int:
        """When the commit that made this timer was last requested; any commit if there is none, or others made it."""
        return self._requested_at.get(timer, self._requested_at[None])

    def _forward(self, request: Read | Send | Commit, on_answer: OnAnswer) -> None:
        self._cluster.request(request, self.clock, on_answer, self._record_scan)

    def _record_scan(self, row: str, scanned: Scanned) -> None:
        self.scanned.setdefault(row, []).extend(scanned.tombstones)

    def _rouse(self) -> None:
        """Wake the agents whose wake-up another agent has set."""
        for task in self._tasks:
            if task.rest is not None and self._is_over(task.rest):
                task.rest = None
                self._event_loop.call_later(0, self._go_on, task, task.turn, None)

    def _is_over(self, rest: Rest) -> bool:
        """Whether a rest was ended by a signal, which then counts as seen, or by time."""
        if rest.wakeup.signalled or (rest.until is not None and self.clock.monotonic() >= rest.until):
            rest.wakeup.wait(self.clock.monotonic())
            return True
        return False
