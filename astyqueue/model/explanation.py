"""Why a message has not run yet, and its life so far: the facts that a store has of it, and the sentences they make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from astyqueue.clock import instant
from astyqueue.model.envelope import Envelope, MessageId
from astyqueue.model.event import Event, Kind
from astyqueue.model.settings import Behaviour
from astyqueue.model.views import Content, Json, Standing
from astyqueue.text import counted, exact, instant_text
from astyqueue.units import SECOND

#: If no process has changed a row for this long (microseconds) although a message is due, none works on it.
STILL: Final = 60 * SECOND
_TASK: Final = "task"
_DEATHS: Final = {
    "rejected": "its consumer rejected it",
    "failed": "its last attempt failed",
    "attempts": "all its attempts were used up by consumers that crashed or stopped responding",
    "expired": "no consumer took it in time",
    "undecodable": "it cannot be read",
}
#: What the life of a message calls each kind of event.
_EVENTS: Final = {
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


class RowChange(NamedTuple):
    """The last commit of a row's header: when, and the process that owns the row ("" if that is not known)."""

    at: int
    owner: str


class Hiding(NamedTuple):
    """What hides a message until it is `due`: a lease (`holder` has it), or a pause after `spent` attempts.

    A blocked message waits for its `predecessor`: of its group, and under way or due before it.
    """

    standing: Standing
    due: int
    spent: int
    holder: str
    predecessor: Predecessor | None = None


class Predecessor(NamedTuple):
    """The message of the same group for which a blocked one waits, and what hides it; None: it is blocked too."""

    id: MessageId
    hiding: Hiding | None


class Death(NamedTuple):
    """When a message became a dead letter, after how many attempts, and why."""

    at: int
    attempts: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """What a store has of one message; moments are microseconds since 1970.

    `now` is when it was read. `content` is None if the message does not exist, `changed` if no process ever committed
    to its row. `broken` is why nothing is claimed from its row ("" if the row can be read). `too_far_ahead`: its
    sender's clock was so far ahead that it is not claimed yet. `events` is what the history has of it, in order.
    """

    id: MessageId
    behaviour: Behaviour
    now: int
    content: Content | None
    changed: RowChange | None
    hiding: Hiding | None = None
    death: Death | None = None
    broken: str = ""
    too_far_ahead: bool = False
    events: tuple[Event, ...] = ()

    @property
    def envelope(self) -> Envelope | None:
        """What was sent, if it can be read."""
        return self.content.envelope if self.content else None

    @property
    def allowed(self) -> int:
        """The attempts that the message has in all."""
        return self.behaviour.attempts(self.envelope.attempts if self.envelope else None)

    @property
    def spent(self) -> int:
        """The attempts that are used up."""
        return self.hiding.spent if self.hiding else 0

    @property
    def due(self) -> int:
        """From when on any consumer may take it."""
        return self.hiding.due if self.hiding else self.id.moment


class LifeEvent(NamedTuple):
    """A past or future event of a message: when (microseconds since 1970; None if that is not stored), and what."""

    at: int | None
    what: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a message has not run, in a sentence or two, and the facts behind it.

    `standing` is None if the message does not exist. `now` is when it was read and `until` when it may be handed out,
    if that is later (both microseconds since 1970). `spent` of `allowed` attempts are used up; `holder` is the process
    that has its lease, or had it when it expired. `life` is ordered by time; events without a time come first.
    """

    id: MessageId
    standing: Standing | None
    why: str
    now: int
    until: int | None = None
    spent: int = 0
    allowed: int | None = None
    holder: str = ""
    life: tuple[LifeEvent, ...] = ()

    def __str__(self) -> str:
        """The id, and why."""
        return f"{self.id}: {self.why}"

    def as_json(self) -> Json:
        """The explanation as JSON, with instants as text."""
        return {
            "id": str(self.id),
            "standing": self.standing.value if self.standing else "gone",
            "why": self.why,
            "now": _text(self.now),
            "until": _text(self.until),
            "spent": self.spent,
            "allowed": self.allowed,
            "holder": self.holder,
            "life": [{"at": _text(event.at), "what": event.what} for event in self.life],
        }


def _text(moment: int | None) -> str | None:
    return None if moment is None else exact(instant(moment))


def explained(facts: MessageFacts) -> Explanation:
    """Why a message has not run, by what the store has of it."""
    if facts.death is not None:
        return _dead(facts, facts.death)
    if facts.content is None:
        told = [event for event in facts.events if event.kind in _EVENTS]
        life = _in_order(LifeEvent(event.at, _event_in_words(event)) for event in told)
        return Explanation(facts.id, None, _why_gone(facts, told), facts.now, life=life)
    return _alive(facts)


def _in_order(life: Iterator[LifeEvent]) -> tuple[LifeEvent, ...]:
    """The events by time; those without a time come first."""
    return tuple(sorted(life, key=lambda event: (event.at is not None, event.at or 0)))


def _at(facts: MessageFacts, moment: int) -> str:
    return instant_text(moment, facts.now)


def _why_gone(facts: MessageFacts, told: list[Event]) -> str:
    """What is known of the end of a message that does not exist.

    A missing event need not mean a loss: a queue that keeps failures only records no event of a success.
    """
    keeping = facts.behaviour.history
    unrecorded = "" if keeping == "all" else f"the queue does not record which (history={keeping})"
    if not told:
        return f"{_why_absent(facts)}; {unrecorded or 'the history, which keeps all now, has no event of it'}"
    end = next((event for event in reversed(told) if event.kind in _ENDS and not event.lost), None)
    last = end or told[-1]
    known = f"{_event_in_words(last)}, {_at(facts, last.at)}"
    if end is None and unrecorded:
        return f"it was done, or deleted: {unrecorded}. The last event before that: {known}"
    return f"it is no longer in the queue; its last known event: {known}"


def _why_absent(facts: MessageFacts) -> str:
    if facts.changed is None:
        return "it was never sent here: no message was ever claimed or removed from its row. Check the id and the store"
    if facts.id.moment > facts.now:
        due = _at(facts, facts.id.moment)
        return f"it was deleted, or never sent: it would not have been due before {due}"
    return "it was acked or deleted, or never sent"


def _dead(facts: MessageFacts, death: Death) -> Explanation:
    since = f"it is a dead letter since {_at(facts, death.at)}"
    why = f"{since}, because {_DEATHS.get(death.kind, death.kind)}: {death.reason}"
    text = f"{why}. It is kept, and not delivered, until an operator redrives or deletes it"
    spent, allowed, life = death.attempts, facts.allowed, _in_order(_life(facts))
    return Explanation(facts.id, Standing.DEAD, text, facts.now, spent=spent, allowed=allowed, life=life)


def _alive(facts: MessageFacts) -> Explanation:
    standing, why = _standing(facts)
    holder = facts.hiding.holder if facts.hiding else ""
    until, life = facts.due if facts.due > facts.now else None, _in_order(_life(facts))
    return Explanation(
        id=facts.id,
        standing=standing,
        why=why,
        now=facts.now,
        until=until,
        spent=facts.spent,
        allowed=facts.allowed,
        holder=holder,
        life=life,
    )


def _standing(facts: MessageFacts) -> tuple[Standing, str]:
    if facts.hiding and facts.hiding.predecessor:
        return Standing.BLOCKED, f"{_behind(facts, facts.hiding.predecessor)}{_paused(facts)}"
    if facts.due <= facts.now:
        return Standing.WAITING, f"{_since(facts)}. {_what_keeps_it(facts)}"
    if facts.hiding is None:
        return Standing.DELAYED, f"it was sent to be due {_at(facts, facts.due)}, and is not delivered before"
    why = _hidden(facts, facts.hiding)
    return facts.hiding.standing, f"{why}{_paused(facts)}"


def _paused(facts: MessageFacts) -> str:
    return ". The queue is paused meanwhile" if facts.behaviour.paused else ""


def _behind(facts: MessageFacts, one: Predecessor) -> str:
    """For which message of its group it waits, and what becomes of that one."""
    waits = f"it waits behind {one.id} of its group {facts.envelope.group if facts.envelope else None!r}"
    if one.hiding is None:
        return f"{waits}, which comes before it"
    due, passed = _at(facts, one.hiding.due), one.hiding.due <= facts.now
    match one.hiding.standing:
        case Standing.IN_FLIGHT if not passed:
            return f"{waits}, which is leased by {one.hiding.holder} until {due}"
        case Standing.IN_FLIGHT:
            return f"{waits}, whose lease ran out {due} and which is handed out again before it"
        case Standing.PARKED:
            return f"{waits}, which is parked: the worker that had it does not know its task. Start one that does"
    return f"{waits}, which {'may be handed out again since' if passed else 'rests until'} {due}"


def _hidden(facts: MessageFacts, hiding: Hiding) -> str:
    due = _at(facts, hiding.due)
    match hiding.standing:
        case Standing.IN_FLIGHT:
            attempt = f"attempt {facts.spent + 1} of {facts.allowed}"
            held = f"{hiding.holder} has it leased, for {attempt}, until {due}"
            return f"{held}; unless it is settled or extended by then, another consumer gets it"
        case Standing.BACKING_OFF:
            failed = f"attempt {facts.spent} of {facts.allowed} failed" if facts.spent else "it was given back early"
            return f"{failed}, and it rests until {due} before the next"
        case Standing.PARKED:
            return f"{_unknown_task(facts)}; it is offered again {due}. Start a worker that knows it"
    if facts.envelope and facts.too_far_ahead:
        return f"it is hidden until {due}: its sender's clock showed {_at(facts, facts.envelope.sent)} as it was sent"
    return (
        f"it was put off until {due}, without using an attempt: by its handler, by a release, or by a worker that ended"
    )


def _unknown_task(facts: MessageFacts) -> str:
    task = (facts.envelope.headers or {}).get(_TASK) if facts.envelope else None
    return (
        f"the worker that had it does not know its task {task!r}"
        if task
        else "the worker that had it has no handler for it"
    )


def _since(facts: MessageFacts) -> str:
    """Since when any consumer may take it, and its state before."""
    due, hiding = _at(facts, facts.due), facts.hiding
    if hiding is None:
        return f"any consumer may take it since {due}"
    match hiding.standing:
        case Standing.IN_FLIGHT:
            return f"the lease of {hiding.holder} ran out {due} without an outcome"
        case Standing.BACKING_OFF:
            return f"its rest after attempt {facts.spent} of {facts.allowed} ended {due}"
        case Standing.PARKED:
            return f"{_unknown_task(facts)}, and it is offered again since {due}"
    return f"any consumer may take it since {due}, given back, put off or redriven before"


def _what_keeps_it(facts: MessageFacts) -> str:
    """Why no consumer has taken it although it is due: the strongest reason."""
    if facts.broken:
        return f"But nothing is claimed from its row: {facts.broken}"
    if facts.behaviour.paused:
        return "But the queue is paused: nothing is delivered until an operator resumes it"
    if doomed := _doom(facts):
        return f"But {doomed}; the next claim that reads it makes it a dead letter"
    if facts.envelope and facts.too_far_ahead:
        sent = _at(facts, facts.envelope.sent)
        return f"But its sender's clock showed {sent}: it is delivered once that is less than 50 minutes away"
    return _row(facts)


def _doom(facts: MessageFacts) -> str:
    if facts.content and facts.content.problem:
        return facts.content.problem
    if facts.envelope and facts.envelope.expires is not None and facts.envelope.expires <= facts.now:
        return f"it expired {_at(facts, facts.envelope.expires)}"
    return f"its attempts are used up ({facts.spent} of {facts.allowed})" if facts.spent >= facts.allowed else ""


def _row(facts: MessageFacts) -> str:
    """Whether a process works on its row, as far as the header shows."""
    if facts.changed is None:
        return "Nothing was ever claimed from its row: start a worker or a consumer on this queue"
    by = f" by {facts.changed.owner}" if facts.changed.owner else ""
    last = f"its row was last changed {_at(facts, facts.changed.at)}{by}"
    if facts.changed.at > facts.now - STILL:
        return f"It waits its turn: {last}"
    return f"No worker seems to be running on this queue: {last}. Start a worker or a consumer"


def _life(facts: MessageFacts) -> Iterator[LifeEvent]:
    """The life of a message that exists: what its columns show, and what only the history has."""
    if facts.envelope:
        yield LifeEvent(facts.envelope.sent, "sent")
        if facts.envelope.expires is not None:
            passed = facts.envelope.expires <= facts.now
            yield LifeEvent(facts.envelope.expires, "expired" if passed else "expires unless it was handed out")
    yield LifeEvent(facts.id.moment, "due for the first time")
    if facts.death is not None:
        after = f"after {counted(facts.death.attempts, 'attempt')}"
        yield LifeEvent(facts.death.at, f"became a dead letter, {after}: {facts.death.reason}")
    elif facts.spent:
        text = f"{facts.spent} of {facts.allowed} attempts used up; the logs of its consumers have their errors"
        yield LifeEvent(None, text)
    for event in _only_in_history(facts):
        yield LifeEvent(event.at, _event_in_words(event))


def _only_in_history(facts: MessageFacts) -> Iterator[Event]:
    """The events that no column shows. A dead letter's column shows its last death, not those before a redrive."""
    redrives = sum(event.kind is Kind.REDRIVEN for event in facts.events)
    for event in facts.events:
        redrives -= event.kind is Kind.REDRIVEN
        is_shown = event.kind is Kind.SENT or (event.kind is Kind.DEAD and facts.death is not None and not redrives)
        if event.kind in _EVENTS and not is_shown:
            yield event


def _event_in_words(event: Event) -> str:
    attempt = f"attempt {event.attempt} " if event.attempt and event.kind in (Kind.FAILED, Kind.DONE) else ""
    by = f" by {event.worker}" if event.worker and event.kind in (Kind.CLAIMED, Kind.DONE) else ""
    why = f": {event.reason}" if event.reason and event.kind is not Kind.RETRIED else ""
    lost = ", without effect: its lease had run out" if event.lost else ""
    return f"{attempt}{_EVENTS[event.kind]}{by}{why}{lost}"
