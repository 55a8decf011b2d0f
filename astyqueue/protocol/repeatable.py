"""Repeatable sends: what may be sent again by somebody who does not know that it was sent, also long after it was settled.

The same record has the same id each time. A commit puts only those that are neither there nor marked as settled, and their
settle leaves such a mark, in one commit with the delete, for as long as the envelope says: a day, or the queue's `deduplication`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pydantic_core import to_json

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.model.message import decode, encode
from astyqueue.protocol.along import REMEMBERED, removed_name
from astyqueue.protocol.columns import Entry, State, Timer, Type, message_name
from astyqueue.protocol.outcomes import with_value
from astyqueue.protocol.process import Process
from astyqueue.protocol.raising import MOST, Plan, Raising
from astyqueue.protocol.sight import Sight, know_header
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Name, Named, Put

#: Bytes of the values of one commit.
_BYTES: Final = 512 * 1024


class Repeated(NamedTuple):
    """A message that may be sent again: always with the same id, in the same row."""

    priority: int
    id: Id
    value: bytes


def id_of(source: str, number: int, moment: int) -> Id:
    """The id of a record: always the same for this number of this source and this moment (microseconds), which belongs to the record."""
    return ids.first_at(moment)[:8] + ids.of_text(f"{number}/{source}")[8:]


def repeated(value: bytes, priority: int, id_: Id, *, seconds: int = REMEMBERED) -> Repeated:
    """A composed message as one that may be sent again: also for so many seconds after it was settled."""
    envelope = decode(value)
    return Repeated(priority, id_, encode(envelope._replace(repeatable=_said(seconds)), to_json(envelope.body)))


def composed(value: bytes, priority: int, id_: Id, *, seconds: int = REMEMBERED) -> Repeated:
    """As `repeated`, of a value that was composed just now and says nothing of the kind yet; much cheaper for many."""
    return Repeated(priority, id_, b"%b,false,%b]" % (value[:-1], to_json(_said(seconds))))


def _said(seconds: int) -> bool | int:
    """What an envelope says of it."""
    return True if seconds == REMEMBERED else seconds


def send_repeatable(process: Process, row: str, wanted: Sequence[Repeated]) -> Steps[int]:
    """See to it that all of these are there or settled, and say how many were put now.

    After an error any number of them may have been put: repeat it all. One that was settled longer ago than is remembered,
    cleared, or purged as a dead letter comes again.
    """
    return len((yield from Repeating(process, row).send(wanted)))


class Repeating:
    """Repeatable sends into one row, one commit after the other, by one thread at a time.

    What is known of the row's header is kept from one to the next. Its timers need not be known, for nothing is claimed: so a
    commit costs the same however many messages are there.
    """

    def __init__(self, process: Process, row: str) -> None:
        """Begin knowing nothing of the row."""
        self._process = process
        self._raising = Raising(process, Sight(row, 1), know_header)

    def send(self, wanted: Sequence[Repeated]) -> Steps[list[Repeated]]:
        """As `send_repeatable`; those that were put now."""
        sent: list[Repeated] = []
        for part in _parts(wanted):
            plan = yield from self._raising.carry_out(_Inserting(self._process, part).plan)
            put = {put.name for put in plan.puts} if plan else set()
            sent += [one for one in part if message_name(one.priority, one.id) in put]
        return sent


def _parts(wanted: Sequence[Repeated]) -> Iterator[Sequence[Repeated]]:
    """Messages for one commit each, within the bounds of a commit."""
    first = size = 0
    for place, one in enumerate(wanted):
        if place - first == MOST or (place > first and size + len(one.value) > _BYTES):
            yield wanted[first:place]
            first, size = place, 0
        size += len(one.value)
    if wanted:
        yield wanted[first:]


@dataclass(slots=True)
class _Insertion(Plan):
    """Messages that are put; `wanted` are they and those for which nothing is to be done."""

    wanted: Sequence[Repeated] = field(default_factory=tuple)

    def was_done(self, row: str) -> Steps[bool]:
        """Whether none of them is missing."""
        missing = yield from _missing(row, self.wanted)
        return not missing


class _Inserting:
    """Puts those of some messages that are missing."""

    def __init__(self, process: Process, wanted: Sequence[Repeated]) -> None:
        self._process = process
        self._wanted = wanted

    def plan(self, sight: Sight) -> Steps[Plan | None]:
        """Put what is missing. What is due already lies behind the looks, perhaps, and is listed where it must be seen."""
        missing = yield from _missing(sight.row, self._wanted)
        if not missing:
            return None
        puts = [Put(message_name(one.priority, one.id), one.value) for one in missing]
        now = self._process.now()
        due = tuple(Entry(one.id, one.priority, 0) for one in missing if ids.moment(one.id) <= now)
        name = Name(Type.TIMER, 0, self._process.id_at(now), State.SNOOZED)
        listed = [with_value(Timer(name, due, self._process.nonce(), "", len(due)))] if due else []
        return _Insertion(listed=listed, puts=puts, wanted=self._wanted)


def _missing(row: str, wanted: Sequence[Repeated]) -> Steps[list[Repeated]]:
    """Those that are neither there nor settled. Marks are read after the messages: a settle leaves one as it deletes the other."""
    named = {message_name(one.priority, one.id): one for one in wanted}
    there = yield from read_one(Named(row, tuple(named), values=False), exact=True)
    present = {column.name for column in there}
    absent = [one for name, one in named.items() if name not in present]
    if not absent:
        return []
    marks = yield from read_one(Named(row, tuple(removed_name(one.priority, one.id) for one in absent), values=False), exact=True)
    settled = {column.name.id for column in marks}
    return [one for one in absent if one.id not in settled]
