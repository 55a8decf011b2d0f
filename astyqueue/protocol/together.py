"""Several operations that only read, side by side: a queue of many rows is looked through in few round trips."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from astyqueue.protocol.steps import Read, Request, Steps
from astyqueue.store import Column

T = TypeVar("T")

#: Operations under way at once, each with a few slices.
_ABREAST: Final = 32


def together(parts: Iterable[Steps[T]]) -> Steps[list[T]]:
    """The results of these operations, in order; what several ask for at the same time is read in one request.

    An operation that asks for anything but a plain or an exact read has no place here.
    """
    results: list[T] = []
    left = iter(parts)
    while some := list(islice(left, _ABREAST)):
        results += yield from _abreast(some)
    return results


def _abreast(parts: Sequence[Steps[T]]) -> Steps[list[T]]:
    results: dict[int, T] = {}
    answers: dict[int, list[list[Column]] | None] = dict.fromkeys(range(len(parts)))
    while answers:
        asked: dict[int, Read] = {}
        for number, answer in answers.items():
            try:
                asked[number] = _only_read(parts[number].send(answer))
            except StopIteration as finished:
                results[number] = finished.value
        answers = {}
        for exact in {read.exact for read in asked.values()}:
            answers |= yield from _answered({number: read for number, read in asked.items() if read.exact is exact}, exact=exact)
    return [results[number] for number in range(len(parts))]


def _answered(asked: dict[int, Read], *, exact: bool) -> Steps[dict[int, list[list[Column]] | None]]:
    found: list[list[Column]] = yield Read(tuple(wanted for read in asked.values() for wanted in read.wanted), exact)
    columns: Iterator[list[Column]] = iter(found)
    return {number: list(islice(columns, len(read.wanted))) for number, read in asked.items()}


def _only_read(request: Request) -> Read:
    if not isinstance(request, Read):
        message = f"{request!r} is no read, and only reads go side by side"
        raise TypeError(message)
    return request
