"""Steps: an operation as a generator that yields requests and returns its result; it does no input or output itself.

The same steps have several runners: `run` carries the requests out in a thread, `arun` in a task, and a test may stop,
fail or interleave operations at every yield. A store's error is thrown into the steps at the request that caused it, so
that they can read back an unknown outcome; errors that they do not catch reach the caller.

Steps do not read a clock or draw random numbers: the process that runs them passes both, as a `Client`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from astyqueue import ids
from astyqueue.errors import Closed, OutcomeUnknown, StoreError
from astyqueue.ids import Id, Nonce
from astyqueue.observe.events import OutcomeReadBack, RequestDone
from astyqueue.observe.observers import UNOBSERVED, Observers
from astyqueue.store import (
    AsyncStore,
    Batch,
    Column,
    Committed,
    Expectation,
    Name,
    Named,
    Outcome,
    Refused,
    Slice,
    Store,
    Wanted,
)
from astyqueue.units import MonotonicUs
from astyqueue.waiting import DeferredCancellation, Rest, in_thread

T = TypeVar("T")

#: The most columns in one batch, and the most bytes of their values; one larger value is alone.
BATCH_COLUMNS: Final = 200
BATCH_BYTES: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class Read:
    """A request for the columns of these slices."""

    wanted: tuple[Wanted, ...]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """A request to apply this batch unconditionally, and `more` batches, which need not wait for it."""

    batch: Batch
    more: tuple[Batch, ...] = ()

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The first batch and `more`."""
        return (self.batch, *self.more)


@dataclass(frozen=True, slots=True)
class Commit:
    """A request to apply this batch if every expectation is met."""

    batch: Batch
    expects: tuple[Expectation, ...]


@dataclass(frozen=True, slots=True)
class LocalCall:
    """A request to make a call that may wait for the disk of this machine; a task makes it in a thread.

    A task that is cancelled waits for its end, so it must not wait for what may never come: steps `Rest` for that. Its
    errors are not thrown into the steps, but reach the caller of the runner.
    """

    call: Callable[[], object]


Request = Read | Send | Commit | Rest | LocalCall
#: A generator's type cannot give each request its own answer type; the functions below do.
Steps = Generator[Request, Any, T]


def read(*wanted: Wanted, exact: bool = False) -> Steps[list[list[Column]]]:
    """The columns of several slices; each slice as it was at some moment of the read.

    With `exact` each slice is linearizable with all commits, as in `Store.read`.
    """
    found: list[list[Column]] = yield Read(wanted, exact)
    return found


def read_one(wanted: Slice | Named, *, exact: bool = False) -> Steps[list[Column]]:
    """The columns of one slice."""
    found = yield from read(wanted, exact=exact)
    return found[0]


def read_column(row: str, name: Name, *, exact: bool = False) -> Steps[Column | None]:
    """One column by its name; None if it does not exist."""
    found = yield from read_one(Named(row, (name,)), exact=exact)
    return found[0] if found else None


def commit(batch: Batch, expects: tuple[Expectation, ...]) -> Steps[Outcome]:
    """Committed if the batch was applied, otherwise Refused, with the present values of all expected columns."""
    outcome: Outcome = yield Commit(batch, expects)
    return outcome


def call_local(call: Callable[[], T]) -> Steps[T]:
    """The result of a call that may wait for the disk of this machine."""
    result: T = yield LocalCall(call)
    return result


def batches_within(sizes: Sequence[int]) -> Iterator[slice]:
    """The places of values of these sizes, in bytes, that go into one batch each; a larger one is alone."""
    first = total = 0
    for place, size in enumerate(sizes):
        if place > first and (place - first >= BATCH_COLUMNS or total + size > BATCH_BYTES):
            yield slice(first, place)
            first, total = place, 0
        total += size
    if sizes:
        yield slice(first, len(sizes))


@dataclass(frozen=True, slots=True)
class Client:
    """The process that runs steps: its name, its clock, its random numbers, and the observers of what it finds.

    `now`: its estimate of the store's time, in microseconds since 1970.
    """

    name: str
    now: Callable[[], int]
    id_at: Callable[[int], Id] = ids.at
    nonce: Callable[[], Nonce] = ids.nonce
    observers: Observers = UNOBSERVED

    def report_read_back(self, row: str, operation: str, *, applied: bool) -> bool:
        """Notify the observers of what reading a row has shown of a commit of unknown outcome; returns `applied`."""
        report_read_back(self.observers, row, operation, applied=applied)
        return applied


def report_read_back(observers: Observers, row: str, operation: str, *, applied: bool) -> None:
    """Notify observers of what reading a row has shown of a commit of unknown outcome."""
    if observers.on:
        observers.notify(OutcomeReadBack(row, operation, applied))


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request: a value, or the error that it ended with."""

    value: object = None
    error: BaseException | None = None

    def into(self, steps: Steps[T]) -> Request:
        """Send or throw it into the steps; returns their next request. StopIteration carries their result."""
        return steps.send(self.value) if self.error is None else steps.throw(self.error)


def run(steps: Steps[T], store: Store, observers: Observers = UNOBSERVED) -> T:
    """Carry out each request against the store, in this thread; returns the steps' result."""
    answer = Answer()
    try:
        while True:
            request = answer.into(steps)
            answer = carry_out(request, store, observers)
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        steps.close()


def carry_out(request: Request, store: Store, observers: Observers = UNOBSERVED) -> Answer:
    """Carry out one request, in this thread; the answer holds an error of the store, and other errors are raised.

    That the store was closed is an answer too: the outcome of the commit before it may be unknown.
    """
    if observers.on:
        return _observed(request, store, observers)
    try:
        return Answer(perform(request, store))
    except (StoreError, Closed) as error:
        return Answer(error=error)


def _observed(request: Request, store: Store, observers: Observers) -> Answer:
    began = observers.monotonic()
    try:
        answer = carry_out(request, store)
    except BaseException as error:
        _notify(observers, request, error, began)
        raise
    _notify(observers, request, answer.error or answer.value, began)
    return answer


def perform(request: Request, store: Store) -> object:
    """The answer to one request."""
    match request:
        case Read(wanted, exact):
            return store.read(wanted, exact=exact)
        case Commit(batch, expects):
            return store.commit(batch, expects)
        case Send(batch, more):
            store.send(batch, *more)
        case Rest(wakeup, until):
            wakeup.wait(until)
        case LocalCall(call):
            return call()
    return None


async def arun(steps: Steps[T], store: AsyncStore, observers: Observers = UNOBSERVED) -> T:
    """As `run`, in a task.

    A cancellation during a request to the store is raised only after the store has answered and the steps have
    processed the answer, because a commit that was sent cannot be taken back. It ends a rest at once.
    """
    answer, finishing = Answer(), DeferredCancellation()
    try:
        while True:
            request = answer.into(steps)
            finishing.raise_if_cancelled()
            if isinstance(request, Rest):
                answer = await _arest(request)
                continue
            attempt = _aobserved(request, store, observers) if observers.on else _aattempt(request, store)
            answer = await finishing.wait_for(attempt)
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        steps.close()
        finishing.raise_if_cancelled()


async def _arest(rest: Rest) -> Answer:
    await rest.wakeup.wait_in_task(rest.until)
    return Answer()


async def _aattempt(request: Read | Send | Commit | LocalCall, store: AsyncStore) -> Answer:
    try:
        return Answer(await _aperform(request, store))
    except (StoreError, Closed) as error:
        return Answer(error=error)


async def _aobserved(request: Read | Send | Commit | LocalCall, store: AsyncStore, observers: Observers) -> Answer:
    began = observers.monotonic()
    try:
        answer = await _aattempt(request, store)
    except BaseException as error:
        _notify(observers, request, error, began)
        raise
    _notify(observers, request, answer.error or answer.value, began)
    return answer


async def _aperform(request: Read | Send | Commit | LocalCall, store: AsyncStore) -> object:
    match request:
        case Read(wanted, exact):
            return await store.read(wanted, exact=exact)
        case Commit(batch, expects):
            return await store.commit(batch, expects)
        case Send(batch, more):
            await store.send(batch, *more)
        case LocalCall(call):
            return await in_thread(call)
    return None


def _notify(observers: Observers, request: Request, answer: object, began: MonotonicUs) -> None:
    """Notify observers of a request to the store, and of its answer or the error that was raised."""
    columns = 0
    match request:
        case Read(wanted):
            kind, rows = "read", [part.row for part in wanted]
            if isinstance(answer, list):
                columns = sum(map(len, answer))
        case Send():
            kind, rows = "send", [batch.row for batch in request.batches]
            columns = sum(len(batch.puts) + len(batch.deletes) for batch in request.batches)
        case Commit(batch):
            kind, rows, columns = "commit", [batch.row], len(batch.puts) + len(batch.deletes)
        case Rest() | LocalCall():
            return
    error = answer if isinstance(answer, BaseException) else None
    took = observers.monotonic() - began
    named = tuple(dict.fromkeys(rows))
    observers.notify(
        RequestDone(
            queue=observers.queue,
            kind=kind,
            rows=named,
            columns=columns,
            outcome=_outcome_of(answer),
            took=took,
            error=error,
        )
    )


def _outcome_of(answer: object) -> str:
    match answer:
        case Committed():
            return "committed"
        case Refused():
            return "refused"
        case OutcomeUnknown():
            return "unknown"
        case BaseException():
            return "failed"
    return "done"
