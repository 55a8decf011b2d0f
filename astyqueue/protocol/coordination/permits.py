"""Permits of a queue: which processes may claim from it, if it limits how many do so at the same time.

A row of the queue has one column for each permit. A process takes, renews and releases a permit by a commit that
expects the bytes it has read, so no permit has two holders. A permit ends by itself at a moment of the store's time.

Stand-bys, which want a permit and have none, are listed in the same row, by plain sends: they only say who has waited
longest. No message depends on a permit: every claim is guarded by the header of its row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.errors import Undecodable
from astyqueue.model.envelope import FORMAT, unframed
from astyqueue.model.views import ActiveProcess, QueuePermits
from astyqueue.protocol.coordination.doorbell import write_hints
from astyqueue.protocol.layout.rows import permits_row
from astyqueue.protocol.steps import Client, Steps, commit, read
from astyqueue.store import Batch, Column, Committed, Expectation, Name, Put, Slice
from astyqueue.units import SECOND

_PERMIT: Final = 0
_STANDBY: Final = 1
#: Columns expire this long after what they say has ended, so that clocks that differ do not end it early.
_KEPT: Final = 60 * SECOND


class Permit(NamedTuple):
    """A permit as stored: its place from 0 up, who has it, and the bytes that the next change of it expects."""

    place: int
    holder: ActiveProcess
    value: bytes


class PermitTable(NamedTuple):
    """The permits of a queue, also those that ran out, by their places; its stand-bys, the longest waiting first."""

    permits: dict[int, Permit]
    standby: list[ActiveProcess]

    def of(self, process: str) -> Permit | None:
        """The permit that has this process as its holder, also if it ran out."""
        return next((one for one in self.permits.values() if one.holder.process == process), None)

    def free(self, limit: int, now: int) -> list[int]:
        """The places below `limit` whose permits no process has now."""
        return [place for place in range(limit) if (one := self.permits.get(place)) is None or one.holder.until <= now]

    def waiting(self, now: int) -> list[ActiveProcess]:
        """The stand-bys that reported lately and have no permit."""
        holders = {one.holder.process for one in self.permits.values() if one.holder.until > now}
        return [one for one in self.standby if one.until > now and one.process not in holders]


def read_permits(queue: str) -> Steps[PermitTable]:
    """The permits and the stand-bys of a queue. Raises Undecodable for a permit that this release cannot read."""
    row = permits_row(queue)
    permits, standby = yield from read(Slice(row, _PERMIT, 0), Slice(row, _STANDBY, 0))
    held = [Permit(column.name.state, _decode(row, column), column.value) for column in permits]
    waiting = sorted(filter(None, map(_standby, standby)), key=lambda one: (one.since, one.process))
    return PermitTable({one.place: one for one in held}, waiting)


def new_permit(process: Client, place: int, since: int, until: int) -> Permit:
    """A permit for this process; the bytes of two are never equal."""
    holder = ActiveProcess(process.name, since, until)
    value = FORMAT + to_json(holder._asdict() | {"nonce": process.nonce().hex()})
    return Permit(place, holder, value)


def put_permit(queue: str, permit: Permit, known: bytes | None, now: int) -> Steps[bool]:
    """Take or renew a permit if its column has the `known` bytes; raises OutcomeUnknown if that is not known."""
    put = Put(_name(permit.place), permit.value, ttl=_seconds(permit.holder.until - now))
    return (yield from _change(Batch(permits_row(queue), (put,)), permit.place, known))


def delete_permit(queue: str, permit: Permit) -> Steps[bool]:
    """Release a permit, unless another process took it or this one renewed it."""
    row = permits_row(queue)
    return (yield from _change(Batch(row, deletes=(_name(permit.place),)), permit.place, permit.value))


def report_standby(queue: str, standby: ActiveProcess, now: int) -> Steps[None]:
    """List a process as a stand-by until a moment. Errors of the store are ignored: the list decides only the order."""
    name = Name(_STANDBY, 0, ids.of_text(standby.process), 0)
    put = Put(name, FORMAT + to_json(standby._asdict()), ttl=_seconds(standby.until - now))
    yield from write_hints([Batch(permits_row(queue), (put,))])


def show_permits(queue: str, limit: int, now: Callable[[], int]) -> Steps[QueuePermits]:
    """Which processes have permits of a queue now, and which stand by, the longest waiting first."""
    table = yield from read_permits(queue)
    moment = now()
    held = [one.holder for place, one in sorted(table.permits.items()) if place < limit and one.holder.until > moment]
    return QueuePermits(limit, held, table.waiting(moment) if limit else [])


def _name(place: int) -> Name:
    return Name(_PERMIT, 0, ids.LEAST, place)


def _seconds(ends_in: int) -> int:
    return max(1, -(-(ends_in + _KEPT) // SECOND))


def _change(batch: Batch, place: int, known: bytes | None) -> Steps[bool]:
    outcome = yield from commit(batch, (Expectation(_name(place), known),))
    return isinstance(outcome, Committed)


def _decode(row: str, column: Column) -> ActiveProcess:
    """The process in a column. Its value is an object, so that later releases can add fields."""
    try:
        stored = from_json(unframed(column.value))
        return ActiveProcess(str(stored["process"]), int(stored["since"]), int(stored["until"]))
    except (ValueError, TypeError, KeyError) as error:
        until = "No process takes a permit of this queue until it can be read or expires"
        raise Undecodable(row, f"permit {column.name.state}", str(error), until=until) from error


def _standby(column: Column) -> ActiveProcess | None:
    try:
        return _decode("", column)
    except Undecodable:
        return None
