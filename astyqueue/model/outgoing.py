"""What a producer hands in, checked and turned into an envelope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput
from astyqueue.instants import instant_of, upper_bound_of
from astyqueue.model.bodies import encode_body
from astyqueue.model.checks import check_text
from astyqueue.model.message import ATTEMPTS_MOST, LEASE_LEAST, LEASE_MOST, Envelope, encode, encode_plain
from astyqueue.model.moments import told_length
from astyqueue.model.schedules import SCHEDULE
from astyqueue.model.settings import Settings


class Unique(StrEnum):
    """What becomes of a message whose unique key another one has.

    REJECT: it is not sent, and that is an error. KEEP: it is not sent, and the other will do. REPLACE: it takes the other's
    place, and is due when that was. DEBOUNCE: it takes the other's place, and is due as it says itself.
    """

    REJECT = "reject"
    KEEP = "keep"
    REPLACE = "replace"
    DEBOUNCE = "debounce"


KEY_BYTES: Final = 512
HEADERS_BYTES: Final = 8 * 1024


@dataclass(frozen=True, slots=True)
class Message:
    """A body and how it is to be sent; what is left out takes the queue's settings.

    `delay` counts from now, `at` is an aware datetime; from `expires` on (an aware datetime, or a duration after it is
    due) nobody is handed the message any more. `lease=0` hands it out at most once. Of the messages of a queue that are sent
    with `unique`, at most one has the key: "reject" raises KeyTaken if another one has it, "keep" is content with that one,
    "replace" and "debounce" cancel it.
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


class Composed(NamedTuple):
    """A checked message: when it is due (zero: now), its priority, key and headers, the value of its column, and the moment of sending."""

    due: int
    priority: int
    key: str | None
    value: bytes
    sent: int
    unique: Unique | None = None
    headers: Mapping[str, str] | None = None


class Composer:
    """Checks messages against the bounds of their queue and turns them into what is stored."""

    def __init__(self, settings: Settings, now: int) -> None:
        """Messages composed here are sent at this moment, in microseconds since 1970."""
        self._settings = settings
        self._now = now
        self._plain: Message | None = None

    def compose(self, body: object, options: Message) -> Composed:
        """One message: this body under these options. BadInput says what is wrong, and nothing was sent."""
        encoded = encode_body(body, self._settings.behaviour.body_bytes)
        if options is self._plain:
            return Composed(0, options.priority, None, encode_plain(self._now, encoded), self._now)
        return self._with_options(encoded, options)

    def _with_options(self, encoded: bytes, options: Message) -> Composed:
        priority = _priority(options.priority, self._settings)
        if _is_plain(options):
            self._plain = options
            return Composed(0, priority, None, encode_plain(self._now, encoded), self._now)
        due = _due(options, self._now)
        unique = unique_of(options)
        envelope = Envelope(
            sent=self._now,
            due=due,
            key=_key(options.key),
            headers=_headers(options.headers),
            expires=_expires(options.expires, max(due, self._now)),
            lease=_lease(options.lease, self._settings.behaviour.lease_cap_us),
            attempts=_attempts(options.max_attempts, self._settings.behaviour.max_attempts_cap),
            body=None,
            unique=unique is not None,
        )
        return Composed(due, priority, envelope.key, encode(envelope, encoded), self._now, unique, envelope.headers)


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
    )


def _priority(priority: int, settings: Settings) -> int:
    levels = settings.layout.priorities
    if type(priority) is not int or not 0 <= priority < levels:
        asked = "has one priority, 0" if levels == 1 else f"has the priorities 0 to {levels - 1} (the greatest goes first)"
        problem = f"priority {priority!r} was asked for, and queue {settings.name!r} {asked}"
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
    """A range of time in microseconds, open where nothing is said. One that ends before it begins raises BadInput, as `instant_of` does."""
    begin, end = None if since is None else instant_of(since), None if until is None else upper_bound_of(until)
    if begin is not None and end is not None and begin > end:
        problem = f"the range ends ({until}) before it begins ({since}): exchange since and until"
        raise BadInput(problem)
    return begin, end


def _expires(expires: Duration | datetime | None, due: int) -> int | None:
    if expires is None:
        return None
    moment = upper_bound_of(expires) if isinstance(expires, datetime) else due + as_microseconds(expires)
    if moment <= due:
        problem = f"the message would expire ({expires!r}) before it is due: give it a later moment, or none"
        raise BadInput(problem)
    return moment


def _key(key: str | None) -> str | None:
    return None if key is None else check_key(key)


def check_key(key: object) -> str:
    """The key, if a message may have it; any other raises BadInput."""
    text = check_text(key, "key")
    if not 0 < len(text.encode()) <= KEY_BYTES:
        problem = f"key {text!r:.80} is not text of 1 to {KEY_BYTES} bytes"
        raise BadInput(problem)
    return text


def unique_of(message: Message) -> Unique | None:
    """What is to become of it if its key is taken; None if its key is not to be unique, and BadInput for what is no policy."""
    if message.unique is None:
        return None
    try:
        unique = Unique(message.unique)
    except ValueError as error:
        problem = f"unique={message.unique!r}: one of {', '.join(Unique)}"
        raise BadInput(problem) from error
    if message.key is None:
        problem = f"unique={message.unique!r} without a key: say which key is to be unique"
        raise BadInput(problem)
    return unique


def _headers(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    if headers is None:
        return None
    if not isinstance(headers, Mapping) or any(not isinstance(part, str) for pair in headers.items() for part in pair):
        problem = f"headers are text to text, and these are not: {headers!r:.200}"
        raise BadInput(problem)
    pairs = {check_text(name, "the name of a header"): check_text(text, f"header {name!r:.80}") for name, text in headers.items()}
    if SCHEDULE in pairs:
        problem = f"the header {SCHEDULE!r} says which schedule sent a message, and only schedules set it: give yours another name"
        raise BadInput(problem)
    if (size := sum(len(part.encode()) for pair in pairs.items() for part in pair)) > HEADERS_BYTES:
        problem = f"headers come to {size} bytes, and {HEADERS_BYTES} are allowed: put data into the body"
        raise BadInput(problem)
    return pairs


def _lease(lease: Duration | None, cap: int) -> int | None:
    if lease is None:
        return None
    lasts = as_microseconds(lease)
    if lasts and not LEASE_LEAST <= lasts <= LEASE_MOST:
        problem = f"a lease is from {told_length(LEASE_LEAST)} to {told_length(LEASE_MOST)}, or 0 for at most once, and {lease!r} was given"
        raise BadInput(problem)
    if lasts > cap:
        problem = (
            f"a lease of {lease!r} was asked for, and the queue's lease_cap is {told_length(cap)}: ask for less, or have the cap raised"
        )
        raise BadInput(problem)
    return lasts


def _attempts(attempts: int | None, cap: int) -> int | None:
    if attempts is not None and not (type(attempts) is int and 1 <= attempts <= ATTEMPTS_MOST):
        problem = f"max_attempts {attempts!r} is not a whole number from 1 to {ATTEMPTS_MOST}"
        raise BadInput(problem)
    if attempts is not None and attempts > cap:
        problem = f"max_attempts {attempts} was asked for, and the queue's max_attempts_cap is {cap}: ask for fewer, or have the cap raised"
        raise BadInput(problem)
    return attempts
