"""Sources: whatever sends the same messages again after it died, and has to give each the id that it had before.

Such an id has a moment in it, so the moment has to be the same again too. It is kept in the queue's store: whoever begins a
batch of a source first decides it, and everybody after that finds it there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.clock import SECOND
from astyqueue.errors import OutcomeUnknown, StoreUnavailable, Undecodable
from astyqueue.ids import Id
from astyqueue.model.message import FORMAT
from astyqueue.protocol.process import Process
from astyqueue.protocol.raising import TRIES
from astyqueue.protocol.rows import source_row
from astyqueue.protocol.steps import Steps, commit, read_column
from astyqueue.store import Batch, Committed, Expectation, Name, Put

#: Seconds for which a batch is remembered since it was begun or ended.
REMEMBERED: Final = 30 * 24 * 3_600
#: ... and of one after which another was sent: only tasks that nobody waits for any more ask for it.
SURPASSED: Final = 24 * 3_600
#: Messages for now get ids of the last second before their moment: so many of them at one moment leave room for chance.
_SPREAD: Final = SECOND


class Begun(NamedTuple):
    """A batch of a source: the moment (microseconds since 1970) at which it was first begun, and whether all of it was sent."""

    moment: int
    ended: bool


def begin(process: Process, *, queue: str, source: str, batch: str) -> Steps[Begun]:
    """The batch as whoever began it first has written down; written down now if that is us."""
    row, name = source_row(queue, source), _name(batch)
    for _ in range(TRIES):
        column = yield from read_column(row, name, exact=True)
        if column is not None:
            return _decode(row, batch, column.value)
        begun = Begun(process.now(), ended=False)
        if (yield from _write(row, Put(name, _encode(begun), ttl=REMEMBERED), known=None)):
            return begun
    raise _never_still(row)


def end(*, queue: str, source: str, batch: str, before: str | None = None) -> Steps[None]:
    """Note that all of a batch was sent; one that nobody remembers stays so.

    The one `before`, which had ended as well, will not be begun again, and is remembered for a day only.
    """
    row, name = source_row(queue, source), _name(batch)
    surpassed = () if before is None else (Put(_name(before), _encode(Begun(0, ended=True)), ttl=SURPASSED),)
    for _ in range(TRIES):
        column = yield from read_column(row, name, exact=True)
        if column is None:
            return
        begun = _decode(row, batch, column.value)
        ended = Put(name, _encode(begun._replace(ended=True)), ttl=REMEMBERED)
        if begun.ended or (yield from _write(row, ended, known=column.value, more=surpassed)):
            return
    raise _never_still(row)


def id_of(source: str, record: str, *, due: int, begun: int) -> Id:
    """The id of a record: the same for this name of it, this source and these moments (microseconds; `due`: zero for at once)."""
    hashed = ids.of_text(f"{len(source)}/{source}/{record}")
    drawn = int.from_bytes(hashed[:8])
    moment = due if due > begun else begun - drawn % _SPREAD
    ticks = int.from_bytes(ids.first_at(moment)[:8]) + drawn // _SPREAD % 10
    return ticks.to_bytes(8) + hashed[8:]


def _name(batch: str) -> Name:
    return Name(0, 0, ids.of_text(batch), 0)


def _write(row: str, put: Put, *, known: bytes | None, more: tuple[Put, ...] = ()) -> Steps[bool]:
    """Replace what is known, and write more with it; False if that is not there any more, or nobody can tell."""
    try:
        outcome = yield from commit(Batch(row, (put, *more)), (Expectation(put.name, known),))
    except OutcomeUnknown:
        return False  # whoever asked reads again, and finds it if it is there
    return isinstance(outcome, Committed)


def _encode(begun: Begun) -> bytes:
    return FORMAT + to_json(begun)


def _decode(row: str, batch: str, value: bytes) -> Begun:
    try:
        if value[:1] != FORMAT:
            why = f"format byte {value[:1].hex() or 'missing'}, and this astyqueue knows {FORMAT.hex()}"
        elif _is_batch(fields := from_json(value[1:])):
            return Begun(*fields)
        else:
            why = "its fields are not those of a batch"
    except ValueError as error:
        why = str(error)
    raise Undecodable(row, f"what is remembered of batch {batch!r}", why, until="Nothing is sent for this batch until it can")


def _is_batch(fields: object) -> bool:
    return isinstance(fields, list) and list(map(type, fields)) == [int, bool] and ids.is_moment(fields[0])


def _never_still(row: str) -> StoreUnavailable:
    message = f"row {row}: {TRIES} tries to change it did not go through; try again when the store answers"
    return StoreUnavailable(message)
