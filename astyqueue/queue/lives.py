"""What the history adds to what the rows still tell of a message's life."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from astyqueue.model import explanation
from astyqueue.model.event import Event, Keeping, Kind
from astyqueue.model.explanation import Explanation
from astyqueue.model.moments import told_at
from astyqueue.model.views import Standing

_WORDS: Final = {
    Kind.SENT: "sent",
    Kind.CLAIMED: "taken",
    Kind.DONE: "done",
    Kind.FAILED: "failed",
    Kind.RETRIED: "put back for another attempt",
    Kind.RELEASED: "given back",
    Kind.DEAD: "became a dead letter",
    Kind.REDRIVEN: "put back by somebody's order",
    Kind.CANCELLED: "removed by somebody's order",
}
_ENDS: Final = frozenset({Kind.DONE, Kind.CANCELLED})


def with_history(found: Explanation, events: Iterable[Event], keeping: Keeping) -> Explanation:
    """The explanation with what happened to the message, in order; of one that is gone, how it went if that is known.

    What is not among the events need not be missing: of a queue that keeps failures only, success leaves no event.
    """
    told = [event for event in events if event.kind in _WORDS and not _is_told(event.kind, found.standing)]
    happened = [explanation.Event(event.at, _sentence(event)) for event in told]
    life = explanation.in_order([*found.life, *happened])
    if found.standing:
        return replace(found, life=life)
    unrecorded = "" if keeping == "all" else f"the queue does not record which (history={keeping})"
    if not told:
        return replace(found, why="; ".join(filter(None, (found.why, unrecorded))), life=life)
    end = next((event for event in reversed(told) if event.kind in _ENDS and not event.lost), None)
    last = end or told[-1]
    known = f"{_sentence(last)}, {told_at(last.at, found.now)}"
    if end is None and unrecorded:
        why = f"it was done, or deleted: {unrecorded}. The last event before that: {known}"
    else:
        why = f"it is not there any more; the last that is known of it: {known}"
    return replace(found, why=why, life=life)


def _is_told(kind: Kind, standing: Standing | None) -> bool:
    """Whether the rows tell of it themselves."""
    return (standing is not None and kind is Kind.SENT) or (standing is Standing.DEAD and kind is Kind.DEAD)


def _sentence(event: Event) -> str:
    attempt = f"attempt {event.attempt} " if event.attempt and event.kind in (Kind.FAILED, Kind.DONE) else ""
    by = f" by {event.worker}" if event.worker and event.kind in (Kind.CLAIMED, Kind.DONE) else ""
    why = f": {event.reason}" if event.reason and event.kind is not Kind.RETRIED else ""
    lost = ", which came to nothing: its lease had run out" if event.lost else ""
    return f"{attempt}{_WORDS[event.kind]}{by}{why}{lost}"
