"""Queues for what our ancestors got wrong, or tested, on every store; processes that die or are too slow."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import pytest

from astyqueue import MessageQueue
from astyqueue.protocol.steps import Commit, Request
from astyqueue.store import Store
from astyqueue.testing import Faulty, TimeMachine
from tests.support.places import ONE_ROW, Place

#: Opens the queue in what might be a process of its own: `opens(store, time_shards=30)`.
Opens = Callable[..., MessageQueue]


@pytest.fixture
def store(place: Place, clock: TimeMachine) -> Store:
    return place.store(clock)


@pytest.fixture
def opens(clock: TimeMachine, store: Store) -> Opens:
    def opened(on: Store | None = None, **options: object) -> MessageQueue:
        builder = MessageQueue.builder().store(on or store).name("jobs").clock(clock)
        return builder.options(**{"lease": "30s"} | ONE_ROW | options).build()

    return opened


@pytest.fixture
def queue(opens: Opens) -> Iterator[MessageQueue]:
    with opens() as opened:
        yield opened


class Died(BaseException):
    """The process is no more; nothing of it runs on."""


class Mortal(Faulty):
    """The store of a process that dies at a request: just before it is done, or just after."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._left = 0
        self._done = False
        self.died = False

    def dies_at(self, request: int, *, done: bool) -> None:
        """From now on, at the request with this number, counted from 1."""
        self._left, self._done = request, done

    def perform(self, request: Request) -> object:
        self._left -= 1
        if self.died or (self._left == 0 and not self._done):
            self._die()
        answer = super().perform(request)
        if self._left == 0:
            self._die()
        return answer

    def _die(self) -> None:
        self.died = True
        raise Died


class Slow(Faulty):
    """The store of a process that has read all it wants, and pauses while others act before its first commit."""

    def __init__(self, store: Store, others: Callable[[], object]) -> None:
        super().__init__(store)
        self._others: Callable[[], object] | None = others

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit) and self._others:
            others, self._others = self._others, None
            others()
        return super().perform(request)


def deaths(
    opens: Callable[..., MessageQueue], store: Store, doing: Callable[[MessageQueue], object]
) -> Iterator[tuple[int, bool]]:
    """Have one process after the other do this and die at a later request, until one gets through."""
    for request, done in itertools.product(range(1, 100), (False, True)):
        if not _dies(opens, store, doing, request=request, done=done):
            assert request > 1
            return
        yield request, done


def _dies(
    opens: Callable[..., MessageQueue],
    store: Store,
    doing: Callable[[MessageQueue], object],
    *,
    request: int,
    done: bool,
) -> bool:
    mortal = Mortal(store)
    queue = opens(mortal)
    mortal.dies_at(request, done=done)
    with contextlib.suppress(Died):
        doing(queue)
    return mortal.died


def everything_now(queue: MessageQueue) -> list[object]:
    """The bodies of all that is due, each acked as it comes."""
    found: list[object] = []
    while batch := queue.receive(200):
        with batch:
            found += [delivery.body for delivery in batch]
    return found


def everything(queue: MessageQueue, clock: TimeMachine) -> list[object]:
    """The bodies of all that comes from now on, however late, each acked as it comes; three hours pass."""
    found = everything_now(queue)
    for _ in range(3):
        clock.advance("1h")
        found += everything_now(queue)
    return found
