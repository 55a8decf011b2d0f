"""What the workers of a queue report about themselves, for `doctor`: hints that go by themselves when they are not repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.model.message import FORMAT
from astyqueue.protocol.rows import workers_row
from astyqueue.protocol.steps import Send, Steps, read_one
from astyqueue.store import Batch, Name, Put, Slice

#: Seconds after which a report is gone; a worker repeats it every minute as long as it is true.
_KEPT: Final = 180
#: Tasks that a report names, and how long a name may be.
_TASKS: Final = 5
_LENGTH: Final = 100


class Stuck(NamedTuple):
    """A worker has handlers that ran on past their timeout and keep their threads, the first since then (microseconds)."""

    worker: str
    stuck: int
    threads: int
    since: int
    tasks: Sequence[str]


def report(queue: str, stuck: Stuck) -> Steps[None]:
    """Leave this where `doctor` looks; a worker overwrites its own report."""
    short = stuck._replace(tasks=[task[:_LENGTH] for task in stuck.tasks[:_TASKS]])
    name = Name(0, 0, ids.of_text(stuck.worker), 0)
    yield Send(Batch(workers_row(queue), (Put(name, FORMAT + to_json(short), ttl=_KEPT),)))


def reports(queue: str) -> Steps[list[Stuck]]:
    """What workers reported within the last minutes; a report that cannot be read is left out, for it is but a hint."""
    columns = yield from read_one(Slice(workers_row(queue), 0, 0))
    found = [_read(column.value) for column in columns]
    return [one for one in found if one is not None]


def _read(value: bytes) -> Stuck | None:
    try:
        worker, stuck, threads, since, tasks = from_json(value[1:])
        return Stuck(str(worker), int(stuck), int(threads), int(since), [str(task) for task in tasks])
    except (ValueError, TypeError):
        return None
