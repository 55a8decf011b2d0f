"""Outcomes on their way into the store, and what is recorded of them: in counters, in the history, for hooks."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Event, Kind
from astyqueue.observe.events import LeaseRenewed, OutcomeLost, Settled
from astyqueue.observe.observers import Observers
from astyqueue.protocol.settling.outcomes import ACK, Ack, Extend, Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleResult
from astyqueue.queue.delivery.base_delivery import BaseDelivery, already_settled_error
from astyqueue.queue.history_writer import HistoryWriter
from astyqueue.queue.hooks import HookNotifier
from astyqueue.queue.metrics import QueueStats
from astyqueue.waiting import BargingLock, Wakeup

#: Outcomes of deliveries, added together.
Wanted = Sequence[tuple[BaseDelivery, Outcome]]
WORDS: Final[dict[type[Outcome], str]] = {
    Ack: "acked",
    Release: "released",
    Reject: "rejected",
    Extend: "extended",
}


@dataclass(slots=True, eq=False)
class SettleTicket:
    """A caller's wait for commits: the number of outcomes left, deliveries that were lost, the error that ended it."""

    left: int
    lost: list[BaseDelivery] = field(default_factory=list)
    wakeup: Wakeup | None = None
    error: Exception | None = None

    @property
    def over(self) -> bool:
        """Whether there is nothing left to wait for."""
        return not self.left or self.error is not None

    def fail(self, error: Exception) -> None:
        """End the wait with an error."""
        self.error = error
        if self.wakeup:
            self.wakeup.set()

    def one_less(self) -> None:
        """Count one outcome as committed or lost; after the last one, wake the caller."""
        self.left -= 1
        if not self.left and self.wakeup:
            self.wakeup.set()


class PendingOutcome(NamedTuple):
    """An outcome of a delivery, the tickets of the callers that wait for it, and its events for the queue's history."""

    delivery: BaseDelivery
    outcome: Outcome
    tickets: tuple[SettleTicket, ...] = ()
    events: tuple[Event, ...] = ()

    def over(self, *, lost: bool) -> None:
        """Record the result in the tickets of the callers that wait."""
        for ticket in self.tickets:
            if lost:
                ticket.lost.append(self.delivery)
            ticket.one_less()

    def refuse(self) -> None:
        """Raise AlreadySettled in the callers of an extension, which is not made: the delivery got another outcome.

        If that one fails, it is withdrawn, and the lease ends when it would have ended.
        """
        error = already_settled_error(self.delivery)
        for ticket in self.tickets:
            ticket.fail(error)


class FreedGroups:
    """The rows in which new outcomes end messages of groups: a claim there can take the next ones at once.

    Any thread notes them, and the leader takes them.
    """

    def __init__(self) -> None:
        """No row."""
        self._rows: set[str] = set()

    def note(self, pending: PendingOutcome) -> None:
        """Note the row of an outcome of a message of a group, if it ends the message."""
        if isinstance(pending.outcome, Ack | Reject):
            self._rows.add(pending.delivery.row)

    def take(self) -> set[str]:
        """The rows that were noted since the last call."""
        rows = set[str]()
        while self._rows:  # one by one: others may be noted meanwhile
            rows.add(self._rows.pop())
        return rows


class OutcomeRecorder:
    """Records what became of outcomes: in the counters, in the queue's history, and for the hooks."""

    def __init__(self, stats: QueueStats, notifier: HookNotifier, history: HistoryWriter, observers: Observers) -> None:
        """`notifier` calls the hooks."""
        self.deciding = BargingLock()
        self.freed_groups = FreedGroups()
        self.observers = observers
        self.stats = stats
        self.notifier = notifier
        self.history = history

    @contextlib.contextmanager
    def settling(self, outcomes: Wanted) -> Iterator[None]:
        """While the block lasts no other caller gives these deliveries an outcome; AlreadySettled if one has one.

        The hooks are asked first, and may refuse.
        """
        settling = [
            (delivery, WORDS[type(outcome)]) for delivery, outcome in outcomes if not isinstance(outcome, Extend)
        ]
        with self.deciding:
            for delivery, _ in outcomes:
                if delivery.settled or delivery.settling:
                    raise already_settled_error(delivery)
            for delivery, word in settling:
                delivery.settling = word
        try:
            if self.notifier.present:
                for delivery, outcome in outcomes:
                    self.notifier.ask(delivery, WORDS[type(outcome)])
            yield
        finally:
            for delivery, _ in settling:
                delivery.settling = None

    def committed(self, row: str, outcomes: Sequence[PendingOutcome]) -> None:
        """Record outcomes that a caller has committed itself."""
        for one in outcomes:
            one.delivery.settled = WORDS[type(one.outcome)]
        self.count(one.outcome for one in outcomes)
        if self.observers.on:
            self.observe(row, outcomes, set())
        for one in outcomes:
            self.conclude(one, lost=False)

    def acks_simply(self, delivery: BaseDelivery) -> bool:
        """Whether an ack of this delivery needs no hook, no history event and no other columns: the common case."""
        return delivery.goes_alone and not (self.notifier.present or self.history.wants(Kind.DONE))

    def all_pending(self, outcomes: Wanted, tickets: tuple[SettleTicket, ...]) -> list[PendingOutcome]:
        """These outcomes, which are added now."""
        keeps_acks = self.history.wants(Kind.DONE)
        return [
            PendingOutcome(delivery, outcome, tickets)  # the common case, kept cheap
            if outcome is ACK and delivery.goes_alone and not keeps_acks
            else self.pending(delivery, outcome, tickets)
            for delivery, outcome in outcomes
        ]

    def pending(self, delivery: BaseDelivery, outcome: Outcome, tickets: tuple[SettleTicket, ...]) -> PendingOutcome:
        """An outcome that is added now, with what is written beside it."""
        if isinstance(outcome, Ack | Reject) and not delivery.goes_alone:
            outcome = outcome._replace(effects=delivery.effects)
            if isinstance(outcome, Ack) and delivery.follow_ups:
                outcome = outcome._replace(follow_ups=delivery.follow_ups.freeze())
        return PendingOutcome(delivery, outcome, tickets, self.history.of_outcome(delivery, outcome))

    def count(self, outcomes: Iterable[Outcome]) -> None:
        """Count outcomes that are in the store."""
        counts: Counter[type[Outcome]] = Counter(map(type, outcomes))
        for kind, count in counts.items():
            if kind is not Extend:
                self.stats.add(WORDS[kind], count)

    def lost(self, delivery: BaseDelivery, events: tuple[Event, ...] = ()) -> None:
        """Record that the lease of a delivery was lost; `events` are those of its outcome, which came too late."""
        self.stats.lose(delivery.message_id)
        self.history.mark_lost(events)
        delivery.settled = "lost"
        if self.observers.on:
            self.observers.notify(OutcomeLost(delivery.row, delivery.message_id))

    def observe(self, row: str, committed: Iterable[PendingOutcome], gone: set[Id]) -> None:
        """Notify the observers of outcomes that are in the store; those of deliveries that are `gone` are lost."""
        messages: dict[str, list[MessageId]] = {}
        for delivery, outcome, _, _ in committed:
            if delivery.id not in gone:
                messages.setdefault(WORDS[type(outcome)], []).append(delivery.message_id)
        self.observers.notify(*[Settled(row, word, tuple(ids)) for word, ids in messages.items()])

    def superseded(self, deliveries: Iterable[BaseDelivery], settled: SettleResult) -> None:
        """Record which of these messages were given back and deleted: others had taken their unique keys."""
        dropped = {name.id for plan in settled.done for name in plan.dropped}
        if not dropped:
            return
        gone, events = [one for one in deliveries if one.id in dropped], self.history.events
        self.history.note(
            Kind.CANCELLED,
            lambda: [
                events.of_command(Kind.CANCELLED, one.message_id, one.held.envelope.key, why="replaced") for one in gone
            ],
        )
        for one in gone:
            self.notifier.deleted(one.message_id, "replaced")

    def conclude_all(self, row: str, committed: Sequence[PendingOutcome], gone: set[Id]) -> None:
        """Conclude these outcomes of a commit to a row, and notify the observers; those in `gone` came too late."""
        if self.observers.on:
            self.observe(row, committed, gone)
        elif not (gone or self.notifier.present):  # the common case, kept cheap
            for pending in committed:
                if pending.tickets:
                    pending.over(lost=False)
            return
        for pending in committed:
            self.conclude(pending, lost=pending.delivery.id in gone)

    def conclude(self, pending: PendingOutcome, *, lost: bool) -> None:
        """End the wait for an outcome that is in the store or came too late, and queue its hook calls."""
        if lost and isinstance(pending.outcome, Extend) and pending.delivery.decided:
            pending.refuse()
            return
        if lost:
            self.lost(pending.delivery, pending.events)
        pending.over(lost=lost)
        self.notifier.settled(pending.delivery, "lost" if lost else WORDS[type(pending.outcome)])

    def conclude_renewal(self, row: str, deliveries: Iterable[BaseDelivery], gone: set[Id], until: int) -> None:
        """Record the renewal of a lease; of those `gone`, a delivery that is or gets settled has its own outcome."""
        if not (gone or self.observers.on or self.notifier.present):  # the common case, kept cheap
            return
        kept: list[BaseDelivery] = []
        for delivery in deliveries:
            if delivery.id not in gone:
                kept.append(delivery)
                self.notifier.settled(delivery, WORDS[Extend])
            else:
                self._lose_unless_decided(delivery)
        if kept and self.observers.on:
            self.observers.notify(LeaseRenewed(row, tuple(one.message_id for one in kept), until))

    def _lose_unless_decided(self, delivery: BaseDelivery) -> None:
        with self.deciding:
            if delivery.decided:  # by a thread, or by a transaction until it has recorded its commit
                return
            delivery.settled = "lost"
        self.lost(delivery)
        self.notifier.settled(delivery, "lost")
