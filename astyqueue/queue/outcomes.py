"""Outcomes on their way into the store: handed in by many, committed by whoever leads."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from astyqueue.errors import AlreadySettled, LeaseLost
from astyqueue.ids import Id
from astyqueue.protocol.process import Process
from astyqueue.protocol.settle import Ack, Extend, Reject, Release, Settled, Settling
from astyqueue.queue.holding import Handed, Hold, after_settling
from astyqueue.queue.hooks import Hook, told
from astyqueue.queue.stats import Stats
from astyqueue.wakeup import Wakeup

_NEVER: Final = 1 << 62
#: Microseconds that an outcome nobody waits for may wait for company.
_PATIENCE: Final = 5_000
#: So many of them go at once.
_CROWD: Final = 100
_WORDS: Final[dict[type[Settling], str]] = {Ack: "acked", Release: "released", Reject: "rejected", Extend: "extended"}


@dataclass(slots=True, eq=False)
class Ticket:
    """Somebody who waits until outcomes are committed: how many are left, and which were lost."""

    left: int
    lost: list[Handed] = field(default_factory=list)
    wakeup: Wakeup | None = None

    def one_less(self) -> None:
        """One outcome is committed or lost; after the last, wake whoever waits."""
        self.left -= 1
        if not self.left and self.wakeup:
            self.wakeup.set()


class Pending(NamedTuple):
    """An outcome of a delivery, and who waits for it."""

    delivery: Handed
    outcome: Settling
    ticket: Ticket | None


class Outcomes:
    """What this process holds of a queue, and what it has to say about it."""

    def __init__(self, process: Process, stats: Stats, hooks: tuple[Hook, ...] = ()) -> None:
        """Begin with nothing in hand."""
        self.in_hand = 0
        self._process = process
        self._stats = stats
        self._hooks = hooks
        self._lock = threading.Lock()
        self._incoming: deque[Pending] = deque()
        self._pending: dict[Hold, dict[Id, Pending]] = {}
        self._holds: set[Hold] = set()
        self._flush_at = _NEVER
        self.hurried = False

    def add(self, delivery: Handed, outcome: Settling) -> bool:
        """Hand in an outcome that nobody waits for; whether the leader should hear of it."""
        if self._hooks:
            self._ask(delivery, outcome)
        self._hand_in(delivery, outcome, None)
        return len(self._incoming) in (1, _CROWD)

    def demand(self, outcomes: list[tuple[Handed, Settling]]) -> Ticket:
        """Hand in outcomes that somebody waits for; of a delivery that was settled before, AlreadySettled."""
        ticket = Ticket(len(outcomes))
        with self._lock:
            for delivery, _ in outcomes:
                if delivery.settled:
                    refuse(delivery)
            for delivery, outcome in outcomes:
                self._ask(delivery, outcome)
            for delivery, outcome in outcomes:
                self._hand_in(delivery, outcome, ticket)
        return ticket

    def _ask(self, delivery: Handed, outcome: Settling) -> None:
        """Let the hooks refuse an outcome."""
        for hook in self._hooks:
            hook.before_settle(delivery, _WORDS[type(outcome)])

    def _hand_in(self, delivery: Handed, outcome: Settling, ticket: Ticket | None) -> None:
        if not isinstance(outcome, Extend):
            delivery.settled = _WORDS[type(outcome)]
        self._incoming.append(Pending(delivery, outcome, ticket))

    def withdraw(self, ticket: Ticket) -> None:
        """Take back what was handed in with this ticket and is not committed."""
        with self._lock:
            self._sort_in()
            for waiting in self._pending.values():
                for id_ in [id_ for id_, pending in waiting.items() if pending.ticket is ticket]:
                    waiting.pop(id_).delivery.settled = None

    def hurry(self) -> None:
        """Let everything that was handed in go at once."""
        self.hurried = True

    @property
    def settled_all(self) -> bool:
        """Whether nothing waits to be committed."""
        return not self._incoming and not any(self._pending.values())

    def _sort_in(self) -> None:
        while self._incoming:
            pending = self._incoming.popleft()
            hold = pending.delivery.hold
            if hold is None or pending.delivery.id not in hold.deliveries:
                self._lose(pending)
            else:
                self._supersede(self._pending.setdefault(hold, {}), pending)

    def _supersede(self, waiting: dict[Id, Pending], pending: Pending) -> None:
        """Let the later of two outcomes stand: an ack says all that an extension before it could."""
        earlier = waiting.get(pending.delivery.id)
        if earlier and earlier.ticket:
            earlier.ticket.one_less()
        waiting[pending.delivery.id] = pending

    def _lose(self, pending: Pending) -> None:
        """Note that a delivery was no longer held."""
        self._stats.lost += 1
        pending.delivery.settled = "lost"
        if pending.ticket:
            pending.ticket.lost.append(pending.delivery)
            pending.ticket.one_less()

    def urgent(self, now: int) -> Hold | None:
        """A hold whose outcomes cannot wait for a claim: somebody waits for them, they are many, or they have waited."""
        with self._lock:
            self._sort_in()
            count = sum(map(len, self._pending.values()))
            if not count:
                self._flush_at, self.hurried = _NEVER, False
                return None
            self._flush_at = min(self._flush_at, now + _PATIENCE)
            pressed = self.hurried or self._flush_at <= now
            for hold, waiting in self._pending.items():
                if waiting and (pressed or any(pending.ticket for pending in waiting.values())):
                    return hold
        return None

    def of_row(self, row: str) -> list[tuple[Hold, dict[Id, Settling]]]:
        """What waits to be committed to a row."""
        with self._lock:
            self._sort_in()
            return [
                (hold, {id_: pending.outcome for id_, pending in waiting.items()})
                for hold, waiting in self._pending.items()
                if hold.row == row and waiting
            ]

    def done(self, hold: Hold, outcomes: dict[Id, Settling], settled: Settled) -> None:
        """Take note of what was committed, and tell those who wait for it."""
        with self._lock:
            before = len(hold.deliveries)
            waiting = self._pending[hold]
            committed = {id_: waiting.pop(id_) for id_ in outcomes if id_ in waiting}
            lost, parted = after_settling(hold, outcomes, settled)
            self.in_hand -= before - len(hold.deliveries) - sum(len(part.deliveries) for part in parted)
            gone = {delivery.id for delivery in lost}
            self._count(outcome for id_, outcome in outcomes.items() if id_ not in gone)
            for id_, pending in committed.items():
                if id_ in gone:
                    self._lose(pending)
                elif pending.ticket:
                    pending.ticket.one_less()
                if self._hooks:
                    self._tell(pending)
            self._holds.update(parted)
            if not hold.deliveries:
                self._holds.discard(hold)
            if not waiting:
                del self._pending[hold]

    def _count(self, outcomes: Iterable[Settling]) -> None:
        counts = Counter(map(type, outcomes))
        self._stats.acked += counts[Ack]
        self._stats.released += counts[Release]
        self._stats.rejected += counts[Reject]

    def _tell(self, pending: Pending) -> None:
        word = "lost" if pending.delivery.settled == "lost" else _WORDS[type(pending.outcome)]
        for hook in self._hooks:
            told(hook.after_settle, pending.delivery, word)

    def hold(self, hold: Hold, handed: list[Handed]) -> None:
        """Take these deliveries in hand."""
        hold.deliveries.update((delivery.id, delivery) for delivery in handed)
        self._holds.add(hold)
        self.in_hand += len(handed)

    def renew(self, now: int) -> None:
        """Hand in an extension for every lease that is to be renewed now and whose message is not settled."""
        due = [hold for hold in self._holds if hold.renew_at <= now]
        for hold in due:
            hold.renewing(now)
            for delivery in hold.deliveries.values():
                if not delivery.settled and (delivery.renew_until is None or delivery.renew_until > now):
                    self._incoming.append(Pending(delivery, Extend(now + hold.lease), None))
                    self.hurried = True

    def next_event(self) -> int:
        """When outcomes or leases next need somebody."""
        return min([self._flush_at, *[hold.renew_at for hold in self._holds]])


def refuse(delivery: Handed) -> None:
    """Raise what is to be said of a delivery that cannot be settled (again)."""
    if delivery.settled == "lost":
        raise LeaseLost([str(delivery.receipt)])
    raise AlreadySettled(str(delivery.receipt), delivery.settled or "")
