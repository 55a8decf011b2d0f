"""Sending: a blind insert. A producer never reads, waits for anybody, or conflicts with anybody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown, StoreError, StoreUnavailable
from astyqueue.ids import Id
from astyqueue.protocol.change import Change
from astyqueue.protocol.columns import Entry, State, Timer, Type, dead_name, message_name
from astyqueue.protocol.outcomes import with_value
from astyqueue.protocol.process import Process
from astyqueue.protocol.settle import raise_for
from astyqueue.protocol.sight import Sight, know
from astyqueue.protocol.steps import Send, Steps, read_one
from astyqueue.store import Batch, Committed, Name, Named, Put

_SECOND: Final = 1_000_000
#: A plain send claims to have been written this long before it was, so that every delete of it wins although clocks differ.
STAMP_BACK: Final = 3_600 * _SECOND
#: A send acknowledged so long after its id's time may lie behind every look; it is listed where it must be seen.
LATE: Final = 60 * _SECOND
#: How often a send of unknown outcome is repeated, unchanged, before its caller is told.
_TRIES: Final = 3
#: Making a tuple's subclass straight from its parts halves its cost; this is the innermost loop of a send.
_new: Final = tuple.__new__


def message_put(priority: int, id_: Id, value: bytes, *, sent: int) -> Put:
    """A message on its way into its row."""
    return _new(Put, (message_name(priority, id_), value, sent - STAMP_BACK, None))


def send(process: Process, batch: Batch, *more: Batch, beside: Sequence[Batch] = ()) -> Steps[None]:
    """Insert new messages. What returned is not lost; what raised OutcomeUnknown may or may not be there.

    Batches `beside` them, which are no messages, go in the same request and share their fate.
    """
    yield from _insert(Send(batch, (*more, *beside)))
    long_ago = ids.first_at(process.now() - LATE)
    for sent in (batch, *more):
        if late := [put.name for put in sent.puts if put.name.id < long_ago]:
            yield from see_late(process, sent.row, late)


def see_late(process: Process, row: str, late: list[Name]) -> Steps[None]:
    """See to it that what landed late is found. It is in the store by now, so an error that speaks of nothing done would not be true."""
    try:
        yield from _list_late(process, row, late)
    except StoreError as error:
        message = (
            f"row {row}: {len(late)} messages were sent, and it could not be seen to that they, who are late, are found within half a day"
        )
        raise OutcomeUnknown(message) from error


def _insert(request: Send) -> Steps[None]:
    """Send, and again while the outcome is unknown. An error after an unknown outcome cannot say that nothing was sent."""
    unknown: OutcomeUnknown | None = None
    for _ in range(_TRIES):
        try:
            yield request
        except OutcomeUnknown as error:
            unknown = error
        except StoreUnavailable as error:
            raise unknown or error from error
        else:
            return
    if unknown:
        raise unknown


def _list_late(process: Process, row: str, names: list[Name]) -> Steps[None]:
    """See to it that messages which landed behind the looks are found: list in a timer, due now, those that are nowhere else."""
    while True:
        sight = Sight(row, 1)
        yield from know(sight, process.now())
        present = yield from read_one(Named(row, tuple(names), values=False))
        dead = yield from read_one(Named(row, tuple(dead_name(name.priority, name.id) for name in names), values=False))
        buried = {column.name.id for column in dead}
        lost = [column.name for column in present if column.name.id not in sight.hidden and column.name.id not in buried]
        if not lost:
            return
        outcome = yield from _list(process, sight, lost).commit()
        if isinstance(outcome, Committed):
            return


def _list(process: Process, sight: Sight, names: list[Name]) -> Change:
    due = process.now()
    entries = tuple(Entry(name.id, name.priority, 0) for name in names)
    timer = with_value(Timer(Name(Type.TIMER, 0, process.id_at(due), State.SNOOZED), entries, process.nonce(), "", len(entries)))
    change = Change(sight.row)
    raise_for(process, change, sight.value, due=due)
    change.put_timer(timer)
    return change
