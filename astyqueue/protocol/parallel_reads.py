"""Several read-only operations in parallel: a queue of many rows is read in few round trips."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar, cast

from astyqueue.errors import SliceTooLong
from astyqueue.protocol.steps import Answer, Read, Request, Steps
from astyqueue.store import Column

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

#: The answer for each operation, by its number.
Answers = dict[int, Answer]

#: Operations in parallel, each with a few slices: in rows where much was settled these read thousands of tombstones.
_ABREAST: Final = 8


def in_parallel(parts: Iterable[Steps[T]]) -> Steps[list[T]]:
    """The results of these operations, in order; slices that several request at the same time are read in one request.

    Raises TypeError for an operation that requests anything but reads.
    """
    results: list[T] = []
    left = iter(parts)
    while some := list(islice(left, _ABREAST)):
        results += yield from _abreast(some)
    return results


def both_in_parallel(first: Steps[A], second: Steps[B]) -> Steps[tuple[A, B]]:
    """The results of two operations of different types, as `in_parallel`."""
    parts: tuple[Steps[A | B], Steps[A | B]] = (first, second)
    results = yield from in_parallel(parts)
    return cast("tuple[A, B]", tuple(results))


def _abreast(parts: Sequence[Steps[T]]) -> Steps[list[T]]:
    results: dict[int, T] = {}
    answers: Answers = dict.fromkeys(range(len(parts)), Answer())
    while answers:
        went_on = {number: _go_on(parts[number], answer) for number, answer in answers.items()}
        results |= {number: step.result for number, step in went_on.items() if isinstance(step, _Finished)}
        asked = {number: step for number, step in went_on.items() if isinstance(step, Read)}
        plain = yield from _answered({number: read for number, read in asked.items() if not read.exact}, exact=False)
        answers = plain | (
            yield from _answered({number: read for number, read in asked.items() if read.exact}, exact=True)
        )
    return [results[number] for number in range(len(parts))]


class _Finished(NamedTuple, Generic[T]):
    result: T


def _go_on(part: Steps[T], answer: Answer) -> Read | _Finished[T]:
    try:
        return _only_read(answer.into(part))
    except StopIteration as finished:
        return _Finished(finished.value)


def _answered(asked: dict[int, Read], *, exact: bool) -> Steps[Answers]:
    """The answer for each; if the store aborts a slice, the error goes only to the operation that requested it."""
    if not asked:
        return {}
    try:
        found: list[list[Column]] = yield Read(
            tuple(wanted for read in asked.values() for wanted in read.wanted), exact
        )
    except SliceTooLong as error:
        if len(asked) == 1:
            return dict.fromkeys(asked, Answer(error=error))
        return (yield from _one_by_one(asked, exact=exact))
    columns: Iterator[list[Column]] = iter(found)
    return {number: Answer(list(islice(columns, len(read.wanted)))) for number, read in asked.items()}


def _one_by_one(asked: dict[int, Read], *, exact: bool) -> Steps[Answers]:
    answers: Answers = {}
    for number, read in asked.items():
        answers |= yield from _answered({number: read}, exact=exact)
    return answers


def _only_read(request: Request) -> Read:
    if not isinstance(request, Read):
        message = f"{request!r} is not a read, and only reads can run in parallel"
        raise TypeError(message)
    return request
