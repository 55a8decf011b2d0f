"""The format byte that every stored value begins with."""

from __future__ import annotations

from typing import Final

#: The first byte of every stored value; a greater one was written by a newer astyqueue.
FORMAT: Final = b"\x01"


def unframed(value: bytes) -> bytes:
    """The content of a value behind its format byte; raises ValueError for another format."""
    if value[:1] != FORMAT:
        raise other_format(value)
    return value[1:]


def other_format(value: bytes) -> ValueError:
    """The error for a value of another format."""
    return ValueError(f"format byte {value[:1].hex() or 'missing'}, and this astyqueue knows {FORMAT.hex()}")
