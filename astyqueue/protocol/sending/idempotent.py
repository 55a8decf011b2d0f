"""Idempotent sends: a process may send messages of unknown outcome again, even after they were settled.

The same record has the same id each time. A commit writes only messages that neither exist nor have a mark of being
settled. Their settle writes that mark in the commit that deletes them; it lasts as long as the envelope says: a day, or
the queue's `deduplication`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.errors import Undecodable
from astyqueue.ids import Id
from astyqueue.model.envelope import FORMAT, decode, encode, unframed
from astyqueue.protocol.layout.columns import Entry, message_name, visible_at
from astyqueue.protocol.layout.rows import batches_row
from astyqueue.protocol.layout.unique_key import REMEMBERED, removed_name
from astyqueue.protocol.row.compare_and_set import update
from astyqueue.protocol.row.header_commit import CommitLoop, CommitPlan
from astyqueue.protocol.row.snapshot import RowSnapshot, load_header
from astyqueue.protocol.steps import Client, Steps, batches_within, read_one
from astyqueue.store import Name, Named, Put
from astyqueue.units import SECOND

#: Seconds for which a batch is remembered after it was begun or ended.
BATCH_KEPT: Final = 30 * 24 * 3_600
#: The same for a batch that a later one has superseded: only tasks that were given up still look for it.
SUPERSEDED_KEPT: Final = 24 * 3_600
#: Messages without a due time get ids spread over the last second before their moment, so that ids rarely collide.
_SPREAD: Final = SECOND


class IdempotentMessage(NamedTuple):
    """A message that may be sent again, with the same id into the same row."""

    priority: int
    id: Id
    value: bytes


def numbered_id(source: str, number: int, moment: int) -> Id:
    """The id of a record: the same for this source, number and `moment` (microseconds), a property of the record."""
    return ids.first_at(moment)[:8] + ids.of_text(f"{number}/{source}")[8:]


def idempotent_message(value: bytes, priority: int, id_: Id, *, seconds: int = REMEMBERED) -> IdempotentMessage:
    """An encoded message as an idempotent one, which may be sent again until `seconds` after it was settled."""
    envelope = decode(value)
    repeatable = envelope._replace(repeatable=_repeatable_for(seconds))
    return IdempotentMessage(priority, id_, encode(repeatable, to_json(envelope.body)))


def idempotent_from_encoded(value: bytes, priority: int, id_: Id, *, seconds: int = REMEMBERED) -> IdempotentMessage:
    """As `idempotent_message`, but much cheaper: for a value just encoded, without a group and not repeatable yet."""
    # the value is a JSON array that ends with the body; `unique` (false) and `repeatable` are its next fields
    return IdempotentMessage(priority, id_, b"%b,false,%b]" % (value[:-1], to_json(_repeatable_for(seconds))))


def _repeatable_for(seconds: int) -> bool | int:
    return True if seconds == REMEMBERED else seconds


def send_idempotent(process: Client, row: str, wanted: Sequence[IdempotentMessage]) -> Steps[int]:
    """Write those messages that neither exist nor were settled; returns their number.

    After an error any of them may have been written: repeat the call. A message that was cleared, purged as a dead
    letter, or whose removed mark has expired since it was settled, is written again.
    """
    return len((yield from IdempotentSender(process, row).send(wanted)))


class IdempotentSender:
    """Idempotent sends into one row, one commit after the other, by one thread or task at a time.

    The row's header is cached from one commit to the next. Its timers are not read, because nothing is claimed: so the
    cost of a commit does not depend on the number of messages in the row.
    """

    def __init__(self, process: Client, row: str) -> None:
        """Create a sender; it reads the row's header with its first send."""
        self._process = process
        self._commits = CommitLoop(process, RowSnapshot(row, 1), load_header)

    def send(self, wanted: Sequence[IdempotentMessage]) -> Steps[list[IdempotentMessage]]:
        """As `send_idempotent`, but returns the messages that were written."""
        sent: list[IdempotentMessage] = []
        for places in batches_within([len(one.value) for one in wanted]):
            part = wanted[places]
            plan = yield from self._commits.carry_out(_Inserting(self._process, part).plan)
            put = {put.name for put in plan.puts} if plan else set()
            sent += [one for one in part if message_name(one.priority, one.id) in put]
        return sent


@dataclass(slots=True)
class _Insertion(CommitPlan):
    """A commit of missing messages; `wanted` includes those that exist already."""

    wanted: Sequence[IdempotentMessage] = field(default_factory=tuple)

    def was_done(self, row: str) -> Steps[bool]:
        """Whether none of the messages is missing."""
        missing = yield from _missing(row, self.wanted)
        return not missing


class _Inserting:
    def __init__(self, process: Client, wanted: Sequence[IdempotentMessage]) -> None:
        self._process = process
        self._wanted = wanted

    def plan(self, snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
        """Write missing messages; those due already are also listed in a timer, as scans may have passed their ids."""
        missing = yield from _missing(snapshot.row, self._wanted)
        if not missing:
            return None
        puts = [Put(message_name(one.priority, one.id), one.value) for one in missing]
        now = self._process.now()
        due = [Entry(one.id, one.priority, 0) for one in missing if ids.moment(one.id) <= now]
        listed = [visible_at(self._process, now, due)] if due else []
        return _Insertion(listed=listed, puts=puts, wanted=self._wanted)


def _missing(row: str, wanted: Sequence[IdempotentMessage]) -> Steps[list[IdempotentMessage]]:
    """Those that neither exist nor are settled.

    Read messages first, then marks: one settle deletes the message and writes the mark.
    """
    named = {message_name(one.priority, one.id): one for one in wanted}
    there = yield from read_one(Named(row, tuple(named), values=False), exact=True)
    present = {column.name for column in there}
    absent = [one for name, one in named.items() if name not in present]
    if not absent:
        return []
    marks = yield from read_one(
        Named(row, tuple(removed_name(one.priority, one.id) for one in absent), values=False), exact=True
    )
    settled = {column.name.id for column in marks}
    return [one for one in absent if one.id not in settled]


class BatchRecord(NamedTuple):
    """A batch of a source: when it was first begun (microseconds since 1970), and whether all of it was sent."""

    moment: int
    ended: bool


def begin_batch(process: Client, *, queue: str, source: str, batch: str) -> Steps[BatchRecord]:
    """The record of a batch as its first process wrote it; writes it if there is none.

    Raises StoreUnavailable after 50 refused attempts, or OutcomeUnknown if the outcome of one of them is unknown.
    """
    row, began = batches_row(queue, source), _encode(BatchRecord(process.now(), ended=False))
    cell = yield from update(
        row, _name(batch), lambda found: began if found is None else found, ttl=BATCH_KEPT, observers=process.observers
    )
    return _decode(row, batch, cell.value)


def end_batch(process: Client, *, queue: str, source: str, batch: str, before: str | None = None) -> Steps[None]:
    """Record that all of a batch was sent; does nothing if its record has expired.

    The batch `before`, which had ended as well, will not be begun again, so it is remembered for a day only.
    """
    row = batches_row(queue, source)

    def ended(found: bytes | None) -> bytes | None:
        begun = None if found is None else _decode(row, batch, found)
        return found if begun is None or begun.ended else _encode(begun._replace(ended=True))

    ended_batch = _encode(BatchRecord(0, ended=True))
    superseded = () if before is None else (Put(_name(before), ended_batch, ttl=SUPERSEDED_KEPT),)
    yield from update(row, _name(batch), ended, ttl=BATCH_KEPT, beside=superseded, observers=process.observers)


def record_id(source: str, record: str, *, due: int, begun: int) -> Id:
    """The id of a record: the same for this source, record and moments (microseconds; `due` zero: due at once)."""
    hashed = ids.of_text(f"{len(source)}/{source}/{record}")
    drawn = int.from_bytes(hashed[:8])
    moment = due if due > begun else begun - drawn % _SPREAD
    ticks = int.from_bytes(ids.first_at(moment)[:8]) + drawn // _SPREAD % 10
    return ticks.to_bytes(8) + hashed[8:]


def _name(batch: str) -> Name:
    return Name(0, 0, ids.of_text(batch), 0)


def _encode(begun: BatchRecord) -> bytes:
    return FORMAT + to_json(begun)


def _decode(row: str, batch: str, value: bytes) -> BatchRecord:
    try:
        fields = from_json(unframed(value))
        if _is_batch(fields):
            return BatchRecord(*fields)
        why = "its fields are not those of a batch"
    except ValueError as error:
        why = str(error)
    until = "Nothing is sent for this batch until it can be read"
    raise Undecodable(row, f"the record of batch {batch!r}", why, until=until)


def _is_batch(fields: object) -> bool:
    return isinstance(fields, list) and list(map(type, fields)) == [int, bool] and ids.is_moment(fields[0])
