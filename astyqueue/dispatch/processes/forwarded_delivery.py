"""A delivery as it crosses to a child process, and as a handler in the child has it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, cast

from astyqueue.clock import instant
from astyqueue.durations import Duration, as_microseconds, instant_of
from astyqueue.errors import BadInput
from astyqueue.ids import Nonce
from astyqueue.model.body import BODY_BYTES_AT_MOST, decode_body, encode_body
from astyqueue.model.envelope import Envelope
from astyqueue.model.message import Message
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.protocol.layout.columns import Entry, State, Timer, Type
from astyqueue.queue.delivery.base_delivery import Lease
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.delivery.follow_ups import Destination
from astyqueue.store import Name

#: What a handler in a child may have its parent do to the delivery.
_CALLS: Final = frozenset({"ack", "release", "fail", "extend", "reject"})
#: Has the parent add a follow-up: a message whose body is JSON, and its options.
_THEN: Final = "then"
Values = tuple[object, ...]
#: Has the parent call a method of the delivery, with these arguments, and returns what became of the delivery.
Ask = Callable[[str, Values], Values]


def crossing(delivery: Delivery) -> Values:
    """The values of a delivery from which `arrived` makes it again."""
    claimed = delivery.held
    timer = delivery.lease.timer if delivery.lease else None
    end, nonce = (timer.name.id, timer.nonce) if timer else (None, b"")
    return (delivery.row, *claimed.entry, delivery.began, delivery.settled, end, nonce, *claimed.envelope)


def _state(delivery: Delivery) -> Values:
    """What a settle changes: the outcome, and the id of the moment at which the lease ends."""
    return delivery.settled or delivery.settling, delivery.lease.timer.name.id if delivery.lease else None


def carry_out(delivery: Delivery, call: str, arguments: Values) -> Values:
    """Do to a delivery what its handler in a child asked for; returns its state then."""
    if call == _THEN:
        _follow(delivery, *arguments)
        return _state(delivery)
    if call not in _CALLS:
        message = f"a handler in a process cannot call {call!r} of its delivery"
        raise BadInput(message)
    given = [timedelta(microseconds=one) if isinstance(one, int) else one for one in arguments]
    getattr(delivery, call)(*given)
    return _state(delivery)


def _follow(delivery: Delivery, *fields: object) -> None:
    """Add the follow-up that a child sent as `_fields_of` it."""
    body, key, delay, at, priority, headers, expires, lease, max_attempts, group = cast("list[Any]", fields)
    delivery.then(
        decode_body(body),
        key=key,
        delay=None if delay is None else timedelta(microseconds=delay),
        at=None if at is None else instant(at),
        priority=priority,
        headers=headers,
        expires=_moment_or_duration(expires),
        lease=None if lease is None else timedelta(microseconds=lease),
        max_attempts=max_attempts,
        group=group,
    )


def _fields_of(message: Message) -> Values:
    """A follow-up as plain values; the parent checks most of them."""
    if message.unique is not None:
        problem = "a follow-up has no unique key, which takes a commit of its own: leave out unique="
        raise BadInput(problem)
    expires = message.expires
    crossing = (True, instant_of(expires)) if isinstance(expires, datetime) else (False, _microseconds(expires))
    return (
        encode_body(message.body, BODY_BYTES_AT_MOST),
        _plain(message.key),
        _microseconds(message.delay),
        None if message.at is None else instant_of(message.at),
        message.priority,
        None if message.headers is None else {_plain(name): _plain(value) for name, value in message.headers.items()},
        crossing,
        _microseconds(message.lease),
        message.max_attempts,
        _plain(message.group),
    )


def _moment_or_duration(crossing: tuple[bool, int | None]) -> datetime | timedelta | None:
    is_moment, value = crossing
    if value is None:
        return None
    return instant(value) if is_moment else timedelta(microseconds=value)


class ForwardedDelivery(Delivery):
    """A delivery in a child process: its parent has the lease, and carries out what the handler calls.

    It has all that a delivery in a thread has. A call waits for the parent's answer, and is refused once the handler
    has ended.
    """

    __slots__ = ("_ask",)

    _ask: Ask

    def ack(self) -> None:
        """Ack: the message is done and is removed."""
        self._forward("ack")

    def release(self, delay: Duration | None = None) -> None:
        """Give it back for redelivery at once or after `delay`; this costs no attempt."""
        self._forward("release", _microseconds(delay))

    def fail(self, reason: str = "failed", delay: Duration | None = None) -> None:
        """Count a failed attempt and redeliver after `delay` (default: the queue's backoff).

        The last attempt makes a dead letter.
        """
        self._forward("fail", _text(reason), _microseconds(delay))

    def extend(self, by: Duration) -> datetime | None:
        """Extend the lease to `by` from now (it is never shortened); returns the end of the lease."""
        self._forward("extend", as_microseconds(by))
        return self.lease_until

    def reject(self, reason: str = "rejected") -> None:
        """Make it a dead letter with this reason."""
        self._forward("reject", _text(reason))

    def _add_follow_up(self, message: Message, queue: Destination | None) -> None:
        """Have the parent send a message to the queue of this delivery when that is acked."""
        if queue is not None:
            problem = "a handler in a process sends follow-ups to its own queue: leave out queue="
            raise BadInput(problem)
        self._forward(_THEN, *_fields_of(message))

    def _forward(self, call: str, *arguments: object) -> None:
        settled, end = self._ask(call, arguments)
        self.settled = settled if isinstance(settled, str) else None
        if self.lease is not None and isinstance(end, bytes):
            self.lease.timer = _timer(end, self.lease.timer.nonce)


def arrived(values: Values, ask: Ask) -> ForwardedDelivery:
    """The delivery that the parent sent as `crossing`; `ask` has the parent call its methods."""
    row, id_, priority, spent, superseded, group, began, settled, end, nonce, *envelope = cast("list[Any]", values)
    lease = Lease(row, _timer(end, nonce), 0) if end else None
    entry = Entry(id_, priority, spent, superseded, group)
    delivery = ForwardedDelivery(row, ClaimedMessage(entry, Envelope(*envelope)), lease)
    delivery._ask = ask  # noqa: SLF001 - this makes it
    delivery.began = began
    delivery.settled = settled
    return delivery


def _timer(end: bytes, nonce: Nonce) -> Timer:
    """The timer of a lease that ends at the moment of this id, as far as a handler sees it."""
    return Timer(Name(Type.TIMER, 0, end, State.LEASED), (), nonce, "", 1)


def _microseconds(duration: Duration | None) -> int | None:
    return None if duration is None else as_microseconds(duration)


def _text(reason: object) -> str:
    if not isinstance(reason, str):
        problem = f"a reason must be text, not {reason!r:.80}; str() makes text of an error"
        raise BadInput(problem)
    return str.__str__(reason)


def _plain(value: object) -> object:
    """Text of a class of its own, such as a member of an enum, as text that can cross; anything else as it is."""
    return str.__str__(value) if isinstance(value, str) else value
