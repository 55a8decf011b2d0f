"""Outcomes and renewals on their way into the store: any thread or task adds outcomes, the leader commits them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from itertools import chain
from typing import Final

from astyqueue.errors import AstyqueueError, OutcomeUnknown
from astyqueue.ids import Id
from astyqueue.model.event import Event
from astyqueue.protocol.settling.outcomes import ACK, Ack, Extend, Outcome, Release
from astyqueue.protocol.settling.settle import SettleResult
from astyqueue.queue.consuming.lease_table import LeaseTable
from astyqueue.queue.consuming.outcome_recorder import (
    WORDS,
    OutcomeRecorder,
    PendingOutcome,
    SettleTicket,
    Wanted,
)
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Lease, already_settled_error
from astyqueue.queue.delivery.follow_ups import FollowUps
from astyqueue.units import NEVER

#: Microseconds that an outcome may wait for others in its commit if no caller waits for it.
_PATIENCE: Final = 5_000
#: Creating a named tuple this way halves the cost; there is one for each ack.
_new: Final = tuple.__new__


class SettleBuffer:
    """The outcomes of leased messages that wait for a commit, and the leases that wait to be extended."""

    def __init__(self, leases: LeaseTable, recorder: OutcomeRecorder) -> None:
        """While `hurried`, outcomes are committed without waiting for a claim.

        `_renewals`: how to extend the leases that are to be renewed, which is urgent while `_renew_now`. Only the
        leader uses it. Such a lease is also in `_pending`, perhaps without outcomes, and so has a place in its order.
        """
        self.hurried = False
        self._leases = leases
        self._recorder = recorder
        self._lock = recorder.deciding
        self._incoming: deque[PendingOutcome] = deque()  # any thread appends; only the holder of the lock removes
        self._called = False
        self._concluding = False
        self._pending: dict[Lease, dict[Id, PendingOutcome]] = {}
        self._renewals: dict[Lease, Extend] = {}
        self._renew_now = False
        self._flush_at = NEVER

    def __repr__(self) -> str:
        """How many outcomes and leases wait for a commit."""
        waiting = len(self._incoming) + sum(map(len, tuple(self._pending.values())))
        return f"<SettleBuffer: {waiting} outcomes, {len(self._renewals)} renewals>"

    def give_back(self, delivery: BaseDelivery, outcome: Release) -> None:
        """Give back a delivery that no consumer began; hooks cannot refuse that, so they are not called."""
        self._hand_in([(delivery, outcome)])

    def add(self, delivery: BaseDelivery, outcome: Outcome) -> bool:
        """Add an outcome that no caller waits for; returns whether to wake the leader."""
        if outcome is ACK and self._recorder.acks_simply(delivery):
            self._hand_in_ack(delivery)
        else:
            self._ask_and_hand_in([(delivery, outcome)])
        if self._called:  # woken before, or about to wake for outcomes that wait
            return False
        self._called = True
        return True

    def _hand_in_ack(self, delivery: BaseDelivery) -> None:
        with self._lock:
            if delivery.settled or delivery.settling:
                raise already_settled_error(delivery)
            delivery.settled = WORDS[Ack]
        delivery.error = None
        self._incoming.append(_new(PendingOutcome, (delivery, ACK, (), ())))

    def demand(self, outcomes: list[tuple[BaseDelivery, Outcome]]) -> SettleTicket:
        """Add outcomes that a caller waits for, all or none; AlreadySettled if one delivery has an outcome."""
        ticket = SettleTicket(len(outcomes))
        self._ask_and_hand_in(outcomes, ticket)
        return ticket

    def _ask_and_hand_in(self, outcomes: Wanted, *tickets: SettleTicket) -> None:
        """Add outcomes if the hooks allow all of them."""
        with self._recorder.settling(outcomes):
            self._hand_in(outcomes, *tickets)

    def _hand_in(self, outcomes: Wanted, *tickets: SettleTicket) -> None:
        """Add these outcomes to the buffer: all of them or, if one is invalid, none."""
        pending = self._recorder.all_pending(outcomes, tickets)
        for one in pending:
            if not isinstance(one.outcome, Extend):
                one.delivery.settled = WORDS[type(one.outcome)]
            one.delivery.error = None  # it holds on to the frames in which it was raised
        self._incoming.extend(pending)

    def withdraw(self, ticket: SettleTicket) -> None:
        """Withdraw the outcomes of this ticket that are not committed; an extension with other callers too stays."""
        with self._lock:
            self._sort_in()
            everything = [(waiting, pending) for waiting in self._pending.values() for pending in waiting.values()]
            for waiting, pending in everything:
                if ticket in pending.tickets:
                    _take_back(waiting, pending, ticket)

    def fail(self, lease: Lease, error: Exception) -> bool:
        """End the waits of callers for outcomes of this lease with an error, and withdraw these outcomes.

        Returns whether there were such callers. A renewal, and outcomes that no caller waits for, are tried again after
        a moment, when other leases had their turn.
        """
        with self._lock:
            waiting = self._pending[lease] = self._pending.pop(lease, {})
            tickets = {id(ticket): ticket for pending in waiting.values() for ticket in pending.tickets}
            self._flush_at, self.hurried, self._renew_now = NEVER, False, False
        for ticket in tickets.values():
            self.withdraw(ticket)
            ticket.fail(error)
        return bool(tickets)

    def hurry(self) -> None:
        """Commit all buffered outcomes at once, without waiting for claims."""
        with self._lock:
            self.hurried = True

    def settled(self, deliveries: Collection[BaseDelivery] | None = None) -> bool:
        """Whether every outcome (of these) is committed, counted, and noted for the hooks and the history."""
        with self._lock:
            waiting = chain(self._incoming, *[outcomes.values() for outcomes in self._pending.values()])
            return not (self._concluding or any(deliveries is None or one.delivery in deliveries for one in waiting))

    def _sort_in(self) -> None:
        """Sort new outcomes by lease; the caller holds the lock. Outcomes added from here on wake the leader again."""
        self._called = False
        while self._incoming:
            pending = self._incoming.popleft()
            lease = pending.delivery.lease
            if pending.delivery.group is not None:
                self._recorder.freed_groups.note(pending)
            if lease is None or pending.delivery.id not in lease.deliveries:
                self._recorder.conclude(pending, lost=True)
            elif (waiting := self._pending.get(lease)) is None:
                self._pending[lease] = {pending.delivery.id: pending}
            elif (earlier := waiting.get(pending.delivery.id)) is None:
                waiting[pending.delivery.id] = pending
            else:
                waiting[pending.delivery.id] = _merged(earlier, pending)

    def urgent(self, now: int) -> Lease | None:
        """A lease that cannot wait for a claim: it is to be renewed, a caller waits, or outcomes have waited 5 ms."""
        with self._lock:
            self._sort_in()
            waiting = {lease: pending for lease, pending in self._pending.items() if pending or lease in self._renewals}
            self._pending = waiting
            self._called = any(waiting.values())  # the leader looks again when the first has waited long enough
            self.hurried &= self._called
        if not waiting:
            self._flush_at = NEVER
            return None
        self._flush_at = min(self._flush_at, now + _PATIENCE)
        if self._renew_now:
            return next(iter(self._renewals))
        if self.hurried or self._flush_at <= now:
            return next(iter(waiting))
        demanded = (
            lease for lease, outcomes in waiting.items() if any(pending.tickets for pending in outcomes.values())
        )
        return next(demanded, None)

    def unready(self, row: str) -> list[PendingOutcome]:
        """The acks in a row before which follow-ups must be sent: they are committed when those are `ready`."""
        with self._lock:
            self._sort_in()
            followed = [
                pending for lease, pending in self._pending.items() if lease.has_follow_ups and lease.row == row
            ]
            return [one for pending in followed for one in pending.values() if not _is_ready(one)]

    def refuse(self, delivery: BaseDelivery, error: AstyqueueError, now: int) -> None:
        """Withdraw the ack of a delivery whose follow-ups cannot be sent; without a caller its lease is left to end."""
        with self._lock:
            waiting = self._pending.get(delivery.lease, {}) if delivery.lease else {}
            tickets = waiting[delivery.id].tickets if delivery.id in waiting else ()
            if not tickets:
                waiting.pop(delivery.id, None)
                delivery.settled, delivery.renew_until = None, now
        for ticket in tickets:
            self.withdraw(ticket)
            ticket.fail(error)

    def of_row(self, row: str, now: int) -> tuple[list[tuple[Lease, dict[Id, Outcome]]], list[Event]]:
        """The outcomes that wait for a commit to a row, and their history events, which are written before it.

        Both are of one moment: an outcome that is withdrawn later is committed all the same, and needs its event.
        """
        with self._lock:
            self._sort_in()
            waiting = [(lease, pending) for lease, pending in self._pending.items() if lease.row == row]
            found = [(lease, self._outcomes(lease, pending, now)) for lease, pending in waiting]
            events = [
                event for lease, pending in waiting for one in _ready(lease, pending).values() for event in one.events
            ]
        return [(lease, outcomes) for lease, outcomes in found if outcomes], events

    def _outcomes(self, lease: Lease, waiting: dict[Id, PendingOutcome], now: int) -> dict[Id, Outcome]:
        """The outcomes that wait for a lease; if it is to be renewed, all its other messages are extended alike."""
        extension = self._renewals.get(lease)
        if extension is None:
            return {id_: pending.outcome for id_, pending in _ready(lease, waiting).items()}
        for id_, pending in waiting.items():
            if isinstance(pending.outcome, Extend) and pending.outcome.until < extension.until:
                waiting[id_] = pending._replace(outcome=extension)
        outcomes: dict[Id, Outcome] = dict.fromkeys(lease.to_be_renewed(now), extension)
        outcomes.update({id_: one.outcome for id_, one in _ready(lease, waiting).items()})
        if not outcomes:
            self._end_renewal(lease)
        return outcomes

    def _end_renewal(self, lease: Lease) -> Extend | None:
        """End the renewal of a lease, if there is one: it was committed, or the last message was settled before."""
        extension = self._renewals.pop(lease, None)
        self._renew_now &= bool(self._renewals)
        return extension

    def done(self, lease: Lease, outcomes: dict[Id, Outcome], settled: SettleResult) -> list[FollowUps]:
        """Apply a commit: update the lease, and wake the callers that wait for these outcomes.

        Returns the follow-ups that were committed.
        """
        committed: list[PendingOutcome] = []
        try:
            with self._lock:
                self._concluding = True  # from here on nothing waits, but a thread that flushes has not heard of it all
                extension = self._end_renewal(lease)
                deliveries = dict(lease.deliveries) if extension else {}
                committed = _committed(self._pending.get(lease, {}), outcomes)
                self._remove(lease, committed)
                gone = {delivery.id for delivery in self._leases.settled(lease, outcomes, settled)}
            self._recorder.superseded((one.delivery for one in committed), settled)
            self._recorder.count([outcome for id_, outcome in outcomes.items() if id_ not in gone])
            self._recorder.conclude_all(lease.row, committed, gone)
            if extension:
                for pending in committed:
                    deliveries.pop(pending.delivery.id, None)
                renewed = [one for one in deliveries.values() if outcomes.get(one.id) is extension]
                self._recorder.conclude_renewal(lease.row, renewed, gone, extension.until)
        except BaseException:
            _end_waits(committed)
            raise
        finally:
            self._concluding = False
        return _follow_ups_of(committed, gone) if lease.has_follow_ups else []

    def _remove(self, lease: Lease, committed: Iterable[PendingOutcome]) -> None:
        """Remove committed outcomes; later ones of the lease are sorted again, as their deliveries may have moved."""
        waiting = self._pending.pop(lease, {})
        for pending in committed:
            del waiting[pending.delivery.id]
        self._incoming.extendleft(reversed(waiting.values()))

    def renew(self, now: int) -> None:
        """Have every lease extended whose time it is, for its messages that are to be renewed."""
        with self._lock:
            self._leases.forget_lapsed(now, lambda lease: bool(self._pending.get(lease)) or lease in self._renewals)
            for lease in self._leases.begin_renewals(now):
                self._renewals[lease] = Extend(now + lease.duration)
                self._renew_now = True
                self._pending.setdefault(lease, {})

    def next_event(self) -> int:
        """When the leader must next commit outcomes or renew leases."""
        return min(self._flush_at, self._leases.next_renewal)


def _ready(lease: Lease, waiting: dict[Id, PendingOutcome]) -> dict[Id, PendingOutcome]:
    """Those of the outcomes of a lease before which nothing must be written."""
    return {id_: one for id_, one in waiting.items() if _is_ready(one)} if lease.has_follow_ups else waiting


def _is_ready(pending: PendingOutcome) -> bool:
    """Whether nothing must be written before an outcome."""
    follow_ups = pending.delivery.follow_ups
    return follow_ups is None or follow_ups.ready or not isinstance(pending.outcome, Ack)


def _follow_ups_of(committed: Iterable[PendingOutcome], gone: set[Id]) -> list[FollowUps]:
    """The follow-ups of acks, except of those that were lost."""
    return [
        one.delivery.follow_ups
        for one in committed
        if one.delivery.follow_ups and isinstance(one.outcome, Ack) and one.delivery.id not in gone
    ]


def _committed(waiting: dict[Id, PendingOutcome], outcomes: dict[Id, Outcome]) -> list[PendingOutcome]:
    """Those that wait, of these outcomes, which were committed."""
    return [one for id_, outcome in outcomes.items() if (one := waiting.get(id_)) and one.outcome is outcome]


def _end_waits(committed: Iterable[PendingOutcome]) -> None:
    """End the waits that are left for these outcomes: the thread that committed them was interrupted."""
    unknown = OutcomeUnknown(
        "the thread that committed this was interrupted: the outcome is in the store, or came late"
    )
    for ticket in (ticket for one in committed for ticket in one.tickets if ticket.left):
        ticket.fail(unknown)


def _take_back(waiting: dict[Id, PendingOutcome], pending: PendingOutcome, ticket: SettleTicket) -> None:
    """End this ticket's wait for an outcome, and withdraw the outcome if no other ticket waits for it."""
    others = tuple(other for other in pending.tickets if other is not ticket)
    if others:
        waiting[pending.delivery.id] = pending._replace(tickets=others)
        return
    del waiting[pending.delivery.id]
    if not isinstance(pending.outcome, Extend):
        pending.delivery.settled = None


def _merged(earlier: PendingOutcome, later: PendingOutcome) -> PendingOutcome:
    """Merge two outcomes of a delivery: of two extensions the longer, for both callers; else the settling one."""
    match earlier.outcome, later.outcome:
        case Extend(first), Extend(second):
            return later._replace(outcome=Extend(max(first, second)), tickets=(*earlier.tickets, *later.tickets))
        case Extend(), _:
            earlier.refuse()
            return later
        case _:
            later.refuse()
            return earlier
