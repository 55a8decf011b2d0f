"""The leases of this process in one queue, the deliveries under them, and the one that running code handles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from astyqueue.clock import instant
from astyqueue.errors import AlreadySettled, BadInput, LeaseLost, NotFound
from astyqueue.ids import Id, Nonce
from astyqueue.model.envelope import MessageId, Receipt
from astyqueue.model.message import Message
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.protocol.layout.columns import Entry, State, Timer
from astyqueue.protocol.layout.unique_key import NOTHING, SettleEffects, settle_effects
from astyqueue.protocol.settling.outcomes import Extend, Outcomes, SettlePlan
from astyqueue.protocol.settling.settle import SettleResult
from astyqueue.queue.delivery.follow_ups import FollowUpQueue, FollowUps
from astyqueue.units import NEVER
from astyqueue.waiting import Wakeup

#: A lease is renewed when this part of it is over: if one renewal fails, the next is still in time.
_RENEWED_AT: Final = 0.4
_NO_CLAIM: Final = Nonce(bytes(8))
#: The outcome of a message that is delivered at most once: delivery settles it.
AT_MOST_ONCE: Final = "at most once"


@dataclass(slots=True, eq=False)
class Lease:
    """A lease of this process: its current timer and its unsettled deliveries.

    `since` and `renew_at` are microseconds since 1970; `unanswered` are settle commits whose outcome is unknown;
    `has_follow_ups`: a delivery under it has some. `grouped`: one of its messages is in a group.
    """

    row: str
    timer: Timer
    duration: int
    deliveries: dict[Id, BaseDelivery] = field(default_factory=dict)
    renew_at: int = NEVER
    unanswered: list[SettlePlan] = field(default_factory=list)
    since: int = 0
    has_follow_ups: bool = False
    grouped: bool = field(init=False)

    def __post_init__(self) -> None:
        """Note once what its timer lists: settles ask each time."""
        self.grouped = self.timer.grouped

    def __repr__(self) -> str:
        """The row, when it ends and is renewed (microseconds since 1970), and its unsettled deliveries."""
        renewed = "" if self.renew_at == NEVER else f", renewed at {self.renew_at}"
        unanswered = f", {len(self.unanswered)} unanswered" if self.unanswered else ""
        return f"<Lease in {self.row} until {self.timer.due}{renewed}: {len(self.deliveries)} deliveries{unanswered}>"

    def plan_renewal(self, now: int) -> None:
        """Plan the next renewal of the lease; the first one by the time left, as the claim may have been slow."""
        left = self.timer.due - now if self.renew_at == NEVER else self.duration
        self.renew_at = now + int(left * _RENEWED_AT)

    def to_be_renewed(self, now: int) -> list[Id]:
        """The messages to renew it for: their waiter wants that, they are unsettled, `renew_until` has not passed."""
        return [
            id_
            for id_, delivery in self.deliveries.items()
            if not delivery.settled and (delivery.renew_until is None or delivery.renew_until > now)
        ]


class BaseDelivery:
    """One delivery of a message, as values; subclasses settle it."""

    __slots__ = {  # with the documentation that `help` shows
        "_envelope": "The message as it was sent.",
        "attempt": "The number of this attempt, from 1; deliveries that were given back do not count.",
        "began": "When its handler began, in microseconds since 1970, if later than the claim; else None.",
        "error": "The error that made the attempt fail; None if it did not.",
        "failure": "Why the attempt failed, in one line; empty if it did not.",
        "follow_ups": "The messages that are sent when it is acked; None if there are none.",
        "goes_alone": "Whether an ack changes no other columns: no unique key, not repeatable, and no follow-ups.",
        "id": "The last part of `message_id` as sixteen sortable bytes, for code built on a queue. Use `message_id`.",
        "lease": "The lease; None if delivery settled the message (at most once).",
        "priority": "The priority of the message, as it was sent.",
        "renew_until": "Until when its lease is renewed, in microseconds since 1970; None: until settled; 0: never.",
        "row": "The row of the store that the message is in: the first part of `message_id`.",
        "settled": "The outcome; None while the message is leased.",
        "settling": "An outcome that hooks may still refuse.",
    }

    def __init__(self, row: str, held: ClaimedMessage, lease: Lease | None) -> None:
        """`lease` is the lease; without one, delivery settled the message (at most once)."""
        entry, envelope = held
        self._envelope = envelope
        self.goes_alone = not (envelope.unique or envelope.repeatable)
        self.row = row
        self.id = entry.id
        self.priority = entry.priority
        self.attempt = entry.spent + 1
        self.lease = lease
        self.settled: str | None = None if lease else AT_MOST_ONCE
        self.settling: str | None = None
        self.renew_until: int | None = 0
        self.began: int | None = None
        self.follow_ups: FollowUps | None = None
        self.failure = ""
        self.error: BaseException | None = None

    @property
    def held(self) -> ClaimedMessage:
        """The message as it was claimed."""
        return ClaimedMessage(Entry(self.id, self.priority, self.attempt - 1), self._envelope)

    @property
    def effects(self) -> SettleEffects:
        """The columns that are written or deleted with it when it is settled for good."""
        return NOTHING if self.goes_alone else settle_effects(self.priority, self.id, self._envelope)

    @property
    def message_id(self) -> MessageId:
        """The message's id, the same in each of its deliveries."""
        return MessageId(self.row, self.priority, self.id)

    @property
    def receipt(self) -> Receipt:
        """The receipt that settles this delivery, valid in any process."""
        return Receipt(self.message_id, self.attempt, self.lease.timer.nonce if self.lease else _NO_CLAIM)

    @property
    def body(self) -> JsonValue:
        """The body that was sent."""
        return self._envelope.body

    @property
    def key(self) -> str | None:
        """The key that the sender gave the message."""
        return self._envelope.key

    @property
    def group(self) -> str | None:
        """The message group, of which no other message is leased meanwhile; None without one."""
        return self._envelope.group

    @property
    def headers(self) -> dict[str, str]:
        """The text headers that the sender gave the message."""
        return self._envelope.headers or {}

    @property
    def sent(self) -> datetime:
        """When it was sent."""
        return instant(self._envelope.sent)

    @property
    def due(self) -> datetime:
        """When it was due for the first time."""
        return instant(self._envelope.due or self._envelope.sent)

    @property
    def expires(self) -> datetime | None:
        """When it expires: from then on it is no longer delivered."""
        return instant(self._envelope.expires) if self._envelope.expires is not None else None

    @property
    def expires_us(self) -> int | None:
        """When it expires, in microseconds since 1970, even outside the range of `datetime`; None: not by itself."""
        return self._envelope.expires

    @property
    def attempts_allowed(self) -> int | None:
        """The number of attempts that the message itself allows; None if the queue's number applies."""
        return self._envelope.attempts

    @property
    def lease_until(self) -> datetime | None:
        """The end of its lease: until then no other consumer gets it. None if it is delivered at most once."""
        return instant(self.lease.timer.due) if self.lease else None

    @property
    def decided(self) -> bool:
        """Whether it has an outcome, or hooks are being called for one."""
        return self.settled is not None or self.settling is not None

    def add_follow_up(self, message: Message, own: FollowUpQueue, to: FollowUpQueue) -> None:
        """Have a message sent `to` a queue when this delivery, of the queue `own`, is acked."""
        if to.connection is not own.connection:
            problem = "a follow-up goes to a queue of the same connection: open both from one `connect(url)`"
            raise BadInput(problem)
        if self.lease is None or self.decided:
            raise already_settled_error(self)
        base = max(self.message_id.moment, self._envelope.sent)
        follow_ups = self.follow_ups or FollowUps(self.message_id, base)
        follow_ups.add(message, to)
        self.take_over(follow_ups)

    def take_over(self, follow_ups: FollowUps | None) -> None:
        """Send these when it is acked: its own, or those of an earlier delivery of the message to this process."""
        if follow_ups is not None and self.lease is not None:
            self.follow_ups, self.goes_alone, self.lease.has_follow_ups = follow_ups, False, True

    @property
    def due_us(self) -> int:
        """When it was due for the first time, in microseconds since 1970, even outside the range of `datetime`."""
        return self._envelope.due or self._envelope.sent

    def __repr__(self) -> str:
        """The message, the attempt and the outcome."""
        return f"<{type(self).__name__} {self.message_id} attempt {self.attempt}, {self.settled or 'leased'}>"


def already_settled_error(delivery: BaseDelivery) -> LeaseLost | AlreadySettled:
    """The error for what a delivery that has an outcome no longer takes."""
    outcome, receipt = delivery.settled or delivery.settling, str(delivery.receipt)
    return LeaseLost([receipt]) if outcome == "lost" else AlreadySettled(receipt, outcome or "")


#: Makes deliveries of messages that were claimed from a row under one lease.
DeliveryFactory = Callable[[str, Sequence[ClaimedMessage], Lease | None], list[BaseDelivery]]


def new_deliveries(row: str, claimed: Sequence[ClaimedMessage], lease: Lease | None) -> list[BaseDelivery]:
    """Plain deliveries, without methods that settle them."""
    return [BaseDelivery(row, one, lease) for one in claimed]


@dataclass(slots=True, eq=False)
class Waiter:
    """A consumer, or a dispatcher's claim loop, that waits for deliveries.

    `credit` returns how many more it can take now; it is called often. The leader's thread calls `accept` with them.
    Neither may block or raise. `delivery_factory` makes the deliveries. With `renew`, leases are renewed until their
    messages are settled, or up to a delivery's `renew_until` (microseconds). `error` is the error that ended its wait.
    """

    credit: Callable[[], int]
    accept: Callable[[list[BaseDelivery]], None]
    delivery_factory: DeliveryFactory = new_deliveries
    renew: bool = False
    wakeup: Wakeup | None = None
    error: Exception | None = None

    def deliveries_of(self, row: str, claimed: Sequence[ClaimedMessage], lease: Lease | None) -> list[BaseDelivery]:
        """Deliveries of these messages for this waiter."""
        deliveries = self.delivery_factory(row, claimed, lease)
        if self.renew:
            for delivery in deliveries:
                delivery.renew_until = None
        return deliveries

    def wake(self) -> None:
        """Wake the waiting thread or task."""
        if self.wakeup:
            self.wakeup.set()


def after_settling(lease: Lease, outcomes: Outcomes, settled: SettleResult) -> tuple[list[BaseDelivery], list[Lease]]:
    """Update a lease after a commit; returns the deliveries that were lost, and new leases split off by extensions."""
    parted = [part for settle_plan in settled.done for part in _follow(lease, settle_plan)]
    # all of them: an earlier extension of unknown outcome may be resolved only by this settle
    held = [one.deliveries for one in (lease, *parted)]
    lost = [deliveries.pop(id_) for id_ in settled.lost for deliveries in held if id_ in deliveries]
    over = [id_ for id_, outcome in outcomes.items() if not isinstance(outcome, Extend)]
    for deliveries in held:
        for id_ in over:
            deliveries.pop(id_, None)
    return lost, [part for part in parted if part.deliveries]


def _follow(lease: Lease, settle_plan: SettlePlan) -> list[Lease]:
    """Update a lease's timer: shrunk in place, moved whole, or split by an extension of some messages."""
    extended = [timer for timer in settle_plan.moved if timer.state == State.LEASED]
    if settle_plan.left is not None:
        lease.timer = settle_plan.left
    elif len(extended) == 1:
        lease.timer = extended.pop()
    return [_parted(lease, timer) for timer in extended]


def _parted(lease: Lease, timer: Timer) -> Lease:
    """Split off the lease of messages that were extended without the others."""
    parted = Lease(
        lease.row, timer, lease.duration, renew_at=lease.renew_at, unanswered=lease.unanswered, since=lease.since
    )
    parted.has_follow_ups = lease.has_follow_ups
    for entry in timer.entries:
        if delivery := lease.deliveries.pop(entry.id, None):
            delivery.lease = parted
            parted.deliveries[entry.id] = delivery
    return parted


#: Where code was not given the delivery that it handles, as in a task.
_running: Final[ContextVar[BaseDelivery]] = ContextVar("astyqueue.delivery")


def running_delivery() -> BaseDelivery:
    """The delivery that is being handled; NotFound where none is."""
    try:
        return _running.get()
    except LookupError as error:
        message = "no task runs for a message here: the task was called directly, or this is not the task's own thread"
        raise NotFound(message) from error


@contextmanager
def running(delivery: BaseDelivery) -> Iterator[None]:
    """Make this the current delivery inside the block."""
    token = _running.set(delivery)
    try:
        yield
    finally:
        _running.reset(token)
