"""Frames of plain values over two pipes: numbers, text, bytes, None, and tuples, lists and dicts of them."""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import struct
from typing import Any, Final

_LENGTH: Final = struct.Struct("!Q")
_CHUNK: Final = 1 << 16

#: A frame: what it is, and the values that belong to it.
Frame = tuple[Any, ...]


class Channel:
    """One end of the pipes between a parent and its child. Not safe from several threads.

    Frames are marshalled: both ends are the same Python, and neither makes objects of any class from what it gets.
    """

    def __init__(self, incoming: int, outgoing: int) -> None:
        """This channel closes these two ends of pipes."""
        self._incoming = incoming
        self._outgoing = outgoing
        self._buffer = b""
        self._closed = False

    def send(self, frame: Frame) -> None:
        """Send a frame; OSError when the other end is gone, ValueError for a value that cannot cross."""
        packed = marshal.dumps(frame)
        packed = _LENGTH.pack(len(packed)) + packed
        written = os.write(self._outgoing, packed)
        while written < len(packed):
            packed = packed[written:]
            written = os.write(self._outgoing, packed)

    def receive(self) -> Frame | None:
        """Wait for the next frame; None when the other end is gone."""
        buffer = self._read(self._buffer, _LENGTH.size)
        if len(buffer) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(buffer)[0]
        buffer = self._read(buffer, end)
        if len(buffer) < end:
            return None
        self._buffer = buffer[end:]
        frame: Frame = marshal.loads(buffer[_LENGTH.size : end])  # noqa: S302 - written by the parent or by its child
        return frame

    def _read(self, buffer: bytes, size: int) -> bytes:
        """Read until there are this many bytes, or the other end is gone."""
        while len(buffer) < size:
            chunk = os.read(self._incoming, max(_CHUNK, size - len(buffer)))
            if not chunk:
                break
            buffer += chunk
        return buffer

    @property
    def readable(self) -> bool:
        """Whether `receive` finds something now: a frame, or that the other end is gone."""
        ready = select.poll()
        ready.register(self._incoming, select.POLLIN)
        return bool(self._buffer or ready.poll(0))

    @property
    def closed(self) -> bool:
        """Whether this end was closed."""
        return self._closed

    def close(self) -> None:
        """Close this end: the other one reads the end."""
        if not self._closed:
            self._closed = True
            for end in (self._incoming, self._outgoing):
                with contextlib.suppress(OSError):
                    os.close(end)
