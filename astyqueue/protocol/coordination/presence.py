"""Reports of the processes that work on a store, and commands to them: one row for all queues of the store.

Each process overwrites its own column, which expires unless it is repeated, and reads the few columns with commands to
it at the same time. So a process costs a write and a read a heartbeat, whatever the number of its queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.ids import Nonce
from astyqueue.model.envelope import FORMAT, unframed
from astyqueue.model.presence import EXPIRES_AFTER, KindLoad, Presence, RunningTask, WorkerCommand, WorkerState
from astyqueue.protocol.layout.rows import WORKERS
from astyqueue.protocol.steps import Send, Steps, read_one
from astyqueue.store import Batch, Column, Name, Named, Put, Slice
from astyqueue.units import SECOND

_REPORT: Final = 0
_COMMAND: Final = 1
#: Commands that contradict each other share a column, so that the later one counts.
_PLACES: Final = {
    WorkerCommand.DRAIN: 0,
    WorkerCommand.QUIET: 1,
    WorkerCommand.RESUME: 1,
    WorkerCommand.STACKS: 2,
}
#: Seconds for which a command waits for its worker.
COMMAND_KEPT: Final = 600


class _Stored(NamedTuple):
    """A report as JSON: an object, so that later releases can add fields."""

    name: str
    host: str
    pid: int
    version: str
    started: int
    state: WorkerState
    queues: list[str]
    queue_count: int
    slots: int
    busy: int
    running: list[RunningTask]
    every: int
    standby: Sequence[str] = ()
    limits: Mapping[str, int] = {}
    kinds: Mapping[str, KindLoad] = {}


_STORED: Final = TypeAdapter(_Stored)


class CommandColumn(NamedTuple):
    """A command as read; `nonce` distinguishes two requests of the same."""

    command: WorkerCommand
    nonce: str


def report(presence: Presence) -> Steps[None]:
    """Write the report of a process over its last one. It expires after twelve heartbeats."""
    one = presence.bounded()
    fields = _Stored(*(getattr(one, name) for name in _Stored._fields))
    kept = max(1, EXPIRES_AFTER * one.every // SECOND)
    put = Put(_report_name(one.name), FORMAT + to_json(fields._asdict()), ttl=kept)
    yield Send(Batch(WORKERS, (put,)))


def withdraw(name: str) -> Steps[None]:
    """Delete the report of a process that ends."""
    yield Send(Batch(WORKERS, deletes=(_report_name(name),)))


def read_presences() -> Steps[list[Presence]]:
    """The reports that have not expired, ordered by name; one that cannot be read is left out."""
    columns = yield from read_one(Slice(WORKERS, _REPORT))
    return sorted(_readable(columns), key=lambda one: one.name)


def request(name: str, command: WorkerCommand, nonce: Nonce) -> Steps[None]:
    """Write a command for the process of this name, which finds it with its next heartbeat."""
    value = FORMAT + to_json({"command": command.value, "nonce": nonce.hex()})
    yield Send(Batch(WORKERS, (Put(_command_name(name, command), value, ttl=COMMAND_KEPT),)))


def read_commands(name: str) -> Steps[list[CommandColumn]]:
    """The commands to the process of this name, of the last ten minutes, also those it has seen."""
    names = tuple(sorted({_command_name(name, command) for command in WorkerCommand}))
    columns = yield from read_one(Named(WORKERS, names))
    found = [_command(column) for column in columns]
    return [one for one in found if one is not None]


def _report_name(name: str) -> Name:
    return Name(_REPORT, 0, ids.of_text(name), 0)


def _command_name(name: str, command: WorkerCommand) -> Name:
    return Name(_COMMAND, 0, ids.of_text(name), _PLACES[command])


def _readable(columns: Sequence[Column]) -> Iterable[Presence]:
    for column in columns:
        try:
            stored = _STORED.validate_python({**from_json(unframed(column.value))})
        except (ValidationError, ValueError, TypeError):
            continue
        yield Presence(*stored, seen=column.written)


def _command(column: Column) -> CommandColumn | None:
    try:
        stored = from_json(unframed(column.value))
        return CommandColumn(WorkerCommand(stored["command"]), str(stored["nonce"]))
    except (ValueError, TypeError, KeyError):
        return None
