"""Schedules that an app declares: `@app.cron`, `@app.every`, and `@app.scheduled` for any other trigger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from astyqueue.durations import Duration
from astyqueue.errors import BadInput
from astyqueue.model.schedule import Misfire, Policies
from astyqueue.queue.queue import MessageQueue
from astyqueue.schedules.reconcile import Declared, Instructions, Reconciled, Release, order_of, reconcile
from astyqueue.tasks.base_task import BaseTask, TaskOptions, name_of
from astyqueue.triggers import Trigger


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

    task: BaseTask[..., object]
    trigger: Trigger
    policies: Policies
    arguments: Mapping[str, object]

    def declared(self) -> Declared:
        return Declared(self.trigger, self.task.message(**self.arguments), self.policies)


class DeclaredSchedules:
    """The schedules of an app, by queue. They are stored when a worker of the app is made."""

    def __init__(self, program: str, release: int | str | None = None) -> None:
        """`program` separates them from those of other programs; `release` orders the deploys of this one."""
        self.program = program
        self._order = order_of(release)
        self._declared: dict[str, dict[str, _Declaration]] = {}

    @property
    def queues(self) -> Iterable[str]:
        """The queues that have some."""
        return self._declared

    def of(self, queue: str) -> Iterable[str]:
        """The names of those of a queue."""
        return self._declared.get(queue, {})

    def declare(self, task: BaseTask[..., object], trigger: Trigger, policies: Policies, how: Timetable) -> None:
        """Declare a call of this task at each occurrence of a trigger; BadInput for a name that another one has.

        BadInput also for an option that this task does not have: it was made before, with its own.
        """
        _check_options_of(task, how)
        queue, name = task.options.queue, how.get("schedule", task.name)
        if name in self._declared.setdefault(queue, {}):
            message = f"two schedules of queue {queue!r} are called {name!r}: give one of them another, schedule=..."
            raise BadInput(message)
        declaration = _Declaration(task, trigger, policies, how.get("arguments", {}))
        declaration.declared()
        self._declared[queue][name] = declaration

    def reconcile(self, queue: MessageQueue, instructions: Instructions | None = None) -> Reconciled:
        """Store those of a queue; making a worker does this too."""
        declared = {name: one.declared() for name, one in self._declared.get(queue.name, {}).items()}
        return queue.run(reconcile(queue.core, Release(self.program, declared, self._order), instructions))


def policies_of(how: Timetable) -> Policies:
    """The policies of a schedule; BadInput for one that there is not, or for an option that no schedule has."""
    if unknown := sorted(how.keys() - Timetable.__annotations__.keys()):
        message = (
            f"a schedule has no option {', '.join(unknown)}: it has {', '.join(Timetable.__annotations__)}. "
            "Set task options in @app.task and put the schedule decorator on that task"
        )
        raise BadInput(message)
    return Policies.read(how.get("misfire", "once"), how.get("overlap", "allow"), how.get("after_failure", "go on"))


def _check_options_of(task: BaseTask[..., object], how: Timetable) -> None:
    """BadInput for options of the task beside a schedule that are not those of this task."""
    for name in ("name", "queue", "max_attempts", "timeout", "kind"):
        given, has = how.get(name), getattr(task.options, name)
        if given is not None and given != has:
            message = (
                f"a schedule of task {task.name} has {name}={given!r}, and the task has {has!r}: set it in @app.task"
            )
            raise BadInput(message)


def options_of(function: Callable[..., object], how: Timetable, queue: str) -> TaskOptions:
    """The options of the task that a schedule makes of a function."""
    name = how.get("name") or name_of(function)
    return TaskOptions(name, how.get("queue", queue), how.get("max_attempts"), how.get("timeout"), how.get("kind"))
