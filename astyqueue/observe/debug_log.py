"""The debug log: each event as a line `event name=value ...` at level DEBUG, in a logger for its kind.

Lines have no bodies. Values are quoted where they contain spaces or characters that are not printable.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Final

from astyqueue.clock import instant
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
from astyqueue.structured_log import log_event
from astyqueue.text import exact, type_and_text

#: The loggers, and the word with which a line begins, of each type of event.
_LINES: Final = {
    RequestDone: ("astyqueue.requests", "request"),
    OutcomeReadBack: ("astyqueue.requests", "read_back"),
    Claimed: ("astyqueue.claim", "claimed"),
    ClaimRefused: ("astyqueue.claim", "refused"),
    LeaseExpired: ("astyqueue.claim", "lease_expired"),
    RowTakenOver: ("astyqueue.rows", "taken_over"),
    LeaseRenewed: ("astyqueue.settle", "renewed"),
    Settled: ("astyqueue.settle", "settled"),
    OutcomeLost: ("astyqueue.settle", "lost"),
    OccurrenceFired: ("astyqueue.schedules", "fired"),
    SpoolForwarded: ("astyqueue.spool", "forwarded"),
    SpoolRefused: ("astyqueue.spool", "set_aside"),
}
_LOGGERS: Final = {name: logging.getLogger(name) for name, _ in _LINES.values()}
#: Rows and messages that one line names; of more, it has their number.
_NAMED: Final = 10
_LONGEST_ERROR: Final = 500


class DebugLog:
    """An observer that logs."""

    @staticmethod
    def wanted() -> bool:
        """Whether one of its loggers is at level DEBUG."""
        for logger in _LOGGERS.values():  # noqa: SIM110 - called again and again: a generator costs eight calls
            if logger.isEnabledFor(logging.DEBUG):
                return True
        return False

    def observe(self, event: ObservedEvent) -> None:
        """Log the event, if its logger is at level DEBUG."""
        name, word = _LINES[type(event)]
        if (logger := _LOGGERS[name]).isEnabledFor(logging.DEBUG):
            log_event(logger, logging.DEBUG, word, exc_info=None, **_facts(event))


def _facts(event: ObservedEvent) -> dict[str, object]:
    """The fields of an event that have a value, with durations in milliseconds and moments as text."""
    facts: dict[str, object] = {}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name == "took":
            facts["took_ms"] = value / 1_000
        elif field.name in {"until", "occurrence"} and value is not None:
            facts[field.name] = exact(instant(value))
        elif value is not None:
            facts[field.name] = _shown(value)
    return facts


def _shown(value: object) -> object:
    match value:
        case BaseException():
            return type_and_text(value)[:_LONGEST_ERROR]
        case tuple() if not hasattr(value, "_fields"):
            more = len(value) - _NAMED
            return ",".join(map(str, value[:_NAMED])) + (f",and {more} more" if more > 0 else "")
    return value
