"""How values become the bytes of a record, and values again.

There is no codec for pickles: who can write into a file could run code in every process that reads it.
"""

from __future__ import annotations

import json
from typing import Final, Protocol, TypeVar

T = TypeVar("T")


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
    """JSON in UTF-8: what `json.loads` returns. Tuples come back as lists, keys of objects as text."""

    def encode(self, value: object) -> bytes:
        """Compact JSON; `TypeError` or `ValueError` if JSON cannot express the value: NaN and infinity are refused."""
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> object:
        """The value."""
        decoded: object = json.loads(data)
        return decoded


BYTES: Final = BytesCodec()
UTF8: Final = TextCodec()
JSON: Final = JsonCodec()
