"""Sending: a blind insert, which neither reads nor conflicts.

Only a send that ended a minute late commits once more, to list its messages.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from astyqueue import ids
from astyqueue.errors import AstyqueueError, Closed, OutcomeUnknown, StoreError
from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import STAMP_BACK, message_name
from astyqueue.protocol.row.rescan import list_stranded
from astyqueue.protocol.steps import Client, Send, Steps
from astyqueue.store import Batch, Name, Put
from astyqueue.structured_log import log_event
from astyqueue.units import SECOND

_log: Final = logging.getLogger("astyqueue.queue")
#: A send that ends this long after its id's time is also listed in a timer: only the last late scan, ten minutes
#: behind, would still find it, and no scan if it is later still.
LATE: Final = 60 * SECOND
#: Attempts of a send with unknown outcome, unchanged, before OutcomeUnknown is raised.
_TRIES: Final = 3
#: Creating a named tuple this way halves the cost; this is the innermost loop of a send.
_new: Final = tuple.__new__


def message_put(priority: int, id_: Id, value: bytes, *, sent: int) -> Put:
    """The column that inserts a message; `sent` is the time of the send in microseconds."""
    return _new(Put, (message_name(priority, id_), value, sent - STAMP_BACK, None))


def send(process: Client, batch: Batch, *more: Batch, beside: Sequence[Batch] = ()) -> Steps[None]:
    """Insert new messages. When it returns, they are stored; when it raises OutcomeUnknown, they may be.

    Batches `beside` them, which contain no messages, go in the same request and have the same outcome.
    """
    yield from _insert(Send(batch, (*more, *beside)))
    long_ago = ids.first_at(process.now() - LATE)
    for sent in (batch, *more):
        if late := [put.name for put in sent.puts if put.name.id < long_ago]:
            yield from register_late(process, sent.row, late)


def register_late(process: Client, row: str, late: list[Name]) -> Steps[None]:
    """List late messages, so that claims find them. They are stored already, so an error here is only logged."""
    try:
        yield from list_stranded(process, row, late)
    except AstyqueueError as error:
        log_event(
            _log,
            logging.WARNING,
            "late_messages_unregistered",
            row=row,
            messages=len(late),
            error=error,
            remedy="Do not resend them: consumers get them within 12 h, or once astyqueue rescan was run",
        )


def _insert(request: Send) -> Steps[None]:
    """Send, and repeat while the outcome is unknown; a later error does not prove that nothing was sent."""
    unknown: OutcomeUnknown | None = None
    for _ in range(_TRIES):
        try:
            yield request
        except OutcomeUnknown as error:
            unknown = error
        except (StoreError, Closed) as error:
            raise unknown or error from error
        else:
            return
    if unknown:
        raise unknown
