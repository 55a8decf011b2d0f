"""Sending: a blind insert. A producer never reads, waits for anybody, or conflicts with anybody."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from astyqueue import ids
from astyqueue.errors import AstyqueueError, OutcomeUnknown, StoreError
from astyqueue.ids import Id
from astyqueue.protocol.columns import message_name
from astyqueue.protocol.process import Process
from astyqueue.protocol.rescan import list_late
from astyqueue.protocol.steps import Send, Steps
from astyqueue.store import Batch, Name, Put

_log: Final = logging.getLogger("astyqueue.queue")
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
    """See to it that what landed late is found. It is in the store by now, so nothing that goes wrong here fails its send."""
    try:
        yield from list_late(process, row, late)
    except AstyqueueError as error:
        _log.warning(
            "row %s: %d messages were stored, but registering them for immediate pickup failed; consumers may see them only after up to "
            "12 h, or once `astyqueue rescan` was run. Do not resend them. The error was: %s",
            row,
            len(late),
            error,
        )


def _insert(request: Send) -> Steps[None]:
    """Send, and again while the outcome is unknown. An error after an unknown outcome cannot say that nothing was sent."""
    unknown: OutcomeUnknown | None = None
    for _ in range(_TRIES):
        try:
            yield request
        except OutcomeUnknown as error:
            unknown = error
        except StoreError as error:
            raise unknown or error from error
        else:
            return
    if unknown:
        raise unknown
