"""One thread that carries out the endless steps of several queues: as an event loop, with a store that blocks.

Each carries out its requests until it rests. While several have requests, they take turns, one request each, so that no
busy queue keeps the others waiting for longer than one request of each.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final

from astyqueue.clock import Clock
from astyqueue.observe.observers import Observers
from astyqueue.protocol.steps import Answer, Request, Steps, carry_out
from astyqueue.store import Store
from astyqueue.units import MonotonicUs
from astyqueue.waiting import Rest, Wakeup

_NOTHING: Final = Answer()


class StepTask:
    """The steps of one queue, and the store that they work on."""

    __slots__ = ("answer", "observers", "on_rest", "resting", "steps", "store", "wake")

    def __init__(
        self, steps: Steps[None], store: Store, observers: Observers, on_rest: Callable[[], None] | None = None
    ) -> None:
        """Nothing is carried out yet. The thread of the loop calls `on_rest` whenever these steps begin to rest."""
        self.on_rest = on_rest or (lambda: None)
        self.steps = steps
        self.store = store
        self.observers = observers
        self.answer = _NOTHING
        self.resting: Rest | None = None
        self.wake: Callable[[], None] = lambda: None


class StepLoop:
    """Carries out the steps of tasks, also of tasks added later, in the thread that calls `run`, until all ended."""

    def __init__(self, clock: Clock, tasks: Iterable[StepTask]) -> None:
        """`clock` decides when a rest is over."""
        self._clock = clock
        self._wakeup = Wakeup(clock)
        self._ready = deque(tasks)
        self._left = len(self._ready)
        self._lock = threading.Lock()
        self._over = False
        self._added: deque[StepTask] = deque()
        self._signalled: deque[tuple[StepTask, Rest]] = deque()
        self._order = count()
        self._alarms: list[tuple[MonotonicUs, int, StepTask, Rest]] = []
        self._resting: dict[StepTask, None] = {}
        self._moves = 0

    def __repr__(self) -> str:
        """How many tasks have not ended, and what they wait for: their turn, or the end of a rest."""
        return f"<StepLoop: {self._left} tasks, {len(self._ready)} ready, {len(self._resting)} resting>"

    def __len__(self) -> int:
        """How many tasks have not ended."""
        return self._left

    def add(self, task: StepTask) -> bool:
        """Carry out one more task, given by any thread; False if all others, and with them `run`, have ended."""
        with self._lock:
            if self._over:
                return False
            self._left += 1
        self._added.append(task)
        self._wakeup.set()
        return True

    def _end_one(self) -> None:
        with self._lock:
            self._left -= 1
            self._over = not self._left

    def run(self) -> None:
        """Carry out all steps. An error that steps raise ends them, and is raised here after all others have ended."""
        problem: BaseException | None = None
        self._over = not self._left
        while not self._over:
            self._end_rests()
            if not self._ready:
                self._wakeup.wait(self._next_alarm())
                continue
            task = self._ready.popleft()
            try:
                self._advance(task)
            except BaseException as error:  # noqa: BLE001 - raised below: the other queues must be served
                problem = problem or error
                self._end_one()
        if problem is not None:
            raise problem

    def _advance(self, task: StepTask) -> None:
        """Carry out requests of one task until it rests, or until another one is ready."""
        while True:
            try:
                request = task.answer.into(task.steps)
            except StopIteration:
                self._end_one()
                return
            if isinstance(request, Rest):
                task.answer = _NOTHING
                task.on_rest()
                if self._begin_rest(task, request):
                    return
                continue
            task.answer = _answer_to(request, task)
            if self._resting or self._added:
                self._end_rests()
            if self._ready:
                self._ready.append(task)
                return

    def _begin_rest(self, task: StepTask, rest: Rest) -> bool:
        """Set a task aside until its rest is over; False if it is over at once."""

        def wake() -> None:
            self._signalled.append((task, rest))
            self._wakeup.set()

        task.wake = wake
        if not rest.wakeup.call_when_set(wake):
            return False
        task.resting = rest
        self._resting[task] = None
        if rest.until is not None:
            heapq.heappush(self._alarms, (rest.until, next(self._order), task, rest))
        return True

    def _end_rests(self) -> None:
        """Make tasks ready that are new, or whose rest was ended by a signal, its time, or a move of the clock."""
        while self._added:
            self._ready.append(self._added.popleft())
        while self._signalled:
            self._end_rest(*self._signalled.popleft())
        if self._alarms:
            now = self._clock.monotonic()
            while self._alarms and self._alarms[0][0] <= now:
                _, _, task, rest = heapq.heappop(self._alarms)
                self._end_rest(task, rest)
        if self._moves != self._wakeup.moves:
            self._moves = self._wakeup.moves
            for task in tuple(self._resting):
                self._end_rest(task, task.resting)

    def _end_rest(self, task: StepTask, rest: Rest | None) -> None:
        """Make a task ready, unless this rest of it was over before."""
        if rest is None or task.resting is not rest:
            return
        rest.wakeup.end_wait(task.wake)
        task.resting = None
        del self._resting[task]
        self._ready.append(task)

    def _next_alarm(self) -> MonotonicUs | None:
        """The monotonic moment at which the next rest is over by its time."""
        while self._alarms and self._alarms[0][2].resting is not self._alarms[0][3]:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None


def _answer_to(request: Request, task: StepTask) -> Answer:
    """Carry out a request; an error of any kind is the answer, which ends the steps unless they expect it."""
    try:
        return carry_out(request, task.store, task.observers)
    except BaseException as error:  # noqa: BLE001 - a mistake in a store must not end the other queues' steps
        return Answer(error=error)
