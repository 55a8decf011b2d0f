"""A spool: messages on the local disk, forwarded to the store by a thread, so that no send waits for the store.

- `spool`: what a queue has of it: appending, the state, draining; and the spools of a connection.
- `folder`: the folder of a queue, with its settings and a journal for each process. `process_journal`: one of these.
- `open_journals`: those that a process has open, also what processes left that died. `forwarder`: the thread that
  forwards them. `outage`: what other processes see when it cannot.
- `room`: where sends wait while it is full.
- `options`, `record`: the choices of a user, and a message as a record.

It knows nothing of rows and claims: the queue prepares messages, and sends them.
[Send while the store is away](../../docs/how-to/spool.md) has the promises.
"""

from astyqueue.journal_errors import JournalFailed, JournalFull, SpoolFull
from astyqueue.spool.folder import Backlog, SpoolFolder, backlog_of, log_undeclared, log_unopened, queues_in
from astyqueue.spool.options import GivenSpool, SpoolOptions
from astyqueue.spool.process_journal import JournalState
from astyqueue.spool.record import RefusedMessage, SpooledMessage
from astyqueue.spool.spool import ConnectionSpools, Spool, SpoolStatus

__all__ = [
    "Backlog",
    "ConnectionSpools",
    "GivenSpool",
    "JournalFailed",
    "JournalFull",
    "JournalState",
    "RefusedMessage",
    "Spool",
    "SpoolFolder",
    "SpoolFull",
    "SpoolOptions",
    "SpoolStatus",
    "SpooledMessage",
    "backlog_of",
    "log_undeclared",
    "log_unopened",
    "queues_in",
]
