"""Makes the events of this process for the history of a queue, and writes them in batches."""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from astyqueue.errors import Closed, StoreError
from astyqueue.log_throttle import NAMES, MinuteLimit
from astyqueue.model.envelope import Envelope, MessageId
from astyqueue.model.event import KEPT, Event, Kind
from astyqueue.model.message import PreparedMessage
from astyqueue.model.schedule import SCHEDULE
from astyqueue.protocol.admin import browse
from astyqueue.protocol.claiming.claim import ClaimResult
from astyqueue.protocol.history import REASON, TRACE, batches_of, record_events
from astyqueue.protocol.layout.columns import Entry, State
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.scheduling.fire import FiredOccurrence
from astyqueue.protocol.scheduling.policies import SkippedOccurrences
from astyqueue.protocol.settling.outcomes import Ack, Extend, Outcome, Reject, Release
from astyqueue.protocol.steps import Client, Steps
from astyqueue.queue.delivery.base_delivery import AT_MOST_ONCE, BaseDelivery
from astyqueue.queue.settings_sync import SettingsSync
from astyqueue.store import Batch
from astyqueue.structured_log import log_event, log_safely
from astyqueue.text import iso
from astyqueue.units import SECOND

#: The headers that events record.
_RECORDED: Final = ("task", SCHEDULE, "tenant")
_RAN_OUT: Final = "its lease ran out before a consumer settled it"
_HOW: Final = {State.SNOOZED: "snoozed", State.PARKED: "parked"}

#: The type of an error, and the files and lines of its traceback.
Cause = tuple[type[BaseException], tuple[tuple[str, int], ...]]


_log: Final = logging.getLogger("astyqueue.queue")
#: How long noted events may wait for others, and how many are kept in memory while the store is unavailable.
_PATIENCE: Final = SECOND
_NOTED: Final = 10_000


def kinds_of(outcome: Outcome) -> tuple[Kind, ...]:
    """The kinds of events of an outcome; a failed attempt has two: its failure, and what happens to its message."""
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


class TracebackLimiter:
    """Limits the tracebacks in the history to one a minute for each cause.

    Tracebacks are long, and senders could fill the history with them; the other events name the one that has it.
    """

    def __init__(self) -> None:
        """No traceback was kept yet."""
        self._first: MinuteLimit[Cause, Event, int] = MinuteLimit()

    def of(self, error: BaseException, event: Event) -> str:
        """The traceback of an error, or a reference to the event that has one of the same cause.

        It is cut to the stored length here, because events may wait in memory while the store is unavailable.
        """
        if error.__traceback__ is None:  # it has only its text
            return "".join(traceback.format_exception(error))[-TRACE:]
        earlier = self._first.first(_cause(error), event, event.at)
        if earlier is None:
            return f"not kept: there were {NAMES} failures of other causes within the minute before"
        if earlier is event:
            return "".join(traceback.format_exception(error))[-TRACE:]
        return (
            f"as that of attempt {earlier.attempt} of {earlier.message}, which failed at the same place "
            f"at {iso(earlier.when)}: of such failures one traceback a minute is kept"
        )


def _cause(error: BaseException) -> Cause:
    """The cause that failures at the same place share, whatever the texts of their errors."""
    return type(error), tuple(
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    )


class EventFactory:
    """Makes the events of one process for one queue; it writes nothing."""

    def __init__(self, process: Client, queue: str) -> None:
        """`process` gives events their worker and their time."""
        self._process = process
        self._queue = queue
        self._traces = TracebackLimiter()

    def of_outcome(self, delivery: BaseDelivery, outcome: Outcome, kinds: Iterable[Kind]) -> tuple[Event, ...]:
        """Events of these kinds for an outcome that is added now."""
        whole = self._about(delivery.row, delivery.held.entry, delivery.held.envelope, at=self._process.now())
        claimed = (delivery.lease.since or None) if delivery.lease else None
        whole = replace(whole, claimed=claimed, began=delivery.began or claimed)
        return tuple(self._with_outcome(replace(whole, kind=kind), delivery, outcome) for kind in kinds)

    def of_claim(self, row: str, claimed: ClaimResult, *, at: int) -> Iterator[Event]:
        """Events of a claim that began at the moment `at`: leases that had run out, and messages that it ended."""
        envelopes = {one.entry.id: one.envelope for taken in claimed.claims for one in taken.held}
        envelopes |= {one.entry.id: one.envelope for one in claimed.at_most_once}
        envelopes |= {one.entry.id: one.envelope for one in claimed.buried if one.envelope}
        for entry, holder in claimed.lapsed:
            failed = self._about(row, entry, envelopes.get(entry.id), at=at)
            yield replace(failed, kind=Kind.FAILED, worker=holder, why="lapsed", reason=_RAN_OUT)
        for entry, death, envelope in claimed.buried:
            dead = self._about(row, entry, envelope, at=death.at)
            yield replace(dead, kind=Kind.DEAD, attempt=death.attempts, why=death.kind, reason=death.reason)
        for entry in claimed.superseded:
            yield self.of_command(Kind.CANCELLED, MessageId(row, entry.priority, entry.id), None, why="replaced")

    def of_hand_out(self, row: str, claimed: ClaimResult, *, at: int) -> Iterator[Event]:
        """Events of messages that were claimed at the moment `at`; at-most-once messages are also done then."""
        for taken in claimed.claims:
            for held in taken.held:
                yield replace(self._about(row, held.entry, held.envelope, at=at), claimed=at, until=taken.timer.due)
        for held in claimed.at_most_once:
            once = replace(self._about(row, held.entry, held.envelope, at=at), claimed=at, why=AT_MOST_ONCE)
            yield from (once, replace(once, kind=Kind.DONE))

    def of_firing(self, row: str, fired: Iterable[FiredOccurrence]) -> Iterator[Event]:
        """Events of occurrences of schedules that were fired; the name of a schedule is the key of its events."""
        for one in fired:
            event = self._event(one.at, Kind.FIRED, MessageId(row, one.run.priority, one.run.id))
            yield replace(
                event, key=one.schedule, schedule=one.schedule, sent=one.at, due=one.occurrence, slot=one.occurrence
            )

    def of_scheduled(self, row: str, fired: Iterable[FiredOccurrence]) -> Iterator[Event]:
        """Events of the messages that schedules sent, for occurrences and for requested runs."""
        for one in fired:
            event = self._event(one.at, Kind.SENT, MessageId(row, one.run.priority, one.run.id))
            sent = replace(event, key=one.template.key, sent=one.at, due=one.occurrence)
            yield _with_headers(sent, {**one.template.headers, SCHEDULE: one.schedule})

    def of_skipping(self, skipped: Iterable[SkippedOccurrences]) -> Iterator[Event]:
        """Events of occurrences for which no message was sent."""
        for each in skipped:
            reason = each.why if each.occurrences == 1 else f"{each.occurrences} occurrences: {each.why}"
            event = self._event(each.at, Kind.SKIPPED, None)
            yield replace(event, key=each.schedule, schedule=each.schedule, slot=each.occurrence, reason=reason)

    def of_sending(self, message: MessageId, prepared: PreparedMessage) -> Event:
        """The event of a message that is sent, at its own moment of sending."""
        sent = prepared.sent
        event = replace(self._event(sent, Kind.SENT, message), key=prepared.key, sent=sent, due=prepared.due or sent)
        return _with_headers(event, prepared.headers)

    def of_command(self, kind: Kind, message: MessageId, key: str | None, *, why: str) -> Event:
        """The event of a command on a message."""
        return replace(self._event(self._process.now(), kind, message), key=key, why=why)

    def _about(self, row: str, entry: Entry, envelope: Envelope | None, *, at: int) -> Event:
        """An event about a message, of kind CLAIMED until the caller replaces that; `envelope` is None if not known."""
        event = replace(
            self._event(at, Kind.CLAIMED, MessageId(row, entry.priority, entry.id)), attempt=entry.spent + 1
        )
        if envelope is None:
            return event
        known = replace(event, key=envelope.key, sent=envelope.sent, due=envelope.due or envelope.sent)
        return _with_headers(known, envelope.headers)

    def _event(self, at: int, kind: Kind, message: MessageId | None) -> Event:
        return Event(at, kind, self._queue, message, worker=self._process.name)

    def _with_outcome(self, event: Event, delivery: BaseDelivery, outcome: Outcome) -> Event:
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
    task, schedule, tenant = map((headers or {}).get, _RECORDED)
    return replace(event, task=task, schedule=schedule, tenant=tenant)


class HistoryWriter:
    """Writes the events of this process to the history of one queue."""

    def __init__(self, process: Client, settings_sync: SettingsSync) -> None:
        """The settings decide which events are kept, and for how long."""
        self.events = EventFactory(process, settings_sync.settings.name)
        self._now = process.now
        self._settings_sync = settings_sync
        self._ring = Ring(settings_sync.settings.name, settings_sync.settings.layout)
        self._noted: deque[Event] = deque(maxlen=_NOTED)
        self._lock = threading.Lock()
        self._since = 0

    def __repr__(self) -> str:
        """The queue, which events are kept, and how many are buffered."""
        kept = self._settings_sync.settings.behaviour.history
        return f"<HistoryWriter of {self._ring.queue}: keeps {kept}, {len(self._noted)} events buffered>"

    def wants(self, kind: Kind) -> bool:
        """Whether events of this kind are kept."""
        return kind in KEPT[self._settings_sync.settings.behaviour.history]

    def of_outcome(self, delivery: BaseDelivery, outcome: Outcome) -> tuple[Event, ...]:
        """The events of an outcome that is added now; none if making them fails: the message must be settled."""
        kinds = self.kept_kinds(outcome)
        try:
            return self.events.of_outcome(delivery, outcome, kinds) if kinds else ()
        except Exception as error:  # noqa: BLE001 - another program may have written anything into the message
            self._log_dropped(delivery, error)
            return ()

    @log_safely
    def _log_dropped(self, delivery: BaseDelivery, error: Exception) -> None:
        facts = {"queue": self._ring.queue, "id": delivery.message_id}
        log_event(_log, logging.ERROR, "history_event_dropped", exc_info=error, **facts)

    def kept_kinds(self, outcome: Outcome) -> list[Kind]:
        """The kinds of events that are kept for such an outcome."""
        return list(filter(self.wants, kinds_of(outcome)))

    def of_command(self, kind: Kind, messages: Sequence[MessageId], *, why: str) -> Steps[list[Event]]:
        """The events of a command on messages, which are read for their keys; none if this kind is not kept."""
        if not self.wants(kind):
            return []
        keys: dict[MessageId, str | None] = {}
        for _, some in groupby(sorted(messages), key=lambda one: one.row):
            found = yield from browse.contents(list(some))
            keys |= {id_: content.envelope.key for id_, content in found.items() if content.envelope}
        return [self.events.of_command(kind, id_, keys.get(id_), why=why) for id_ in messages]

    def note(self, kind: Kind, events: Callable[[], Iterable[Event]]) -> None:
        """Buffer events of this kind for the next write; `events` is called only if the kind is kept."""
        if self.wants(kind):
            self._remember(events())

    def _remember(self, events: Iterable[Event]) -> None:
        made = list(events)
        with self._lock:
            if not self._noted:
                self._since = self._now()
            self._noted.extend(made)

    def mark_lost(self, events: Iterable[Event]) -> None:
        """Mark written events as lost: their outcomes had no effect."""
        self._remember(replace(event, lost=True) for event in events)

    def write(self, events: Sequence[Event]) -> Steps[None]:
        """Write these events, and the buffered ones with them; does nothing if there are none.

        After an error, any of them may have been written; writing them again changes nothing.
        """
        if not events:
            return
        noted = self._take()
        try:
            yield from record_events(self._ring, [*noted, *events], self._kept)
        except BaseException:
            self._put_back(noted)
            raise

    def _take(self) -> list[Event]:
        with self._lock:
            taken = list(self._noted)
            self._noted.clear()
        return taken

    def _put_back(self, taken: list[Event]) -> None:
        """Put events before those buffered meanwhile; above the limit the oldest are dropped."""
        with self._lock:
            self._noted = deque([*taken, *self._noted], maxlen=_NOTED)

    @property
    def has_noted(self) -> bool:
        """Whether events wait to be written."""
        return bool(self._noted)

    def write_noted(self) -> Steps[None]:
        """Write the buffered events if the oldest has waited a second; if the store fails, they stay buffered."""
        if self._noted and not 0 <= self._now() - self._since < _PATIENCE:
            yield from self.flush()

    def write_or_buffer(self, events: Iterable[Event]) -> Steps[None]:
        """Write events of what has already happened; if the store fails, log it, and try again later.

        `Closed` is not raised: the caller would take it that nothing has happened.
        """
        wanted = [event for event in events if self.wants(event.kind)]
        if wanted:
            self._remember(wanted)
            with contextlib.suppress(Closed):
                yield from self.flush()

    def flush(self) -> Steps[None]:
        """Write the buffered events; if the store fails, log it and keep them buffered."""
        self._since = self._now()
        noted = self._take()
        try:
            yield from record_events(self._ring, noted, self._kept)
        except StoreError as error:
            self._put_back(noted)
            log_event(
                _log,
                logging.WARNING,
                "history_write_failed",
                queue=self._ring.queue,
                events=len(self._noted),
                error=error,
            )
        except BaseException:
            self._put_back(noted)
            raise

    def batches_of(self, events: Iterable[Event]) -> list[Batch]:
        """The batches that write these events, for a caller that sends them together with the messages."""
        return batches_of(self._ring, events, self._kept)

    @property
    def _kept(self) -> int:
        return self._settings_sync.behaviour.history_kept_us
