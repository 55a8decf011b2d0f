"""Adds events of the history to the explanation of a message that the rows give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from astyqueue.model import explanation
from astyqueue.model.event import Event, Keeping, Kind
from astyqueue.model.explanation import Explanation
from astyqueue.model.moments import instant_text
from astyqueue.model.views import Standing

_WORDS: Final = {
    Kind.SENT: "sent",
    Kind.CLAIMED: "claimed",
    Kind.DONE: "done",
    Kind.FAILED: "failed",
    Kind.RETRIED: "put back for another attempt",
    Kind.RELEASED: "given back",
    Kind.DEAD: "became a dead letter",
    Kind.REDRIVEN: "redriven by an operator or a program",
    Kind.CANCELLED: "deleted, or replaced by another message",
}
_ENDS: Final = frozenset({Kind.DONE, Kind.CANCELLED})


def with_history(found: Explanation, events: Iterable[Event], keeping: Keeping) -> Explanation:
    """The explanation with the message's events in order; for one that is gone, also its end if that is known.

    A missing event need not mean a loss: a queue that keeps failures only records no event of a success.
    """
    shown = [event for event in events if event.kind in _WORDS and not _is_in_rows(event.kind, found.standing)]
    happened = [explanation.LifeEvent(event.at, _sentence(event)) for event in shown]
    life = explanation.in_order([*found.life, *happened])
    if found.standing:
        return replace(found, life=life)
    unrecorded = "" if keeping == "all" else f"the queue does not record which (history={keeping})"
    if not shown:
        return replace(found, why="; ".join(filter(None, (found.why, unrecorded))), life=life)
    end = next((event for event in reversed(shown) if event.kind in _ENDS and not event.lost), None)
    last = end or shown[-1]
    known = f"{_sentence(last)}, {instant_text(last.at, found.now)}"
    if end is None and unrecorded:
        why = f"it was done, or deleted: {unrecorded}. The last event before that: {known}"
    else:
        why = f"it is no longer in the queue; its last known event: {known}"
    return replace(found, why=why, life=life)


def _is_in_rows(kind: Kind, standing: Standing | None) -> bool:
    """Whether the explanation from the rows already has this event."""
    return (standing is not None and kind is Kind.SENT) or (standing is Standing.DEAD and kind is Kind.DEAD)


def _sentence(event: Event) -> str:
    attempt = f"attempt {event.attempt} " if event.attempt and event.kind in (Kind.FAILED, Kind.DONE) else ""
    by = f" by {event.worker}" if event.worker and event.kind in (Kind.CLAIMED, Kind.DONE) else ""
    why = f": {event.reason}" if event.reason and event.kind is not Kind.RETRIED else ""
    lost = ", without effect: its lease had run out" if event.lost else ""
    return f"{attempt}{_WORDS[event.kind]}{by}{why}{lost}"
