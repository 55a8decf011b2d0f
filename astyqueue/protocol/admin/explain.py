"""Why a message has not run yet: its state, what it waits for, and what the store still has of its history.

It changes nothing: every read is plain, and other processes go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from astyqueue.errors import Undecodable
from astyqueue.model.explanation import Explanation, LifeEvent, in_order
from astyqueue.model.message import Envelope, MessageId
from astyqueue.model.moments import instant_text
from astyqueue.model.settings import Behaviour
from astyqueue.model.views import Content, Standing
from astyqueue.protocol.claiming.selection import AHEAD_AT_MOST
from astyqueue.protocol.client import Client
from astyqueue.protocol.layout.columns import (
    HEADER,
    Dead,
    Entry,
    Mark,
    State,
    Timer,
    dead_name,
    decode_dead,
    decode_header,
    hidden_by,
    message_name,
)
from astyqueue.protocol.row.paging import peek_snapshot
from astyqueue.protocol.steps import Steps, read_column
from astyqueue.store import Column
from astyqueue.units import SECOND

#: If no process has changed a row for this long (microseconds) although a message is due, none works on it.
STILL: Final = 60 * SECOND
_TASK: Final = "task"
_KINDS: Final = {
    "rejected": "its consumer rejected it",
    "failed": "its last attempt failed",
    "attempts": "all its attempts were used up by consumers that crashed or stopped responding",
    "expired": "no consumer took it in time",
    "undecodable": "it cannot be read",
}


@dataclass(frozen=True, slots=True)
class _Place:
    """A message's entry or mark, and the timer that lists it."""

    timer: Timer
    listed: Entry | Mark

    @property
    def due(self) -> int:
        return min(self.listed.due, self.timer.due) if isinstance(self.listed, Mark) else self.timer.due

    @property
    def state(self) -> State:
        # a marked message was given back early, so it is not leased
        return State.BACKING_OFF if isinstance(self.listed, Mark) else State(self.timer.state)


@dataclass(frozen=True, slots=True)
class _Facts:
    """Everything read about one message."""

    id: MessageId
    now: int
    behaviour: Behaviour
    header: Column | None
    content: Content
    place: _Place | None = None
    broken: Undecodable | None = None

    @property
    def envelope(self) -> Envelope | None:
        return self.content.envelope

    @property
    def allowed(self) -> int:
        return self.behaviour.attempts(self.envelope.attempts if self.envelope else None)

    @property
    def spent(self) -> int:
        return self.place.listed.spent if self.place else 0

    @property
    def due(self) -> int:
        return self.place.due if self.place else self.id.moment

    def at(self, moment: int) -> str:
        """A moment in words."""
        return instant_text(moment, self.now)


def explain(process: Client, message: MessageId, behaviour: Behaviour) -> Steps[Explanation]:
    """Explain the state of a message. The header is read first and the dead column last, as in a claim."""
    now = process.now()
    header = yield from read_column(message.row, HEADER)
    place, broken = None, None
    try:
        place = yield from _find(message, now)
    except Undecodable as error:
        broken = error
    column = yield from read_column(message.row, message_name(message.priority, message.id))
    dead = yield from read_column(message.row, dead_name(message.priority, message.id))
    facts = _Facts(message, now, behaviour, header, Content.of(column.value if column else None), place, broken)
    if dead is not None:
        return _dead(facts, decode_dead(dead.value))
    if column is None:
        return Explanation(message, None, _why_gone(facts), now)
    return _alive(facts)


def _find(message: MessageId, now: int) -> Steps[_Place | None]:
    snapshot = yield from peek_snapshot(message.row, 1, now)
    found = (
        _Place(timer, one)
        for timer in (snapshot.timers or {}).values()
        for one in hidden_by(timer)
        if one.id == message.id
    )
    return next(found, None)


def _why_gone(facts: _Facts) -> str:
    if facts.header is None:
        return "it was never sent here: no message was ever claimed or removed from its row. Check the id and the store"
    if facts.id.moment > facts.now:
        due = facts.at(facts.id.moment)
        return f"it does not exist, and would not have been due before {due}: it was deleted, or never sent"
    return "it does not exist: it was acked or deleted, or never sent"


def _dead(facts: _Facts, dead: Dead) -> Explanation:
    why = f"it is a dead letter since {facts.at(dead.at)}, because {_KINDS.get(dead.kind, dead.kind)}: {dead.reason}"
    after = f"after {dead.attempts} attempt{'' if dead.attempts == 1 else 's'}"
    life = (*_life(facts), LifeEvent(dead.at, f"became a dead letter, {after}: {dead.reason}"))
    text = f"{why}. It is kept, and not delivered, until an operator redrives or deletes it"
    spent, allowed = dead.attempts, facts.allowed
    return Explanation(facts.id, Standing.DEAD, text, facts.now, spent=spent, allowed=allowed, life=in_order(life))


def _alive(facts: _Facts) -> Explanation:
    standing, why = _standing(facts)
    life = [*_life(facts)]
    if facts.spent:
        text = f"{facts.spent} of {facts.allowed} attempts used up; the logs of its consumers have their errors"
        life.append(LifeEvent(None, text))
    holder = facts.place.timer.holder if facts.place and facts.place.state is State.LEASED else ""
    until = facts.due if facts.due > facts.now else None
    return Explanation(facts.id, standing, why, facts.now, until, facts.spent, facts.allowed, holder, in_order(life))


def _standing(facts: _Facts) -> tuple[Standing, str]:
    if facts.due <= facts.now:
        return Standing.WAITING, f"{_since(facts)}. {_what_keeps_it(facts)}"
    if facts.place is None:
        return Standing.DELAYED, f"it was sent to be due {facts.at(facts.due)}, and is not delivered before"
    standing, why = _hidden(facts, facts.place)
    return standing, f"{why}{'. The queue is paused meanwhile' if facts.behaviour.paused else ''}"


def _hidden(facts: _Facts, place: _Place) -> tuple[Standing, str]:
    due = facts.at(place.due)
    match place.state:
        case State.LEASED:
            attempt = f"attempt {facts.spent + 1} of {facts.allowed}"
            held = f"{place.timer.holder} has it leased, for {attempt}, until {due}"
            return Standing.IN_FLIGHT, f"{held}; unless it is settled or extended by then, another consumer gets it"
        case State.BACKING_OFF:
            failed = f"attempt {facts.spent} of {facts.allowed} failed" if facts.spent else "it was given back early"
            return Standing.BACKING_OFF, f"{failed}, and it rests until {due} before the next"
        case State.PARKED:
            return Standing.PARKED, f"{_unknown_task(facts)}; it is offered again {due}. Start a worker that knows it"
    if facts.envelope and facts.envelope.sent > facts.now + AHEAD_AT_MOST:
        sent = facts.at(facts.envelope.sent)
        return Standing.SNOOZED, f"it is hidden until {due}: its sender's clock showed {sent} as it was sent"
    actors = "by its handler, by a release, or by a worker that ended"
    return Standing.SNOOZED, f"it was put off until {due}, at no cost of an attempt: {actors}"


def _unknown_task(facts: _Facts) -> str:
    task = (facts.envelope.headers or {}).get(_TASK) if facts.envelope else None
    return (
        f"the worker that had it does not know its task {task!r}"
        if task
        else "the worker that had it has no handler for it"
    )


def _since(facts: _Facts) -> str:
    """Since when any consumer may take it, and its state before."""
    if facts.place is None:
        return f"any consumer may take it since {facts.at(facts.due)}"
    before = {
        State.LEASED: f"the lease of {facts.place.timer.holder} ran out {facts.at(facts.due)} without an outcome",
        State.BACKING_OFF: f"its rest after attempt {facts.spent} of {facts.allowed} ended {facts.at(facts.due)}",
        State.PARKED: f"{_unknown_task(facts)}, and it is offered again since {facts.at(facts.due)}",
    }
    other = f"any consumer may take it since {facts.at(facts.due)}, given back, put off or redriven before"
    return before.get(facts.place.state, other)


def _what_keeps_it(facts: _Facts) -> str:
    """Why no consumer has taken it although it is due: the strongest reason."""
    if facts.broken:
        return f"But nothing is claimed from its row: {facts.broken}"
    if facts.behaviour.paused:
        return "But the queue is paused: nothing is delivered until an operator resumes it"
    if doomed := _doom(facts):
        return f"But {doomed}; the next claim that reads it makes it a dead letter"
    if facts.envelope and facts.envelope.sent > facts.now + AHEAD_AT_MOST:
        sent = facts.at(facts.envelope.sent)
        return f"But its sender's clock showed {sent}: it is delivered once that is less than 50 minutes away"
    return _row(facts)


def _doom(facts: _Facts) -> str:
    if facts.content.problem:
        return facts.content.problem
    if facts.envelope and facts.envelope.expires is not None and facts.envelope.expires <= facts.now:
        return f"it expired {facts.at(facts.envelope.expires)}"
    return f"its {facts.allowed} attempts are used up" if facts.spent >= facts.allowed else ""


def _row(facts: _Facts) -> str:
    """Whether a process works on its row, as far as the header shows."""
    if facts.header is None:
        return "Nothing was ever claimed from its row: start a worker or a consumer on this queue"
    owner = decode_header(facts.id.row, facts.header.value).owner
    last = f"its row was last changed {facts.at(facts.header.written)}{f' by {owner}' if owner else ''}"
    if facts.header.written > facts.now - STILL:
        return f"It waits its turn: {last}"
    return f"No worker seems to be running on this queue: {last}. Start a worker or a consumer"


def _life(facts: _Facts) -> Iterator[LifeEvent]:
    if facts.envelope:
        yield LifeEvent(facts.envelope.sent, "sent")
        if facts.envelope.expires is not None:
            passed = facts.envelope.expires <= facts.now
            yield LifeEvent(facts.envelope.expires, "expired" if passed else "expires unless it was handed out")
    yield LifeEvent(facts.id.moment, "due for the first time")
