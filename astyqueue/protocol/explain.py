"""Why a message has not run yet: what holds it, whom it waits for, and what the store still knows of its life.

It changes nothing and decides nothing: every read is plain, and others go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.errors import Undecodable
from astyqueue.model.explanation import Event, Explanation, in_order
from astyqueue.model.message import Envelope, MessageId
from astyqueue.model.moments import told_at
from astyqueue.model.settings import Behaviour
from astyqueue.model.views import Content, Standing
from astyqueue.protocol.columns import HEADER, Dead, Entry, Mark, State, Timer, dead_name, decode_dead, decode_header, message_name
from astyqueue.protocol.pages import glimpse, listed_by
from astyqueue.protocol.picking import AHEAD
from astyqueue.protocol.process import Process
from astyqueue.protocol.steps import Steps, read_column
from astyqueue.store import Column

#: A row that nobody changed for so long, though something is due in it, has nobody who works on it.
STILL: Final = 60 * SECOND
_TASK: Final = "task"
_KINDS: Final = {
    "rejected": "whoever had it rejected it",
    "failed": "its last attempt failed",
    "attempts": "all its attempts were used up by takers that died or fell silent",
    "expired": "nobody took it in time",
    "undecodable": "it cannot be read",
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a message is listed: in which timer, and with how many attempts spent."""

    timer: Timer
    listed: Entry | Mark

    @property
    def due(self) -> int:
        return min(self.listed.due, self.timer.due) if isinstance(self.listed, Mark) else self.timer.due

    @property
    def state(self) -> State:
        """A mark is what its holder gave back early: nobody has it."""
        return State.BACKING_OFF if isinstance(self.listed, Mark) else State(self.timer.state)


@dataclass(frozen=True, slots=True)
class _Facts:
    """All that was read of one message."""

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
        return told_at(moment, self.now)


def explain(process: Process, message: MessageId, behaviour: Behaviour) -> Steps[Explanation]:
    """Why this message is where it is. The header is read first and dead columns last, as by whoever claims."""
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
    sight = yield from glimpse(message.row, 1, now)
    found = (_Place(timer, one) for timer in (sight.timers or {}).values() for one in listed_by(timer) if one.id == message.id)
    return next(found, None)


def _why_gone(facts: _Facts) -> str:
    if facts.header is None:
        return "it was never sent here: nothing was ever taken from its row or removed from it. See that the id and the store are right"
    if facts.id.moment > facts.now:
        return f"it is not there, and would not have been due before {facts.at(facts.id.moment)}: it was deleted, or never sent"
    return "it is not there (any more): it was done and acked, or deleted, or never sent"


def _dead(facts: _Facts, dead: Dead) -> Explanation:
    why = f"it is a dead letter since {facts.at(dead.at)}, because {_KINDS.get(dead.kind, dead.kind)}: {dead.reason}"
    after = f"after {dead.attempts} attempt{'' if dead.attempts == 1 else 's'}"
    life = (*_life(facts), Event(dead.at, f"became a dead letter, {after}: {dead.reason}"))
    told = f"{why}. It is kept, and handed to nobody, until somebody redrives or deletes it"
    return Explanation(facts.id, Standing.DEAD, told, facts.now, spent=dead.attempts, allowed=facts.allowed, life=in_order(life))


def _alive(facts: _Facts) -> Explanation:
    standing, why = _standing(facts)
    life = [*_life(facts)]
    if facts.spent:
        life.append(Event(None, f"{facts.spent} of {facts.allowed} attempts used up; their errors are in the logs of whoever had it"))
    holder = facts.place.timer.holder if facts.place and facts.place.state is State.LEASED else ""
    until = facts.due if facts.due > facts.now else None
    return Explanation(facts.id, standing, why, facts.now, until, facts.spent, facts.allowed, holder, in_order(life))


def _standing(facts: _Facts) -> tuple[Standing, str]:
    """Where it stands, and why it has not run."""
    if facts.due <= facts.now:
        return Standing.WAITING, f"{_since(facts)}. {_what_keeps_it(facts)}"
    if facts.place is None:
        return Standing.DELAYED, f"it was sent to be due {facts.at(facts.due)}, and nobody is handed it before"
    standing, why = _hidden(facts, facts.place)
    return standing, f"{why}{'. The queue is paused meanwhile' if facts.behaviour.paused else ''}"


def _hidden(facts: _Facts, place: _Place) -> tuple[Standing, str]:
    due = facts.at(place.due)
    match place.state:
        case State.LEASED:
            attempt = f"attempt {facts.spent + 1} of {facts.allowed}"
            held = f"{place.timer.holder} has it in hand, for {attempt}, until {due}"
            return Standing.IN_FLIGHT, f"{held}; unless it is settled or extended by then, another gets it"
        case State.BACKING_OFF:
            failed = f"attempt {facts.spent} of {facts.allowed} failed" if facts.spent else "it was given back early"
            return Standing.BACKING_OFF, f"{failed}, and it rests until {due} before the next"
        case State.PARKED:
            return Standing.PARKED, f"{_unknown_task(facts)}; it is offered again {due}. Start a worker that knows it"
    if facts.envelope and facts.envelope.sent > facts.now + AHEAD:
        return Standing.SNOOZED, f"it is hidden until {due}: its sender's clock said {facts.at(facts.envelope.sent)} as it was sent"
    return (
        Standing.SNOOZED,
        f"it was put off until {due}, at no cost of an attempt: by its handler, by a release, or by a worker that ended",
    )


def _unknown_task(facts: _Facts) -> str:
    task = (facts.envelope.headers or {}).get(_TASK) if facts.envelope else None
    return f"the worker that had it does not know its task {task!r}" if task else "the worker that had it has no handler for it"


def _since(facts: _Facts) -> str:
    """From when on anybody might have taken it, and what was before."""
    if facts.place is None:
        return f"anybody may take it since {facts.at(facts.due)}"
    before = {
        State.LEASED: f"the lease of {facts.place.timer.holder} ran out {facts.at(facts.due)} without an outcome",
        State.BACKING_OFF: f"its rest after attempt {facts.spent} of {facts.allowed} ended {facts.at(facts.due)}",
        State.PARKED: f"{_unknown_task(facts)}, and it is offered again since {facts.at(facts.due)}",
    }
    return before.get(facts.place.state, f"anybody may take it since {facts.at(facts.due)}, given back, put off or redriven before")


def _what_keeps_it(facts: _Facts) -> str:
    """Why nobody has taken it though it is due; what weighs most comes first."""
    if facts.broken:
        return f"But nothing is taken from its row: {facts.broken}"
    if facts.behaviour.paused:
        return "But the queue is paused: nothing is handed out until somebody resumes it"
    if doomed := _doom(facts):
        return f"But {doomed}; whoever looks at it next makes it a dead letter"
    if facts.envelope and facts.envelope.sent > facts.now + AHEAD:
        return f"But its sender's clock said {facts.at(facts.envelope.sent)}: it is handed out once that is less than 50 minutes away"
    return _row(facts)


def _doom(facts: _Facts) -> str:
    if facts.content.problem:
        return facts.content.problem
    if facts.envelope and facts.envelope.expires is not None and facts.envelope.expires <= facts.now:
        return f"it expired {facts.at(facts.envelope.expires)}"
    return f"its {facts.allowed} attempts are used up" if facts.spent >= facts.allowed else ""


def _row(facts: _Facts) -> str:
    """Who looks at its row, as far as the header tells."""
    if facts.header is None:
        return "Nothing was ever taken from its row: start a worker or a consumer on this queue"
    owner = decode_header(facts.id.row, facts.header.value).owner
    last = f"its row was last changed {facts.at(facts.header.written)}{f' by {owner}' if owner else ''}"
    if facts.header.written > facts.now - STILL:
        return f"It waits its turn: {last}"
    return f"Nobody seems to be working on this queue: {last}. Start a worker or a consumer"


def _life(facts: _Facts) -> Iterator[Event]:
    """What the message itself tells."""
    if facts.envelope:
        yield Event(facts.envelope.sent, "sent")
        if facts.envelope.expires is not None:
            passed = facts.envelope.expires <= facts.now
            yield Event(facts.envelope.expires, "expired" if passed else "expires unless it was handed out")
    yield Event(facts.id.moment, "due for the first time")
