"""Threads of one process that receive from one row: many at once, and one with and without the claimer."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Final

from astyqueue import MessageQueue
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import HEADER
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Steps
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Batch, Column, Expectation, Outcome, Spread, Store, Wanted
from astyqueue.stores import open_store
from astyqueue.units import BEGINNING, SECOND, MonotonicUs
from benchmarks import throughput
from benchmarks.figures import Run
from benchmarks.row_churn import snapshot_of
from benchmarks.target import CLOCK, ONE_ROW, QUEUE, Target
from benchmarks.workload import NotMeasured, Tally

_BODY: Final = 200
#: What a lone consumer asks for at a time.
_TAKES: Final = 10
#: A consumer that waits longer than this for a message has found the row empty.
_WAIT: Final = 1


def many_consumers(target: Target, messages: int, consumers: int) -> Run:
    """Threads that each receive one message at a time and ack it, until none is left."""
    with target.fresh() as url:
        counting = Counting(open_store(url, clock=CLOCK))
        builder: QueueBuilder[MessageQueue] = MessageQueue.builder()
        with builder.store(counting).name(QUEUE).options(**ONE_ROW).build() as queue:
            throughput.send_per_s(queue, messages, _BODY)
            tally = Tally(messages, CLOCK)
            began = CLOCK.monotonic()
            taken, ended = _taken_by(queue, tally, consumers)
            tally.check()
            throughput.check_empty(queue)
        attempts, commits = counting.counted()
        counting.close()
    return {
        "consumers_per_s": messages * SECOND / (ended - began),
        "lock_attempts_per_message": attempts / messages,
        "commits_per_message": commits / messages,
        "fastest_to_slowest_consumer": max(taken) / max(1, min(taken)),
    }


def _taken_by(queue: MessageQueue, tally: Tally, consumers: int) -> tuple[list[int], MonotonicUs]:
    """How many each consumer got, and when the last message was acked."""
    counts = [0] * consumers
    last = [BEGINNING] * consumers
    failures: list[BaseException] = []

    def take(number: int) -> None:
        while not tally.is_complete:
            if got := _received(queue, tally):
                counts[number] += got
                last[number] = CLOCK.monotonic()

    threads = [threading.Thread(target=_guarded(take, failures), args=(number,)) for number in range(consumers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        message = f"{len(failures)} consumers failed: {failures[0]!r}"
        raise NotMeasured(message)
    return counts, max(last)


def _received(queue: MessageQueue, tally: Tally) -> int:
    """Receive one message and ack it; how many that were."""
    with queue.receive(limit=1, wait=_WAIT) as received:
        for delivery in received:
            tally.mark(throughput.number_of(delivery))
    return len(received)


def _guarded(take: Callable[[int], None], failures: list[BaseException]) -> Callable[[int], None]:
    def guarded(number: int) -> None:
        try:
            take(number)
        except Exception as error:  # noqa: BLE001 - the thread that waits for it reports the failure
            failures.append(error)

    return guarded


def one_consumer(target: Target, messages: int) -> tuple[float, float]:
    """Messages a second that one thread receives and acks, ten at a time: through the claimer, and by the bare steps.

    The two take turns, ten by ten, so that what slows the machine slows both.
    """
    with target.fresh() as url, _one_row(url, "combined") as combined, _one_row(url, "alone") as alone:
        both = [(queue, Tally(messages, CLOCK)) for queue in (combined, alone)]
        for queue, _ in both:
            throughput.send_per_s(queue, messages, _BODY)
        consumers: list[Callable[[], None]] = [Combined(*both[0]).take, Alone(*both[1]).take]
        spent = [0, 0]
        while not all(tally.is_complete for _, tally in both):
            spent = [before + _taken(take) for before, take in zip(spent, consumers, strict=True)]
        for _, tally in both:
            tally.check()
    combining, bare = (messages * SECOND / taken for taken in spent)
    return combining, bare


def _one_row(url: str, name: str) -> MessageQueue:
    return MessageQueue.builder().store(url).name(name).options(**ONE_ROW).build()


def _taken(take: Callable[[], None]) -> int:
    began = CLOCK.monotonic()
    take()
    return CLOCK.monotonic() - began


class Combined:
    """Takes through the claimer."""

    def __init__(self, queue: MessageQueue, tally: Tally) -> None:
        """From this queue."""
        self._queue = queue
        self._tally = tally

    def take(self) -> None:
        """Receive a few, and ack them on leaving."""
        if self._tally.is_complete:
            return
        with self._queue.receive(limit=_TAKES, wait=_WAIT) as received:
            for delivery in received:
                self._tally.mark(throughput.number_of(delivery))


class Alone:
    """Takes by the bare steps: a claim, and a settle of what it brought."""

    def __init__(self, queue: MessageQueue, tally: Tally) -> None:
        """From this queue."""
        self._queue = queue
        self._tally = tally
        self._snapshot = snapshot_of(queue)

    def take(self) -> None:
        """Claim a few, and settle them."""
        if not self._tally.is_complete:
            self._queue.run(self._steps())

    def _steps(self) -> Steps[None]:
        behaviour, process = self._queue.settings.behaviour, self._queue.core.process
        claimed = yield from claim(
            process, self._snapshot, ClaimRequest(_TAKES, behaviour.lease_us, behaviour.max_attempts)
        )
        for taken in claimed.claims:
            throughput.mark_all(taken.held, self._tally)
            outcomes = {held.entry.id: ACK for held in taken.held}
            settled = yield from settle(process, self._snapshot.row, SettleRequest(taken.timer, outcomes))
            for settle_plan in settled.done:
                self._snapshot.settled(settle_plan.timer_change)


class Counting:
    """Hands everything on. A commit that expects the header is an attempt at the row's lock, whatever comes of it."""

    def __init__(self, store: Store) -> None:
        """Count what goes to this store."""
        self._store = store
        self._attempts: Final = itertools.count()
        self._commits: Final = itertools.count()

    @property
    def spread(self) -> Spread:
        """As the store behind it."""
        return self._store.spread

    @property
    def at_once(self) -> int:
        """As the store below."""
        return self._store.at_once

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """As the store behind it."""
        return self._store.read(wanted, exact=exact)

    def send(self, batch: Batch, *more: Batch) -> None:
        """As the store behind it."""
        self._store.send(batch, *more)

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """As the store behind it, and counted."""
        next(self._commits)
        if any(expected.name == HEADER for expected in expects):
            next(self._attempts)
        return self._store.commit(batch, expects)

    def close(self) -> None:
        """As the store behind it."""
        self._store.close()

    def counted(self) -> tuple[int, int]:
        """Attempts at a lock, and all commits; this ends the counting."""
        return next(self._attempts), next(self._commits)
