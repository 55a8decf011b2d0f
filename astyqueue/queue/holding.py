"""What this process holds of a queue: its claims, the deliveries under them, and the outcomes that wait to be committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from astyqueue.clock import instant
from astyqueue.ids import Id
from astyqueue.model.message import MessageId, Receipt
from astyqueue.protocol.along import NOTHING, Along, goes_along
from astyqueue.protocol.columns import Entry, State, Timer
from astyqueue.protocol.outcomes import Extend, Settlings, Worked
from astyqueue.protocol.picking import Held
from astyqueue.protocol.settle import Settled
from astyqueue.wakeup import Wakeup

#: A lease is renewed when this part of it is over, so that one renewal may fail and the next still comes in time.
_RENEWED_AT: Final = 0.4
_NEVER: Final = 1 << 62
_NO_CLAIM: Final = bytes(8)
#: What settles a message that is handed out at most once: that it is.
AT_MOST_ONCE: Final = "at most once"


@dataclass(slots=True, eq=False)
class Hold:
    """A claim in hand since then: its timer as it is now, the deliveries that are not settled yet, commits whose end is not known."""

    row: str
    timer: Timer
    lease: int
    deliveries: dict[Id, Handed] = field(default_factory=dict)
    renew_at: int = _NEVER
    unsure: list[Worked] = field(default_factory=list)
    since: int = 0

    def renewing(self, now: int) -> None:
        """Plan the next renewal of the lease."""
        self.renew_at = now + int(self.lease * _RENEWED_AT)


class Handed:
    """One handing-over of a message, as values. What settles it is its subclass's business.

    `began` is when its handler did, if that is later than the claim; `failure` and `error` are why an attempt failed.
    `settled` is the outcome that was handed in; `settling`, one about which the hooks are being asked.
    """

    __slots__ = ("_envelope", "attempt", "began", "error", "failure", "hold", "id", "priority", "renew_until", "row", "settled", "settling")

    def __init__(self, row: str, held: Held, hold: Hold | None) -> None:
        """Hand over a message; without a hold it was settled as it was handed out (at most once)."""
        entry, self._envelope = held
        self.row = row
        self.id = entry.id
        self.priority = entry.priority
        self.attempt = entry.spent + 1
        self.hold = hold
        self.settled: str | None = None if hold else AT_MOST_ONCE
        self.settling: str | None = None
        self.renew_until: int | None = 0
        self.began: int | None = None
        self.failure = ""
        self.error: BaseException | None = None

    @property
    def held(self) -> Held:
        """The message as it was claimed."""
        return Held(Entry(self.id, self.priority, self.attempt - 1), self._envelope)

    @property
    def along(self) -> Along:
        """What goes along with it when it is settled for good."""
        envelope = self._envelope
        return goes_along(self.priority, self.id, envelope) if envelope.unique or envelope.repeatable else NOTHING

    @property
    def message_id(self) -> MessageId:
        """Which message: stable for its life."""
        return MessageId(self.row, self.priority, self.id)

    @property
    def receipt(self) -> Receipt:
        """The right to settle this delivery, good in any process."""
        return Receipt(self.message_id, self.attempt, self.hold.timer.nonce if self.hold else _NO_CLAIM)

    @property
    def body(self) -> JsonValue:
        """What was sent."""
        return self._envelope.body

    @property
    def key(self) -> str | None:
        """The sender's handle for the message."""
        return self._envelope.key

    @property
    def headers(self) -> dict[str, str]:
        """Text metadata."""
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
        """From when on nobody would be handed it any more."""
        return instant(self._envelope.expires) if self._envelope.expires is not None else None

    @property
    def attempts_allowed(self) -> int | None:
        """How many attempts the message itself allows, if it says so."""
        return self._envelope.attempts

    @property
    def lease_until(self) -> datetime | None:
        """Until when nobody else is handed it; None if it is handed out at most once."""
        return instant(self.hold.timer.due) if self.hold else None

    @property
    def decided(self) -> bool:
        """Whether an outcome was handed in, or is about to be."""
        return self.settled is not None or self.settling is not None

    @property
    def due_us(self) -> int:
        """When it was due for the first time, in microseconds since 1970, also if that is no date."""
        return self._envelope.due or self._envelope.sent

    def to_be_renewed(self, now: int) -> bool:
        """Whether its lease should go on: its seat has it renewed, it is not settled, and its time is not up."""
        return not self.settled and (self.renew_until is None or self.renew_until > now)

    def __repr__(self) -> str:
        """Which message, which attempt, and what became of it."""
        return f"<{type(self).__name__} {self.message_id} attempt {self.attempt}, {self.settled or 'in hand'}>"


Kind = Callable[[str, Held, Hold | None], Handed]


@dataclass(slots=True, eq=False)
class Seat:
    """Somebody who takes deliveries.

    `credit` tells how many more it can take now; it is asked often. `accept` gets them, called by whoever leads. Neither
    may block or raise. `kind` makes what it is handed. With `renew`, leases are renewed until their messages are settled,
    or up to a delivery's `renew_until` (microseconds). `error` is what ended its wait.
    """

    credit: Callable[[], int]
    accept: Callable[[list[Handed]], None]
    kind: Kind = Handed
    renew: bool = False
    wakeup: Wakeup | None = None
    error: Exception | None = None

    def hands(self, row: str, held: Held, hold: Hold | None) -> Handed:
        """What it is handed for a message."""
        delivery = self.kind(row, held, hold)
        delivery.renew_until = None if self.renew else 0
        return delivery

    def told(self) -> None:
        """Wake whoever sits here."""
        if self.wakeup:
            self.wakeup.set()


def after_settling(hold: Hold, outcomes: Settlings, settled: Settled) -> tuple[list[Handed], list[Hold]]:
    """Bring a hold up to date with what was committed: the deliveries that were lost, and holds that parted from it."""
    parted = [part for worked in settled.done for part in _follow(hold, worked)]
    held = [one.deliveries for one in (hold, *parted)]  # an extension of unknown outcome may turn out with the settle after it
    lost = [deliveries.pop(id_) for id_ in settled.lost for deliveries in held if id_ in deliveries]
    over = [id_ for id_, outcome in outcomes.items() if not isinstance(outcome, Extend)]
    for deliveries in held:
        for id_ in over:
            deliveries.pop(id_, None)
    return lost, [part for part in parted if part.deliveries]


def _follow(hold: Hold, worked: Worked) -> list[Hold]:
    """Let a hold follow its timer: shrunk in place, moved up whole, or split by an extension of some of its messages."""
    extended = [timer for timer in worked.moved if timer.state == State.LEASED]
    if worked.left is not None:
        hold.timer = worked.left
    elif len(extended) == 1:
        hold.timer = extended.pop()
    return [_parted(hold, timer) for timer in extended]


def _parted(hold: Hold, timer: Timer) -> Hold:
    """The hold of messages whose lease was extended without the others'."""
    parted = Hold(hold.row, timer, hold.lease, renew_at=hold.renew_at, unsure=hold.unsure, since=hold.since)
    for entry in timer.entries:
        if delivery := hold.deliveries.pop(entry.id, None):
            delivery.hold = parted
            parted.deliveries[entry.id] = delivery
    return parted
