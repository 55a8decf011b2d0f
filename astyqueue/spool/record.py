"""A message in a spool, and one that the store refused, as the records of a journal: JSON that people can read.

A message is `{"id":"<row>/<priority>/<TimeUUID>","envelope":[...]}`. The envelope is the one that the store gets, byte
by byte, without its format byte.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from pydantic_core import from_json, to_json

from astyqueue.clock import instant
from astyqueue.journal import Record
from astyqueue.model.envelope import FORMAT, Envelope, MessageId, decode, unframed

_HEAD: Final = b'{"id":"'
_MIDDLE: Final = b'","envelope":'
_TAIL: Final = b"}"


class SpooledMessage(NamedTuple):
    """A message with its final id, encoded for the store."""

    id: MessageId
    value: bytes

    def pack(self) -> bytes:
        """The bytes of its record."""
        return b"".join((_HEAD, str(self.id).encode(), _MIDDLE, unframed(self.value), _TAIL))

    @classmethod
    def parse(cls, data: bytes) -> SpooledMessage:
        """The message of a record; ValueError if it is none."""
        head, middle, rest = data.partition(_MIDDLE)
        if not (head.startswith(_HEAD) and middle and rest.endswith(_TAIL)):
            message = f"it is not a spooled message, but {len(data)} other bytes"
            raise ValueError(message)
        return cls(MessageId.parse(head.removeprefix(_HEAD).decode()), FORMAT + rest.removesuffix(_TAIL))

    @property
    def envelope(self) -> Envelope:
        """Its body and options; ValueError if they cannot be read."""
        return decode(self.value)


class PendingMessage(NamedTuple):
    """A record that waits to be forwarded: its message and row, or None, no row and the `problem` if it is none."""

    sequence: int
    arrived_us: int
    value: bytes
    message: SpooledMessage | None
    row: str
    problem: str = ""

    @classmethod
    def of(cls, record: Record[bytes]) -> PendingMessage:
        """Parse a record."""
        try:
            message = SpooledMessage.parse(record.value)
        except ValueError as error:
            why = f"{type(error).__name__}: {error}"
            return cls(record.sequence, record.arrived_us, record.value, message=None, row="", problem=why)
        return cls(record.sequence, record.arrived_us, record.value, message, message.id.row)


class RefusedMessage(NamedTuple):
    """A message that was set aside because the store refuses it for ever; `message` is its record."""

    reason: str
    refused_us: int
    message: bytes

    @property
    def refused(self) -> datetime:
        """When it was set aside, as an aware UTC datetime."""
        return instant(self.refused_us)

    def pack(self) -> bytes:
        """The bytes of its record."""
        # The reason of a driver may have half a surrogate pair.
        reason = self.reason.encode(errors="backslashreplace").decode()
        return to_json({"reason": reason, "refused_us": self.refused_us, "message": self._text()})

    def _text(self) -> str:
        return self.message.decode(errors="backslashreplace")

    @classmethod
    def parse(cls, data: bytes) -> RefusedMessage:
        """The message of a record; ValueError if it is none."""
        found = from_json(data)
        if not isinstance(found, dict) or found.keys() != {"reason", "refused_us", "message"}:
            message = f"it is not a refused message, but {len(data)} other bytes"
            raise ValueError(message)
        return cls(str(found["reason"]), int(found["refused_us"]), str(found["message"]).encode())
