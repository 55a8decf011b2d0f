"""Reports of a queue's workers about themselves, for `doctor`; they expire unless they are repeated."""

from __future__ import annotations

from typing import Final

from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.model.framing import FORMAT
from astyqueue.model.health import StuckReport
from astyqueue.protocol.layout.rows import workers_row
from astyqueue.protocol.steps import Send, Steps, read_one
from astyqueue.store import Batch, Name, Put, Slice

#: Seconds after which a report expires; a worker repeats it every minute while it is true.
_KEPT: Final = 180
#: Tasks that a report names, and characters of a name.
_TASKS: Final = 5
_LENGTH: Final = 100


def report_stuck(queue: str, stuck: StuckReport) -> Steps[None]:
    """Write a report for `doctor`; a worker overwrites its own."""
    short = stuck._replace(tasks=[task[:_LENGTH] for task in stuck.tasks[:_TASKS]])
    name = Name(0, 0, ids.of_text(stuck.worker), 0)
    yield Send(Batch(workers_row(queue), (Put(name, FORMAT + to_json(short), ttl=_KEPT),)))


def read_reports(queue: str) -> Steps[list[StuckReport]]:
    """The workers' reports of the last three minutes; one that cannot be read is omitted."""
    columns = yield from read_one(Slice(workers_row(queue), 0, 0))
    found = [_read(column.value) for column in columns]
    return [one for one in found if one is not None]


def _read(value: bytes) -> StuckReport | None:
    try:
        worker, stuck, threads, since, tasks = from_json(value[1:])
        return StuckReport(str(worker), int(stuck), int(threads), int(since), [str(task) for task in tasks])
    except (ValueError, TypeError):
        return None
