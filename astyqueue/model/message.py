"""The message that a producer sends: checked, and encoded as an envelope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from astyqueue.durations import Duration, as_microseconds, instant_of, upper_bound_of
from astyqueue.errors import BadInput
from astyqueue.json_form import check_text
from astyqueue.model.body import encode_body
from astyqueue.model.envelope import ATTEMPTS_MOST, LEASE_LEAST, LEASE_MOST, Envelope, encode, encode_plain
from astyqueue.model.priority_class import priority_by_header
from astyqueue.model.schedule import SCHEDULE
from astyqueue.model.settings import Behaviour, Settings
from astyqueue.text import length_text


class Unique(StrEnum):
    """The policy for a message whose unique key another message has.

    REJECT: it is not sent; KeyTaken is raised. KEEP: it is not sent; the other message is kept. REPLACE: it replaces
    the other message and keeps that one's due time. DEBOUNCE: it replaces the other message, with its own due time.
    SUPERSEDE: as DEBOUNCE, and also while the other message is leased, which is then not delivered again.
    """

    REJECT = "reject"
    KEEP = "keep"
    REPLACE = "replace"
    DEBOUNCE = "debounce"
    SUPERSEDE = "supersede"


KEY_BYTES: Final = 512
HEADERS_BYTES: Final = 8 * 1024


@dataclass(frozen=True, slots=True)
class Message:
    """A body and its send options; the queue's settings apply to options left out.

    `priority`: of messages that are due, a greater one comes first (0: the usual); `key`: your name for it, to find it
    by; `headers`: texts by name. `lease` and `max_attempts` override the queue's, within its caps.

    `delay` counts from now, `at` is an aware datetime; from `expires` on (an aware datetime, or a duration after the
    due time) no consumer is handed the message. `lease=0` hands it out at most once. Of a queue's messages sent with
    `unique`, at most one has the key: "reject" raises KeyTaken if another message has it, "keep" keeps that one,
    "replace", "debounce" and "supersede" cancel it. Of the messages of a `group` at most one is leased at a time, in
    order.
    """

    body: object
    key: str | None = None
    delay: Duration | None = None
    at: datetime | None = None
    priority: int = 0
    headers: Mapping[str, str] | None = None
    expires: Duration | datetime | None = None
    lease: Duration | None = None
    max_attempts: int | None = None
    unique: str | None = None
    group: str | None = None


_NO_OPTIONS: Final = Message(None)
#: The options of a `Message` besides its body, and their defaults.
_OPTIONS: Final = {option.name: option.default for option in fields(Message) if option.name != "body"}


def as_message(item: object, options: Message) -> Message:
    """The message to send: a `Message` as it is, anything else as a body with these options. BadInput for both."""
    return own_options(item, options) if isinstance(item, Message) else replace(options, body=item)


def own_options(message: Message, options: Message) -> Message:
    """A message, which has its own options; BadInput if any of these `options` is given beside it."""
    if options != _NO_OPTIONS and (
        given := [name for name, usual in _OPTIONS.items() if getattr(options, name) != usual]
    ):
        problem = (
            f"a Message has its own options, so {', '.join(f'{name}=' for name in given)} beside it would be lost: "
            f"set {'it' if len(given) == 1 else 'them'} in the Message, or send its body"
        )
        raise BadInput(problem)
    return message


class PreparedMessage(NamedTuple):
    """A checked message: due time (zero: now), priority, key and headers, its column value and the time of sending.

    `life`: how long after its due time it expires, in microseconds; None if at a fixed moment or never.
    """

    due: int
    priority: int
    key: str | None
    value: bytes
    sent: int
    unique: Unique | None = None
    headers: Mapping[str, str] | None = None
    life: int | None = None
    group: str | None = None


class MessageEncoder:
    """Checks messages against the bounds of their queue and encodes them for the store."""

    def __init__(self, settings: Settings, now: int) -> None:
        """`now`, in microseconds since 1970, is the time of sending of all messages prepared here."""
        self._settings = settings
        self._now = now
        self._plain: Message | None = None
        self._plain_priority = 0

    def prepare(self, body: object, options: Message) -> PreparedMessage:
        """Encode one message. BadInput if the body or an option is invalid; nothing was sent."""
        encoded = encode_body(body, self._settings.behaviour.body_bytes)
        if options is self._plain:
            return PreparedMessage(0, self._plain_priority, None, encode_plain(self._now, encoded), self._now)
        return self._with_options(encoded, options)

    def _with_options(self, encoded: bytes, options: Message) -> PreparedMessage:
        priority = _priority(options, self._settings)
        if _is_plain(options) and self._settings.behaviour.life is None:
            self._plain, self._plain_priority = options, priority
            return PreparedMessage(0, priority, None, encode_plain(self._now, encoded), self._now)
        due = _due(options, self._now)
        unique = unique_of(options)
        envelope = Envelope(
            sent=self._now,
            due=due,
            key=_key(options.key),
            headers=_headers(options.headers),
            expires=_expires(options.expires, max(due, self._now), self._settings.behaviour),
            lease=_lease(options.lease, self._settings.behaviour.lease_cap_us),
            attempts=_attempts(options.max_attempts, self._settings.behaviour.max_attempts_cap),
            body=None,
            unique=unique is not None,
            group=_group(options, self._settings.behaviour),
        )
        value, life = encode(envelope, encoded), None
        if envelope.expires is not None and not isinstance(options.expires, datetime):
            life = envelope.expires - max(due, self._now)
        return PreparedMessage(
            due=due,
            priority=priority,
            key=envelope.key,
            value=value,
            sent=self._now,
            unique=unique,
            headers=envelope.headers,
            life=life,
            group=envelope.group,
        )


def _is_plain(message: Message) -> bool:
    return (
        message.key is None
        and message.delay is None
        and message.at is None
        and message.headers is None
        and message.expires is None
        and message.lease is None
        and message.max_attempts is None
        and message.unique is None
        and message.group is None
    )


def _priority(message: Message, settings: Settings) -> int:
    levels, priority = settings.layout.priorities, message.priority
    if header := settings.behaviour.sort_header:
        if priority == 0:
            return priority_by_header(settings, message.headers)
        problem = f"queue {settings.name!r} is sorted by the header {header!r}: give that, and no priority"
        raise BadInput(problem)
    if type(priority) is not int or not 0 <= priority < levels:
        allowed = "has one priority, 0" if levels == 1 else f"has the priorities 0 to {levels - 1} (highest first)"
        problem = f"priority {priority!r} was requested, but queue {settings.name!r} {allowed}"
        raise BadInput(problem)
    return priority


def _due(message: Message, now: int) -> int:
    if message.delay is not None and message.at is not None:
        problem = "a message takes a delay or a moment (at=), not both"
        raise BadInput(problem)
    if message.at is not None:
        return instant_of(message.at)
    return now + as_microseconds(message.delay) if message.delay is not None else 0


def range_of(since: datetime | None, until: datetime | None) -> tuple[int | None, int | None]:
    """A range of time in microseconds; None leaves a side open. BadInput if it ends before it begins."""
    begin, end = None if since is None else instant_of(since), None if until is None else upper_bound_of(until)
    if begin is not None and end is not None and begin > end:
        problem = f"the range ends ({until}) before it begins ({since}): exchange since and until"
        raise BadInput(problem)
    return begin, end


def _expires(expires: Duration | datetime | None, due: int, behaviour: Behaviour) -> int | None:
    if expires is None:
        return None if behaviour.life is None else due + behaviour.life
    moment = upper_bound_of(expires) if isinstance(expires, datetime) else due + as_microseconds(expires)
    if moment <= due:
        problem = f"the message would expire ({expires!r}) before it is due: give it a later moment, or none"
        raise BadInput(problem)
    if (cap := behaviour.expires_cap_us) and moment - due > cap:
        problem = (
            f"expires={expires!r} exceeds the queue's expires_cap of {length_text(cap)} after the due time: "
            "request less, or have the cap raised"
        )
        raise BadInput(problem)
    return moment


def _key(key: str | None) -> str | None:
    return None if key is None else check_key(key)


def check_key(key: object) -> str:
    """The key itself; BadInput unless it is text of 1 to `KEY_BYTES` bytes."""
    text = check_text(key, "key")
    if not 0 < len(text.encode()) <= KEY_BYTES:
        problem = f"key {text!r:.80} is not text of 1 to {KEY_BYTES} bytes"
        raise BadInput(problem)
    return text


def _group(message: Message, behaviour: Behaviour) -> str | None:
    if message.group is None:
        return None
    problem = ""
    if behaviour.last_value:
        problem = (
            "the queue keeps the last value of each key (last_value): send it to another queue, or without a group"
        )
    elif message.unique is not None:
        problem = "a unique key has a row of its own: leave out unique= or group="
    elif not 0 < len(check_text(message.group, "group").encode()) <= KEY_BYTES:
        problem = f"a group is text of 1 to {KEY_BYTES} bytes"
    if problem:
        problem = f"group={message.group!r:.80}: {problem}"
        raise BadInput(problem)
    return message.group


def unique_of(message: Message) -> Unique | None:
    """The policy of a message if its key is taken; None without one. BadInput if it is unknown, or without a key."""
    if message.unique is None:
        return None
    try:
        unique = Unique(message.unique)
    except ValueError as error:
        problem = f"unique={message.unique!r}: must be one of {', '.join(Unique)}"
        raise BadInput(problem) from error
    if message.key is None:
        problem = f"unique={message.unique!r} without a key: give the key that must be unique"
        raise BadInput(problem)
    return unique


def with_policy_of_queue(message: Message, settings: Settings) -> Message:
    """The message with the policy for taken keys that its queue has for messages without one of their own."""
    if message.key is None or message.unique is not None or not settings.behaviour.last_value:
        return message
    return replace(message, unique=Unique.SUPERSEDE)


def _headers(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    if headers is None:
        return None
    if not isinstance(headers, Mapping) or any(not isinstance(part, str) for pair in headers.items() for part in pair):
        problem = f"headers map text to text, and these do not: {headers!r:.200}"
        raise BadInput(problem)
    pairs = {
        check_text(name, "the name of a header"): check_text(text, f"header {name!r:.80}")
        for name, text in headers.items()
    }
    if SCHEDULE in pairs:
        problem = f"the header {SCHEDULE!r} is reserved: only schedules set it; give yours another name"
        raise BadInput(problem)
    if (size := sum(len(part.encode()) for pair in pairs.items() for part in pair)) > HEADERS_BYTES:
        problem = f"headers are {size} bytes, and at most {HEADERS_BYTES} are allowed: put data into the body"
        raise BadInput(problem)
    return pairs


def _lease(lease: Duration | None, cap: int) -> int | None:
    if lease is None:
        return None
    duration = as_microseconds(lease)
    if duration and not LEASE_LEAST <= duration <= LEASE_MOST:
        least, longest = length_text(LEASE_LEAST), length_text(LEASE_MOST)
        problem = f"lease is {length_text(duration)}: it must be from {least} to {longest}, or 0 for at most once"
        raise BadInput(problem)
    if duration > cap:
        problem = (
            f"lease {lease!r} exceeds the queue's lease_cap of {length_text(cap)}: request less, or have the cap raised"
        )
        raise BadInput(problem)
    return duration


def _attempts(attempts: int | None, cap: int) -> int | None:
    if attempts is not None and not (type(attempts) is int and 1 <= attempts <= ATTEMPTS_MOST):
        problem = f"max_attempts {attempts!r} is not a whole number from 1 to {ATTEMPTS_MOST}"
        raise BadInput(problem)
    if attempts is not None and attempts > cap:
        problem = f"max_attempts {attempts} exceeds the queue's max_attempts_cap of {cap}: request less, or raise it"
        raise BadInput(problem)
    return attempts
