"""What a process does for a queue, seen from outside: every request to the store, and what claims and settles did.

The runners of steps and a queue's own parts call `Observers.notify` with an event (`events`) where it happens. It goes
to the observers that the caller of the queue passed, and to the debug log (`debug_log`), whose loggers are off by
default. Without observers no event is made. An observer changes nothing, and no event contains a body.

[Observe a queue](../../docs/how-to/observe.md) says when to use an observer, a hook or the history.
"""

from astyqueue.observe.events import (
    Claimed,
    ClaimRefused,
    LeaseExpired,
    LeaseRenewed,
    ObservedEvent,
    OccurrenceFired,
    OutcomeLost,
    OutcomeReadBack,
    RequestDone,
    RowTakenOver,
    Settled,
    SpoolForwarded,
    SpoolRefused,
)
from astyqueue.observe.observers import Observer, Observers

__all__ = [
    "ClaimRefused",
    "Claimed",
    "LeaseExpired",
    "LeaseRenewed",
    "ObservedEvent",
    "Observer",
    "Observers",
    "OccurrenceFired",
    "OutcomeLost",
    "OutcomeReadBack",
    "RequestDone",
    "RowTakenOver",
    "Settled",
    "SpoolForwarded",
    "SpoolRefused",
]
