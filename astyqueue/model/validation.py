"""Checks of a caller's arguments: whole numbers, several items and not one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Final, TypeVar

from astyqueue.errors import BadInput

T = TypeVar("T")

#: These are iterable, but who gives one means one item: not its characters, numbers or keys.
_ONE_ITEM: Final = (str, bytes, bytearray, memoryview, Mapping)


def check_count(count: object, what: str, *, least: int = 1) -> int:
    """The number itself; BadInput, as "<count> <what>: ...", unless it is a whole number of at least `least`."""
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        message = f"{count!r:.80} {what}: request a whole number, {least} or more"
        raise BadInput(message)
    return count


def check_several(items: Iterable[T], what: str, remedy: str) -> Iterator[T]:
    """The items one by one; BadInput, as "<what>, but one str of length 3 was given: <remedy>", if it is a single one.

    The error shows no more of what was given: it may be the body of a message.
    """
    if not isinstance(items, _ONE_ITEM):
        try:
            return iter(items)
        except TypeError:
            pass
    size = f" of length {len(items)}" if isinstance(items, Sized) else ""
    message = f"{what}, but one {type(items).__name__}{size} was given: {remedy}"
    raise BadInput(message)
