"""What a worker process reports about itself: who it is, which queues it serves, and what runs in it since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, NoReturn

from pydantic import JsonValue

from astyqueue.clock import instant
from astyqueue.errors import BadInput, NotFound
from astyqueue.printable import printable
from astyqueue.text import exact
from astyqueue.units import SECOND

#: The pause between two reports of a process (microseconds), unless it says otherwise.
HEARTBEAT: Final = 15 * SECOND
#: A process that missed this many heartbeats is shown as stale, ...
_MISSED: Final = 3
#: ... and after this many its report has expired.
EXPIRES_AFTER: Final = 12
#: Running tasks and queues that a report names, and characters of a name: they bound its size to some 120 KB.
TASKS_NAMED: Final = 20
QUEUES_NAMED: Final = 1_000
_NAME: Final = 100


class WorkerState(StrEnum):
    """RUNNING claims; QUIET claims no more and runs on; DRAINING ends; STALLED: work is due, and none is done."""

    RUNNING = "running"
    QUIET = "quiet"
    DRAINING = "draining"
    STALLED = "stalled"


class WorkerCommand(StrEnum):
    """What an operator can request of a worker: drain and end, claim no more, claim again, log its threads' stacks."""

    DRAIN = "drain"
    QUIET = "quiet"
    RESUME = "resume"
    STACKS = "stacks"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        message = f"{value!r} is not a command to a worker: it is one of {', '.join(cls)}"
        raise BadInput(message)


class RunningTask(NamedTuple):
    """A handler that runs: for a message of this queue, since this moment (microseconds since 1970)."""

    queue: str
    task: str
    id: str
    since: int

    def as_json(self) -> dict[str, JsonValue]:
        """All fields, as JSON values."""
        return {"queue": self.queue, "task": self.task, "id": self.id, "since": exact(instant(self.since))}


class KindLoad(NamedTuple):
    """How many handlers of a kind ("thread", "asyncio", "process", "batch") run, and how many can at a time."""

    busy: int
    slots: int


def loads_text(kinds: Mapping[str, KindLoad], of: str) -> str:
    """The loads of all kinds, as in "thread 3/8, asyncio 950/1000" with `of` "/"; if there are only threads, "3/8"."""
    texts = {kind: f"{load.busy}{of}{load.slots}" for kind, load in kinds.items()}
    return texts["thread"] if [*texts] == ["thread"] else ", ".join(f"{kind} {text}" for kind, text in texts.items())


@dataclass(frozen=True, slots=True)
class Presence:
    """The report of one dispatcher; moments are microseconds since 1970.

    `started` is when it began, `seen` the write time of the report, which is repeated every `every` microseconds.
    `queues` and `running` (oldest first) are cut; `queue_count` and `busy` are the full numbers, `slots` how many
    handlers can run at once, and `kinds` both by what runs them. In the queues of `standby` it waits for a permit;
    `limits` are how many messages of a queue it has at the same time at most. Both are cut too. Texts are printable.
    """

    name: str
    host: str
    pid: int
    version: str
    started: int
    state: WorkerState
    queues: Sequence[str]
    queue_count: int
    slots: int
    busy: int
    running: Sequence[RunningTask]
    every: int = HEARTBEAT
    standby: Sequence[str] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[str, KindLoad] = field(default_factory=dict)
    seen: int = field(default=0, compare=False)

    def bounded(self) -> Presence:
        """The report as it is stored: cut to its bounds, and with all texts printable."""
        return replace(
            self,
            host=short(self.host),
            queues=[*map(short, self.queues[:QUEUES_NAMED])],
            standby=[*map(short, self.standby[:QUEUES_NAMED])],
            limits={short(name): limit for name, limit in [*self.limits.items()][:QUEUES_NAMED]},
            running=[
                RunningTask(short(one.queue), short(one.task), short(one.id), one.since)
                for one in sorted(self.running, key=lambda one: one.since)[:TASKS_NAMED]
            ],
        )

    def stale(self, now: int) -> bool:
        """Whether it missed three heartbeats: the process was killed, is suspended, or cannot reach the store."""
        return now - self.seen > _MISSED * self.every

    def serves(self, queue: str) -> bool:
        """Whether it serves a queue; also True if it names only some of its queues, of which this may be another."""
        return short(queue) in self.queues or self.queue_count > len(self.queues)

    @property
    def load(self) -> str:
        """How many handlers run and how many can, as in "3/8", or for each kind if there are others than threads."""
        return loads_text(self.kinds, "/") if self.kinds else f"{self.busy}/{self.slots}"

    @property
    def began(self) -> datetime:
        """When it started."""
        return instant(self.started)

    @property
    def last_seen(self) -> datetime:
        """When it was seen last."""
        return instant(self.seen)

    def as_json(self, now: int) -> dict[str, JsonValue]:
        """All fields, as JSON values; `now` decides whether it is stale."""
        return {
            "name": self.name,
            "host": self.host,
            "pid": self.pid,
            "version": self.version,
            "started": exact(self.began),
            "seen": exact(self.last_seen),
            "stale": self.stale(now),
            "state": self.state.value,
            "queues": list(self.queues),
            "queue_count": self.queue_count,
            "slots": self.slots,
            "busy": self.busy,
            "kinds": {kind: {"busy": load.busy, "slots": load.slots} for kind, load in self.kinds.items()},
            "running": [task.as_json() for task in self.running],
            "standby": list(self.standby),
            "limits": dict(self.limits),
        }


def short(name: str) -> str:
    """A name in printable characters, at most 100 of them."""
    shown = printable(name)
    return shown if len(shown) <= _NAME else f"{shown[: _NAME - 1]}…"


def named(wanted: str, presences: Sequence[Presence]) -> Presence:
    """The report of this name, or the only one whose name begins with it. Raises NotFound, or BadInput for several."""
    if not wanted:
        message = "the name of a worker is empty, and every name begins so: give a name, or the beginning of one"
        raise BadInput(message)
    found = [one for one in presences if one.name == wanted] or [
        one for one in presences if one.name.startswith(wanted)
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(one.name for one in found or presences)
    if found:
        message = f"{len(found)} workers have names that begin with {wanted!r}: {names}"
        raise BadInput(message)
    message = f"there is no worker {wanted!r}; {f'there are: {names}' if names else 'no worker has reported lately'}"
    raise NotFound(message)
