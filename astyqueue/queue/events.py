"""The events of a queue's history, made of what happens in this process."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.model.event import Event, Kind
from astyqueue.model.message import Envelope, MessageId
from astyqueue.model.moments import iso
from astyqueue.model.outgoing import Composed
from astyqueue.model.schedules import SCHEDULE
from astyqueue.protocol.claim import Claimed
from astyqueue.protocol.columns import Entry, State
from astyqueue.protocol.fire import Fired
from astyqueue.protocol.history import REASON, TRACE
from astyqueue.protocol.outcomes import Ack, Extend, Reject, Release, Settling
from astyqueue.protocol.process import Process
from astyqueue.protocol.slots import Skipped
from astyqueue.queue.holding import AT_MOST_ONCE, Handed

#: The headers that events tell of.
_TOLD: Final = ("task", SCHEDULE, "tenant")
_RAN_OUT: Final = "its lease ran out before anybody said what became of it"
_HOW: Final = {State.SNOOZED: "snoozed", State.PARKED: "parked"}
#: How long a traceback stands for others of its cause, and of how many causes one is kept within that.
_MINUTE: Final = 60 * SECOND
_CAUSES: Final = 100

#: The type of an error, and the lines (of which file) through which it came.
Cause = tuple[type[BaseException], tuple[tuple[str, int], ...]]


def kinds_of(outcome: Settling) -> tuple[Kind, ...]:
    """What is told of an outcome: of a failed attempt, that it failed and what becomes of its message."""
    match outcome:
        case Ack():
            return (Kind.DONE,)
        case Reject(kind="failed"):
            return (Kind.FAILED, Kind.DEAD)
        case Reject():
            return (Kind.DEAD,)
        case Release(state=State.BACKING_OFF):
            return (Kind.FAILED, Kind.RETRIED)
        case Release():
            return (Kind.RELEASED,)
        case Extend():
            return ()


class Traces:
    """The tracebacks that go into the history: of failures of one cause one a minute, for one is as good as the others.

    They are long, and senders could fill the history with them; the others name the event that has it.
    """

    def __init__(self) -> None:
        """None was told."""
        self._told: dict[Cause, Event] = {}
        self._lock = threading.Lock()

    def of(self, error: BaseException, event: Event) -> str:
        """The traceback of an error, no more than is kept, for events may wait in memory while a store is away; or where one like it is."""
        if error.__traceback__ is None:  # there is no more to it than its text
            return "".join(traceback.format_exception(error))[-TRACE:]
        cause = _cause(error)
        with self._lock:
            self._told = {other: told for other, told in self._told.items() if 0 <= event.at - told.at < _MINUTE}
            earlier = self._told.get(cause)
            if earlier is None and len(self._told) >= _CAUSES:
                return f"not kept: there were {_CAUSES} failures of other causes within the minute before"
            self._told.setdefault(cause, event)
        if earlier is None:
            return "".join(traceback.format_exception(error))[-TRACE:]
        return (
            f"as that of attempt {earlier.attempt} of {earlier.message}, which failed at the same place at {iso(earlier.when)}: "
            "of such failures one traceback a minute is kept"
        )


def _cause(error: BaseException) -> Cause:
    """What failures that come from the same place have in common, whatever their errors say."""
    return type(error), tuple((frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__))


class Events:
    """Makes the events that one process has to tell of one queue. Nothing is written here."""

    def __init__(self, process: Process, queue: str) -> None:
        """What this process does, in its time."""
        self._process = process
        self._queue = queue
        self._traces = Traces()

    def of_outcome(self, delivery: Handed, outcome: Settling, kinds: Iterable[Kind]) -> tuple[Event, ...]:
        """These events of an outcome that is handed in now."""
        whole = self._about(delivery.row, delivery.held.entry, delivery.held.envelope, at=self._process.now())
        claimed = (delivery.hold.since or None) if delivery.hold else None
        whole = replace(whole, claimed=claimed, began=delivery.began or claimed)
        return tuple(self._told(replace(whole, kind=kind), delivery, outcome) for kind in kinds)

    def of_claim(self, row: str, claimed: Claimed, *, at: int) -> Iterator[Event]:
        """What a claim that began at a moment found and made of it: leases that had run out, and dead letters."""
        envelopes = {one.entry.id: one.envelope for taken in claimed.claims for one in taken.held}
        envelopes |= {one.entry.id: one.envelope for one in claimed.at_most_once}
        envelopes |= {one.entry.id: one.envelope for one in claimed.buried if one.envelope}
        for entry, holder in claimed.lapsed:
            failed = self._about(row, entry, envelopes.get(entry.id), at=at)
            yield replace(failed, kind=Kind.FAILED, worker=holder, why="lapsed", reason=_RAN_OUT)
        for entry, death, envelope in claimed.buried:
            dead = self._about(row, entry, envelope, at=death.at)
            yield replace(dead, kind=Kind.DEAD, attempt=death.attempts, why=death.kind, reason=death.reason)

    def of_hand_out(self, row: str, claimed: Claimed, *, at: int) -> Iterator[Event]:
        """That messages were claimed by a moment and handed out; those that are so at most once are done with that."""
        for taken in claimed.claims:
            for held in taken.held:
                yield replace(self._about(row, held.entry, held.envelope, at=at), claimed=at, until=taken.timer.due)
        for held in claimed.at_most_once:
            once = replace(self._about(row, held.entry, held.envelope, at=at), claimed=at, why=AT_MOST_ONCE)
            yield from (once, replace(once, kind=Kind.DONE))

    def of_firing(self, row: str, fired: Iterable[Fired]) -> Iterator[Event]:
        """That slots of schedules were fired; the name of a schedule is the key of its events."""
        for one in fired:
            event = self._event(one.at, Kind.FIRED, MessageId(row, one.run.priority, one.run.id))
            yield replace(event, key=one.schedule, schedule=one.schedule, sent=one.at, due=one.slot, slot=one.slot)

    def of_scheduled(self, row: str, fired: Iterable[Fired]) -> Iterator[Event]:
        """That the messages of schedules are sent, those of slots and those that somebody asked for."""
        for one in fired:
            event = self._event(one.at, Kind.SENT, MessageId(row, one.run.priority, one.run.id))
            told = replace(event, key=one.template.key, sent=one.at, due=one.slot)
            yield _with_headers(told, {**one.template.headers, SCHEDULE: one.schedule})

    def of_skipping(self, skipped: Iterable[Skipped]) -> Iterator[Event]:
        """The slots for which no message was sent."""
        for each in skipped:
            reason = each.why if each.slots == 1 else f"{each.slots} slots: {each.why}"
            event = self._event(each.at, Kind.SKIPPED, None)
            yield replace(event, key=each.schedule, schedule=each.schedule, slot=each.slot, reason=reason)

    def of_sending(self, message: MessageId, composed: Composed) -> Event:
        """That a message is sent, at the moment that it says itself."""
        sent = composed.sent
        event = replace(self._event(sent, Kind.SENT, message), key=composed.key, sent=sent, due=composed.due or sent)
        return _with_headers(event, composed.headers)

    def of_order(self, kind: Kind, message: MessageId, key: str | None, *, why: str) -> Event:
        """That somebody had this done to a message."""
        return replace(self._event(self._process.now(), kind, message), key=key, why=why)

    def _about(self, row: str, entry: Entry, envelope: Envelope | None, *, at: int) -> Event:
        """An event, as yet of a claim, about a message of which somebody knows what is in it, or not."""
        event = replace(self._event(at, Kind.CLAIMED, MessageId(row, entry.priority, entry.id)), attempt=entry.spent + 1)
        if envelope is None:
            return event
        known = replace(event, key=envelope.key, sent=envelope.sent, due=envelope.due or envelope.sent)
        return _with_headers(known, envelope.headers)

    def _event(self, at: int, kind: Kind, message: MessageId | None) -> Event:
        return Event(at, kind, self._queue, message, worker=self._process.name)

    def _told(self, event: Event, delivery: Handed, outcome: Settling) -> Event:
        """An event with what its outcome says."""
        match event.kind, outcome:
            case Kind.FAILED, _:
                trace = "" if delivery.error is None else self._traces.of(delivery.error, event)
                return replace(event, reason=delivery.failure[:REASON], trace=trace)
            case _, Reject(kind=kind, reason=reason):
                return replace(event, why=kind, reason=reason[:REASON])
            case Kind.RETRIED, Release(due=due):
                return replace(event, until=due, reason=delivery.failure[:REASON])
            case _, Release(due=due, state=state):
                return replace(event, until=due, why=_HOW.get(state, ""))
        return event


def _with_headers(event: Event, headers: Mapping[str, str] | None) -> Event:
    task, schedule, tenant = map((headers or {}).get, _TOLD)
    return replace(event, task=task, schedule=schedule, tenant=tenant)
