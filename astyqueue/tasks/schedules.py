"""Schedules that an app declares: `@app.cron`, `@app.every`, and `@app.scheduled` for any other trigger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, ParamSpec, TypedDict, TypeVar, Unpack

from astyqueue.durations import Duration
from astyqueue.errors import BadInput
from astyqueue.model.schedule import Misfire, Policies
from astyqueue.queue.queue import MessageQueue
from astyqueue.schedules.reconcile import Declared, Instructions, Reconciled, Release, order_of, reconcile
from astyqueue.tasks.task import Task, TaskOptions, name_of
from astyqueue.triggers import Cron, Every, Trigger

P = ParamSpec("P")
R = TypeVar("R")
#: The queue of tasks without a `queue` option.
DEFAULT_QUEUE: Final = "default"


class Timetable(TypedDict, total=False):
    """The options of a declared schedule: its name (Default: the task's), its task's arguments, and its policies.

    `misfire` is "once", "latest", "all", "skip" or "within 1h"; `overlap` "allow", "skip", "queue one", "queue all" or
    "cancel running"; `after_failure` "go on" or "pause".
    The others are the task's.
    """

    schedule: str
    arguments: Mapping[str, object]
    misfire: str | Misfire
    overlap: str
    after_failure: str
    name: str
    queue: str
    max_attempts: int
    timeout: Duration
    kind: str


@dataclass(frozen=True, slots=True)
class _Declaration:
    """A declared schedule; its message is made when it is reconciled."""

    task: Task[..., object]
    trigger: Trigger
    policies: Policies
    arguments: Mapping[str, object]

    def declared(self) -> Declared:
        return Declared(self.trigger, self.task.using().message(**self.arguments), self.policies)


class Declaring(ABC):
    """The part of an app that declares schedules. They are stored when a worker of the app is made."""

    def __init__(self, name: str, release: int | str | None = None) -> None:
        """`name` separates this app's schedules from those of other programs; `release` orders the app's deploys."""
        self.name = name
        self._order = order_of(release)
        self._declared: dict[str, dict[str, _Declaration]] = {}

    @abstractmethod
    def _add(self, function: Callable[P, R], options: TaskOptions) -> Task[P, R]:
        """Make a function a task."""

    def scheduled(
        self, trigger: Trigger, **how: Unpack[Timetable]
    ) -> Callable[[Callable[P, R] | Task[P, R]], Task[P, R]]:
        """A decorator that calls a function (or task) at each occurrence of a trigger; it returns the task."""
        policies = Policies.read(
            how.get("misfire", "once"), how.get("overlap", "allow"), how.get("after_failure", "go on")
        )

        def made(function: Callable[P, R] | Task[P, R]) -> Task[P, R]:
            task = function if isinstance(function, Task) else self._add(function, _options(function, how))
            self._declare(
                how.get("schedule", task.name), _Declaration(task, trigger, policies, how.get("arguments", {}))
            )
            return task

        return made

    def cron(
        self, expression: str, zone: str = "UTC", *, seconds: bool = False, **how: Unpack[Timetable]
    ) -> Callable[[Callable[P, R] | Task[P, R]], Task[P, R]]:
        """A decorator that calls a function by a cron expression: `@app.cron("0 9 * * mon-fri", "Europe/Paris")`."""
        return self.scheduled(Cron(expression, zone, seconds=seconds), **how)

    def every(
        self, interval: Duration, **how: Unpack[Timetable]
    ) -> Callable[[Callable[P, R] | Task[P, R]], Task[P, R]]:
        """A decorator that calls a function at fixed intervals, first when the schedule is made: `@app.every("5m")`."""
        return self.scheduled(Every(interval), **how)

    def _declare(self, name: str, declaration: _Declaration) -> None:
        queue = declaration.task.options.queue
        if name in self._declared.setdefault(queue, {}):
            message = f"two schedules of queue {queue!r} are called {name!r}: give one of them another, schedule=..."
            raise BadInput(message)
        declaration.declared()
        self._declared[queue][name] = declaration

    def reconcile(self, queue: MessageQueue, instructions: Instructions | None = None) -> Reconciled:
        """Store the schedules that this app declares for a queue; making a worker does this too."""
        declared = {name: one.declared() for name, one in self._declared.get(queue.name, {}).items()}
        return queue.run(reconcile(queue.core, Release(self.name, declared, self._order), instructions))


def _options(function: Callable[..., object], how: Timetable) -> TaskOptions:
    name = how.get("name") or name_of(function)
    return TaskOptions(
        name, how.get("queue", DEFAULT_QUEUE), how.get("max_attempts"), how.get("timeout"), how.get("kind")
    )
