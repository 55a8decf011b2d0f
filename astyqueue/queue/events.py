"""The events of a queue's history, made of what happens in this process."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from astyqueue.model.event import Event, Kind
from astyqueue.model.message import Envelope, MessageId
from astyqueue.model.outgoing import Composed
from astyqueue.model.schedules import SCHEDULE
from astyqueue.protocol.claim import Claimed
from astyqueue.protocol.columns import Entry, State
from astyqueue.protocol.fire import Fired
from astyqueue.protocol.history import REASON, TRACE
from astyqueue.protocol.outcomes import Ack, Extend, Reject, Release, Settling
from astyqueue.protocol.process import Process
from astyqueue.protocol.slots import Skipped
from astyqueue.queue.holding import Handed

#: The headers that events tell of.
_TOLD: Final = ("task", SCHEDULE, "tenant")
_RAN_OUT: Final = "its lease ran out before anybody said what became of it"
_HOW: Final = {State.SNOOZED: "snoozed", State.PARKED: "parked"}
_AT_MOST_ONCE: Final = "at most once"


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


class Events:
    """Makes the events that one process has to tell of one queue. Nothing is written here."""

    def __init__(self, process: Process, queue: str) -> None:
        """What this process does, in its time."""
        self._process = process
        self._queue = queue

    def of_outcome(self, delivery: Handed, outcome: Settling, kinds: Iterable[Kind]) -> tuple[Event, ...]:
        """These events of an outcome that is handed in now."""
        whole = self._about(delivery.row, delivery.held.entry, delivery.held.envelope, at=self._process.now())
        claimed = (delivery.hold.since or None) if delivery.hold else None
        whole = replace(whole, claimed=claimed, began=delivery.began or claimed)
        return tuple(_told(replace(whole, kind=kind), delivery, outcome) for kind in kinds)

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
            once = replace(self._about(row, held.entry, held.envelope, at=at), claimed=at, why=_AT_MOST_ONCE)
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


def _with_headers(event: Event, headers: Mapping[str, str] | None) -> Event:
    task, schedule, tenant = map((headers or {}).get, _TOLD)
    return replace(event, task=task, schedule=schedule, tenant=tenant)


def _told(event: Event, delivery: Handed, outcome: Settling) -> Event:
    """An event with what its outcome says."""
    match event.kind, outcome:
        case Kind.FAILED, _:
            return replace(event, reason=delivery.failure[:REASON], trace=_trace(delivery.error))
        case _, Reject(kind=kind, reason=reason):
            return replace(event, why=kind, reason=reason[:REASON])
        case Kind.RETRIED, Release(due=due):
            return replace(event, until=due, reason=delivery.failure[:REASON])
        case _, Release(due=due, state=state):
            return replace(event, until=due, why=_HOW.get(state, ""))
    return event


def _trace(error: BaseException | None) -> str:
    """No more than is kept: events may wait in memory for as long as the store is away."""
    return "" if error is None else "".join(traceback.format_exception(error))[-TRACE:]
