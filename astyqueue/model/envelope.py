"""A message: its envelope as stored, behind a format byte, its id, and the receipt of one delivery of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.clock import microseconds
from astyqueue.durations import LATEST
from astyqueue.errors import BadInput
from astyqueue.ids import Id, Nonce, is_moment
from astyqueue.units import SECOND

#: The first byte of every stored value; a greater one was written by a newer astyqueue.
FORMAT: Final = b"\x01"
#: The least and the longest lease (microseconds) and the most attempts of a queue or a message; a lease of zero: at
#: most once.
LEASE_LEAST: Final = SECOND // 10
LEASE_MOST: Final = 12 * 3_600 * SECOND
ATTEMPTS_MOST: Final = 10_000
#: The least and the longest time for which it is stored that a repeatable send was settled, in seconds.
REMEMBERED_LEAST: Final = 86_400
REMEMBERED_MOST: Final = 30 * REMEMBERED_LEAST
#: The greatest moment (microseconds) that earlier releases stored for a message that never expires: that of
#: `datetime.max`.
_ENDLESS: Final = microseconds(datetime.max.replace(tzinfo=UTC)) + 1
_PLAIN_TAIL: Final = b"0,null,null,null,null,null,"


def unframed(value: bytes) -> bytes:
    """The content of a value behind its format byte; raises ValueError for another format."""
    if value[:1] != FORMAT:
        raise other_format(value)
    return value[1:]


def other_format(value: bytes) -> ValueError:
    """The error for a value of another format."""
    return ValueError(f"format byte {value[:1].hex() or 'missing'}, and this astyqueue knows {FORMAT.hex()}")


class Envelope(NamedTuple):
    """The content of a message column. Instants are microseconds since 1970, durations microseconds.

    `unique`: no other unique message has its key until it is done, dead or deleted. `repeatable`: its send may be
    repeated after it was settled; a tombstone of the settlement is kept for this number of seconds. True, which all
    releases read, means a day. `group`: of the messages of one group at most one is leased at a time, in order.
    """

    sent: int
    due: int
    key: str | None
    headers: dict[str, str] | None
    expires: int | None
    lease: int | None
    attempts: int | None
    body: JsonValue
    unique: bool = False
    repeatable: bool | int = False
    group: str | None = None


_FIELDS: Final = len(Envelope._fields)
#: Most messages are neither unique nor repeatable and in no group; these fields are then left out.
_USUAL: Final = (False, False, None)
#: The number of fields of a message without a group, which leaves out the last field.
_UNGROUPED: Final = _FIELDS - 1
_SAID: Final = _FIELDS - len(_USUAL)
_BODY: Final = Envelope._fields.index("body")
_HEADERS: Final = Envelope._fields.index("headers")
#: The fields between `sent` and `body` of a message that was sent without options but headers, as those of tasks are.
_PLAIN: Final = [0, None, None, None, None, None]
_TEXT: Final = frozenset({str})
#: Making a tuple's subclass straight from its parts halves its cost; an envelope is made for every message handed out.
_new: Final = tuple.__new__


def encode_plain(sent: int, body: bytes) -> bytes:
    """The envelope of a body, already encoded as JSON, that was sent without options."""
    return b"\x01[%d,%b%b]" % (sent, _PLAIN_TAIL, body)


def encode(envelope: Envelope, body: bytes) -> bytes:
    """An envelope with its body already encoded as JSON."""
    head, tail = to_json(envelope[:_BODY]), envelope[_SAID:]
    said = b"" if tail == _USUAL else b"," + to_json(tail if envelope.group is not None else tail[:-1])[1:-1]
    return b"\x01%b,%b%b]" % (head[:-1], body, said)


def decode(value: bytes) -> Envelope:
    """The envelope of a stored value; a newer format, damage or invalid fields raise ValueError."""
    if value[:1] != FORMAT:  # as `unframed`, without a call for each message
        raise other_format(value)
    fields = from_json(value[1:], allow_inf_nan=False)
    said = len(fields) if type(fields) is list else 0
    if said == _SAID:
        fields += _USUAL
        options, headers = fields[1:_BODY], fields[_HEADERS]
        if type(headers) is dict and _TEXT.issuperset(map(type, headers.values())):
            options[_HEADERS - 1] = None
        if options == _PLAIN and is_moment(fields[0]):
            return _new(Envelope, fields)
    elif said == _UNGROUPED:
        fields.append(None)
    elif said != _FIELDS:
        message = f"it is not an envelope of {_SAID}, {_UNGROUPED} or {_FIELDS} fields"
        raise ValueError(message)
    return _checked(_new(Envelope, fields))


def _checked(envelope: Envelope) -> Envelope:
    """The envelope, its lease and attempts clamped to the bounds of a queue's; ValueError for a wrong type or range."""
    sent, due, key, headers, expires, lease, attempts, _, unique, repeatable, group = envelope
    right = (
        is_moment(sent),
        is_moment(due),
        key is None or type(key) is str,
        headers is None or (type(headers) is dict and _TEXT.issuperset(map(type, headers.values()))),
        expires is None or is_moment(expires) or (type(expires) is int and 0 < expires <= _ENDLESS),
        lease is None or (type(lease) is int and lease >= 0),
        attempts is None or (type(attempts) is int and attempts >= 0),
        True,  # a body may be any JSON
        type(unique) is bool,
        type(repeatable) is bool or (type(repeatable) is int and REMEMBERED_LEAST <= repeatable <= REMEMBERED_MOST),
        group is None or type(group) is str,
    )
    if not all(right):
        wrong = [name for name, is_right in zip(Envelope._fields, right, strict=True) if not is_right]
        message = f"{', '.join(wrong)}: of the wrong type, or out of range"
        raise ValueError(message)
    if expires is lease is attempts is None:
        return envelope
    return envelope._replace(
        expires=None if expires is None else min(expires, LATEST),
        lease=min(max(lease, LEASE_LEAST), LEASE_MOST) if lease else lease,
        attempts=None if attempts is None else min(max(attempts, 1), ATTEMPTS_MOST),
    )


def queue_of(row: str) -> str:
    """The queue that a row belongs to."""
    return row.partition(":")[0]


class MessageId(NamedTuple):
    """The id of a message: opaque to users, stable for the message's life, printed as `<row>/<priority>/<TimeUUID>`."""

    row: str
    priority: int
    id: Id

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return f"{self.row}/{self.priority}/{ids.text(self.id)}"

    def __repr__(self) -> str:
        """The same text, marked as a MessageId."""
        return f"<MessageId {self}>"

    @property
    def moment(self) -> int:
        """When the message was due for the first time, in microseconds since 1970."""
        return ids.moment(self.id)

    @property
    def queue(self) -> str:
        """The queue the message is in."""
        return queue_of(self.row)

    @classmethod
    def parse(cls, written: str) -> MessageId:
        """The id that `str` gave; other text raises BadInput."""
        try:
            row, priority, uuid = written.split("/")
            return cls(row, int(priority), ids.parse(uuid))
        except ValueError as error:
            message = f"{written!r} is not a message id, such as 'emails:0:0/0/9d3d3ddc-e59b-11f1-8fbf-bd1965e21e21'"
            raise BadInput(message) from error


class Receipt(NamedTuple):
    """The right to settle one delivery, printed as `<id>/<attempt>/<claim nonce>`; good in any process."""

    message: MessageId
    attempt: int
    nonce: Nonce

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return f"{self.message}/{self.attempt}/{self.nonce.hex()}"

    @classmethod
    def parse(cls, written: str) -> Receipt:
        """The receipt that `str` gave; other text raises BadInput."""
        try:
            message, attempt, nonce = written.rsplit("/", 2)
            return cls(MessageId.parse(message), int(attempt), Nonce(bytes.fromhex(nonce)))
        except ValueError as error:
            problem = f"{written!r} is not a receipt, such as '<message id>/1/5f0c3a9e2b7d4c11'"
            raise BadInput(problem) from error
