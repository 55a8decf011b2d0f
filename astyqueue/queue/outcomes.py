"""Outcomes on their way into the store: handed in by many, committed by whoever leads."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from astyqueue.errors import AlreadySettled, LeaseLost
from astyqueue.ids import Id
from astyqueue.model.event import Event
from astyqueue.protocol.along import NOTHING
from astyqueue.protocol.outcomes import Ack, Extend, Reject, Release, Settling
from astyqueue.protocol.settle import Settled
from astyqueue.queue.history import History
from astyqueue.queue.holding import Handed, Hold, after_settling
from astyqueue.queue.stats import Stats
from astyqueue.queue.telling import Telling
from astyqueue.wakeup import Wakeup

_NEVER: Final = 1 << 62
#: Microseconds that an outcome nobody waits for may wait for company.
_PATIENCE: Final = 5_000
#: Outcomes of deliveries, handed in together.
Wanted = Sequence[tuple[Handed, Settling]]
_WORDS: Final[dict[type[Settling], str]] = {Ack: "acked", Release: "released", Reject: "rejected", Extend: "extended"}


@dataclass(slots=True, eq=False)
class Ticket:
    """Somebody who waits until outcomes are committed: how many are left, which were lost, and the error that ended the wait."""

    left: int
    lost: list[Handed] = field(default_factory=list)
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
        """One outcome is committed or lost; after the last, wake whoever waits."""
        self.left -= 1
        if not self.left and self.wakeup:
            self.wakeup.set()


class Pending(NamedTuple):
    """An outcome of a delivery, the tickets of the callers that wait for it, and its events for the queue's history."""

    delivery: Handed
    outcome: Settling
    tickets: tuple[Ticket, ...] = ()
    events: tuple[Event, ...] = ()

    def over(self, *, lost: bool) -> None:
        """Tell the callers that wait."""
        for ticket in self.tickets:
            if lost:
                ticket.lost.append(self.delivery)
            ticket.one_less()


class Outcomes:
    """What this process holds of a queue, and what it has to say about it."""

    def __init__(self, stats: Stats, telling: Telling, history: History) -> None:
        """Begin with nothing in hand."""
        self.in_hand = 0
        self.hurried = False
        self._stats = stats
        self._telling = telling
        self._history = history
        self._lock = threading.Lock()
        self._incoming: deque[Pending] = deque()  # any thread adds to it, and only who has the lock takes from it
        self._called = False
        self._pending: dict[Hold, dict[Id, Pending]] = {}
        self._holds: set[Hold] = set()
        self._flush_at = _NEVER

    def give_back(self, delivery: Handed, outcome: Release) -> None:
        """Hand in that a delivery goes back with which nobody began; hooks are not asked, for there is no other way."""
        self._hand_in([(delivery, outcome)])

    def add(self, delivery: Handed, outcome: Settling) -> bool:
        """Hand in an outcome that nobody waits for; whether the leader should hear of it."""
        self._ask_and_hand_in([(delivery, outcome)])
        if self._called:  # since the leader last looked, who will see this one too
            return False
        self._called = True
        return True

    def demand(self, outcomes: list[tuple[Handed, Settling]]) -> Ticket:
        """Hand in outcomes that somebody waits for, all or none; of a delivery that was settled before, AlreadySettled."""
        ticket = Ticket(len(outcomes))
        self._ask_and_hand_in(outcomes, ticket)
        return ticket

    def _ask_and_hand_in(self, outcomes: Wanted, *tickets: Ticket) -> None:
        """Hand in what the hooks allow. The first caller with an outcome for a delivery keeps it from all others while hooks are asked."""
        settling = [(delivery, _WORDS[type(outcome)]) for delivery, outcome in outcomes if not isinstance(outcome, Extend)]
        with self._lock:
            for delivery, _ in outcomes:
                refuse_settled(delivery)
            for delivery, word in settling:
                delivery.settling = word
        try:
            for delivery, outcome in outcomes:
                self._telling.ask(delivery, _WORDS[type(outcome)])
            self._hand_in(outcomes, *tickets)
        finally:
            for delivery, _ in settling:
                delivery.settling = None

    def _hand_in(self, outcomes: Wanted, *tickets: Ticket) -> None:
        """Have these committed: all of them, or, if one cannot be worked out, none."""
        pending = [self._pending_of(delivery, outcome, tickets) for delivery, outcome in outcomes]
        for one in pending:
            if not isinstance(one.outcome, Extend):
                one.delivery.settled = _WORDS[type(one.outcome)]
            one.delivery.error = None  # it holds on to the frames in which it was raised
        self._incoming.extend(pending)

    def _pending_of(self, delivery: Handed, outcome: Settling, tickets: tuple[Ticket, ...]) -> Pending:
        if (along := delivery.along) is not NOTHING and isinstance(outcome, Ack | Reject):
            outcome = outcome._replace(along=along)
        return Pending(delivery, outcome, tickets, self._history.of_outcome(delivery, outcome))

    def withdraw(self, ticket: Ticket) -> None:
        """Take back what was handed in with this ticket and is not committed; an extension that others wait for too stays."""
        with self._lock:
            self._sort_in()
            everything = [(waiting, pending) for waiting in self._pending.values() for pending in waiting.values()]
            for waiting, pending in everything:
                if ticket in pending.tickets:
                    self._take_back(waiting, pending, ticket)

    @staticmethod
    def _take_back(waiting: dict[Id, Pending], pending: Pending, ticket: Ticket) -> None:
        others = tuple(other for other in pending.tickets if other is not ticket)
        if others:
            waiting[pending.delivery.id] = pending._replace(tickets=others)
            return
        del waiting[pending.delivery.id]
        if not isinstance(pending.outcome, Extend):
            pending.delivery.settled = None

    def fail(self, hold: Hold, error: Exception) -> bool:
        """Tell those who wait for outcomes of this hold that committing them failed, and take back theirs; whether there were any.

        What nobody waits for is tried again after a moment, when others had their turn.
        """
        with self._lock:
            waiting = self._pending.get(hold, {}).values()
            tickets = {id(ticket): ticket for pending in waiting for ticket in pending.tickets}
            self._flush_at, self.hurried = _NEVER, False
        for ticket in tickets.values():
            self.withdraw(ticket)
            ticket.fail(error)
        return bool(tickets)

    def hurry(self) -> None:
        """Let everything that was handed in go at once."""
        with self._lock:
            self.hurried = True

    @property
    def settled_all(self) -> bool:
        """Whether nothing waits to be committed."""
        with self._lock:
            return not self._incoming and not any(self._pending.values())

    def _sort_in(self) -> None:
        """Take in what was handed in; the caller holds the lock. What comes from here on calls the leader again."""
        self._called = False
        while self._incoming:
            pending = self._incoming.popleft()
            hold = pending.delivery.hold
            if hold is None or pending.delivery.id not in hold.deliveries:
                self._lose(pending)
            elif (waiting := self._pending.get(hold)) is None:
                self._pending[hold] = {pending.delivery.id: pending}
            else:
                self._supersede(waiting, pending)

    @staticmethod
    def _supersede(waiting: dict[Id, Pending], pending: Pending) -> None:
        """Let one of two outcomes stand: of two extensions the longer, for both callers; else the one that settles, which says all."""
        earlier = waiting.get(pending.delivery.id)
        match earlier and earlier.outcome, pending.outcome:
            case Extend(first), Extend(second):
                tickets = (*waiting[pending.delivery.id].tickets, *pending.tickets)
                pending = pending._replace(outcome=Extend(max(first, second)), tickets=tickets)
            case Ack() | Reject() | Release(), _:
                pending.over(lost=False)
                return
            case Extend(), _:
                waiting[pending.delivery.id].over(lost=False)
        waiting[pending.delivery.id] = pending

    def _lose(self, pending: Pending) -> None:
        """Note that a delivery was no longer held."""
        self._stats.lose(pending.delivery.message_id)
        self._history.lost(pending.events)
        pending.delivery.settled = "lost"
        pending.over(lost=True)

    def urgent(self, now: int) -> Hold | None:
        """A hold whose outcomes cannot wait for a claim: somebody waits for them, or they have waited long enough."""
        with self._lock:
            self._sort_in()
            waiting = {hold: pending for hold, pending in self._pending.items() if pending}
            self.hurried &= bool(waiting)
        if not waiting:
            self._flush_at = _NEVER
            return None
        self._flush_at = min(self._flush_at, now + _PATIENCE)
        if self.hurried or self._flush_at <= now:
            return next(iter(waiting))
        demanded = (hold for hold, outcomes in waiting.items() if any(pending.tickets for pending in outcomes.values()))
        return next(demanded, None)

    def of_row(self, row: str) -> tuple[list[tuple[Hold, dict[Id, Settling]]], list[Event]]:
        """What waits to be committed to a row, and what the history is to know of just that before it is.

        Both are of one moment: what is taken back later goes into the store all the same, and is to be told.
        """
        with self._lock:
            self._sort_in()
            found = [(hold, dict(waiting)) for hold, waiting in self._pending.items() if hold.row == row and waiting]
        events = [event for _, waiting in found for pending in waiting.values() for event in pending.events]
        return [(hold, {id_: pending.outcome for id_, pending in waiting.items()}) for hold, waiting in found], events

    def done(self, hold: Hold, outcomes: dict[Id, Settling], settled: Settled) -> None:
        """Take note of what was committed, and tell those who wait for it."""
        with self._lock:
            committed = self._committed(hold, outcomes)
            before = len(hold.deliveries)
            lost, parted = after_settling(hold, outcomes, settled)
            if hold in self._holds:
                self.in_hand -= before - len(hold.deliveries) - sum(len(part.deliveries) for part in parted)
                self._holds.update(parted)
            if not hold.deliveries:
                self._holds.discard(hold)
        gone = {delivery.id for delivery in lost}
        self._count(outcome for id_, outcome in outcomes.items() if id_ not in gone)
        for pending in committed:
            if gone or self._telling.anybody or pending.tickets:
                self._conclude(pending, lost=pending.delivery.id in gone)

    def _committed(self, hold: Hold, outcomes: dict[Id, Settling]) -> list[Pending]:
        """What was handed in of these outcomes. What came for the hold meanwhile waits anew, for its delivery may have moved."""
        waiting = self._pending.pop(hold, {})
        committed = [pending for id_, outcome in outcomes.items() if (pending := waiting.get(id_)) and pending.outcome is outcome]
        for pending in committed:
            del waiting[pending.delivery.id]
        self._incoming.extendleft(reversed(waiting.values()))
        return committed

    def _conclude(self, pending: Pending, *, lost: bool) -> None:
        """Tell whoever waits that an outcome is in the store, or came too late; the hooks hear of it soon."""
        if lost:
            self._lose(pending)
        else:
            pending.over(lost=False)
        self._telling.happened(pending.delivery, "lost" if lost else _WORDS[type(pending.outcome)])

    def _count(self, outcomes: Iterable[Settling]) -> None:
        counts: Counter[type[Settling]] = Counter(map(type, outcomes))
        for kind, count in counts.items():
            if kind is not Extend:
                self._stats.add(_WORDS[kind], count)

    def hold(self, hold: Hold, handed: list[Handed]) -> None:
        """Take these deliveries in hand."""
        hold.deliveries.update((delivery.id, delivery) for delivery in handed)
        self._holds.add(hold)
        self.in_hand += len(handed)

    def renew(self, now: int) -> None:
        """Hand in an extension for every lease that is to be renewed now and whose message is not settled."""
        self._forget_lapsed(now)
        due = [hold for hold in self._holds if hold.renew_at <= now]
        for hold in due:
            hold.renewing(now)
            held = [delivery for delivery in hold.deliveries.values() if delivery.to_be_renewed(now)]
            self._incoming.extend(Pending(delivery, Extend(now + hold.lease)) for delivery in held)
            self.hurried |= bool(held)

    def _forget_lapsed(self, now: int) -> None:
        """Count nothing as in hand whose lease has run out: it may be anybody's. A late settle may still be tried."""
        with self._lock:
            lapsed = [hold for hold in self._holds if hold.timer.due <= now and not self._pending.get(hold)]
            self._holds.difference_update(lapsed)
            self.in_hand -= sum(len(hold.deliveries) for hold in lapsed)

    def set_back(self, now: int) -> None:
        """The clock was set back: renew leases from now on, not when it has caught up."""
        for hold in self._holds:
            hold.renew_at = min(hold.renew_at, now + hold.lease // 2)

    def next_event(self) -> int:
        """When outcomes or leases next need somebody."""
        return min([self._flush_at, *[hold.renew_at for hold in self._holds]])


def refuse_settled(delivery: Handed) -> None:
    """Raise what is to be said of a delivery that cannot be settled again."""
    if delivery.settled == "lost":
        raise LeaseLost([str(delivery.receipt)])
    if outcome := delivery.settled or delivery.settling:
        raise AlreadySettled(str(delivery.receipt), outcome)
