"""What readers and writers of a journal hold: positions, records, damage, and how values become bytes and values again.

There is no codec for pickles: who can write into a file could run code in every process that reads it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, cast

from astyqueue.clock import instant
from astyqueue.errors import BadInput, BadSetting
from astyqueue.json_form import encode_json

T = TypeVar("T")


class Place(Protocol):
    """A place in a journal: a `Position` or a `Record`."""

    @property
    def sequence(self) -> int:
        """The number of the record; later ones have greater numbers."""
        ...

    @property
    def arrived_us(self) -> int:
        """When it was appended, in microseconds since 1970; never less than that of the record before."""
        ...


def checked_place(given: object, what: str, others: str = "") -> Place:
    """The place itself; BadInput, which calls it `what`, for anything else. It shows no value: it may be a record's."""
    if all(isinstance(getattr(given, name, None), int) for name in ("sequence", "arrived_us")):
        return cast("Place", given)
    message = f"{what} is {type(given).__name__}: give a record, or a position as append returns it{others}"
    raise BadInput(message)


class Position(NamedTuple):
    """The place of a record that was appended."""

    sequence: int
    arrived_us: int

    @property
    def arrived(self) -> datetime:
        """When the record was appended, as an aware UTC datetime."""
        return instant(self.arrived_us)


class Record(NamedTuple, Generic[T]):
    """One entry of a journal, decoded."""

    sequence: int
    arrived_us: int
    value: T

    @property
    def arrived(self) -> datetime:
        """When the record was appended, as an aware UTC datetime."""
        return instant(self.arrived_us)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a journal that a reader passed by because they are not a readable record.

    `after` and `before` are the sequences of the readable records around it; 0 where there is none.
    """

    page: int
    offset: int
    size: int
    after: int
    before: int
    reason: str

    def facts(self) -> dict[str, object]:
        """The fields by name, for a log line."""
        return asdict(self)

    def __str__(self) -> str:
        between = f"after record {self.after}" if self.after else "before all readable records"
        upto = f" and before record {self.before}" if self.before else ""
        return f"page {self.page}, {self.size} bytes at offset {self.offset}, {between}{upto}: {self.reason}"


class Codec(Protocol[T]):
    """Both directions of one encoding. What it raises reaches the caller of `append` or the reader of the record."""

    def encode(self, value: T, /) -> bytes:
        """The bytes of a value."""
        ...

    def decode(self, data: bytes, /) -> T:
        """The value of these bytes, which have passed their checksum."""
        ...


class BytesCodec:
    """Bytes as they are."""

    def encode(self, value: bytes) -> bytes:
        """The value itself."""
        return value

    def decode(self, data: bytes) -> bytes:
        """The bytes themselves."""
        return data


class TextCodec:
    """Text in one encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        """`encoding` is a name that Python knows; an unknown one raises `LookupError`."""
        "".encode(encoding)
        self._encoding = encoding

    def encode(self, value: str) -> bytes:
        """The text in this encoding; `UnicodeEncodeError` if a character is missing in it."""
        return value.encode(self._encoding)

    def decode(self, data: bytes) -> str:
        """The text; `UnicodeDecodeError` if these bytes are invalid in this encoding."""
        return data.decode(self._encoding)


class JsonCodec:
    """JSON in UTF-8, by the rules of message bodies: tuples come back as lists, pydantic models as dicts."""

    def encode(self, value: object) -> bytes:
        """Compact JSON; BadInput names the part of the value that has no JSON form, such as NaN or a key not text."""
        return encode_json(value, "value")

    def decode(self, data: bytes) -> object:
        """The value."""
        decoded: object = json.loads(data)
        return decoded


BYTES: Final = BytesCodec()
UTF8: Final = TextCodec()
JSON: Final = JsonCodec()


def check_codec(codec: object, *verbs: str) -> None:
    """BadSetting unless an object has these methods of a codec."""
    if isinstance(codec, str | bytes) or not all(callable(getattr(codec, verb, None)) for verb in verbs):
        message = (
            f"codec is {codec!r:.60} ({type(codec).__name__}): give JSON, UTF8, BYTES or TextCodec(encoding) of "
            "astyqueue.journal, or an object with encode and decode"
        )
        raise BadSetting(message)
