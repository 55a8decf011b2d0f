"""The network between replicas: delays, drops, duplicates and reorders messages, also beyond their sender's timeout."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from astyqueue.units import SECOND
from tests.simulation.cassandra.replica import Replica
from tests.simulation.engine.event_loop import EventLoop
from tests.simulation.engine.fault_profile import FaultProfile

T = TypeVar("T")

#: One way between two nodes, in microseconds: usually between the first two; a late message takes up to the third.
_QUICK: Final = 300
_SLOW: Final = 1_500
_LATE: Final = 8 * SECOND
#: How long a message of a node to itself takes.
_AT_HOME: Final = 50
#: How long a coordinator waits for answers.
PATIENCE: Final = SECOND


def _ignore(_: Replica) -> None:
    """Do nothing about a replica that did not answer."""


@dataclass(slots=True)
class QuorumRequest:
    """A request of a coordinator: let these replicas do this, until `need` have answered well, all have, or time is up.

    `missed` is called for each that has not answered in time. The coordinator gets pairs of replica and answer, in the
    order of arrival.
    """

    targets: list[Replica]
    action: Callable[[Replica], object]
    need: int
    counts: Callable[[object], bool] = lambda _: True
    missed: Callable[[Replica], None] = _ignore
    patience: int = PATIENCE
    writes: bool = False


@dataclass(slots=True)
class Delay:
    """A request of a coordinator: go on after `delay` microseconds."""

    delay: int


Answers = list[tuple[Replica, Any]]
Coordinating = Generator[QuorumRequest | Delay, Any, T]


@dataclass(slots=True, eq=False)
class _PendingAnswers:
    """The answers to one request, as they arrive."""

    ask: QuorumRequest
    go_on: Callable[[object], None]
    answers: Answers = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    good: int = 0
    over: bool = False


class Network:
    """Carries messages between nodes, with the faults of the profile."""

    def __init__(self, event_loop: EventLoop, profile: FaultProfile, rng: random.Random) -> None:
        """All nodes reach each other."""
        self.event_loop = event_loop
        self.profile = profile
        self.partitioned: set[frozenset[int]] = set()
        self.calm = False
        self._rng = rng

    def latency(self) -> int:
        """How long a message takes."""
        rng = self._rng.random
        if not self.calm and self.profile.late and rng() < self.profile.late:
            return int(rng() ** 3 * _LATE)
        return _QUICK + int(rng() * (_SLOW - _QUICK))

    def deliver(self, ends: tuple[Replica, Replica], arrive: Callable[..., None], *values: object) -> None:
        """Deliver a message of the first node to the second, once, never or twice."""
        producer, receiver = ends
        if producer is receiver:
            self.event_loop.call_later(_AT_HOME, self._arrive, receiver, arrive, values)
        elif self.calm:
            self.event_loop.call_later(self.latency(), self._arrive, receiver, arrive, values)
        elif not self._lost(producer, receiver):
            self.event_loop.call_later(self.latency(), self._arrive, receiver, arrive, values)
            if self.profile.duplicate and self._rng.random() < self.profile.duplicate:
                self.event_loop.call_later(self.latency() * 5, self._arrive, receiver, arrive, values)

    def _lost(self, producer: Replica, receiver: Replica) -> bool:
        if self.profile.drop and self._rng.random() < self.profile.drop:
            return True
        return bool(self.partitioned) and frozenset((producer.number, receiver.number)) in self.partitioned

    def _arrive(self, receiver: Replica, arrive: Callable[..., None], values: tuple[object, ...]) -> None:
        if not receiver.up:
            return
        if receiver.paused_until > self.event_loop.now:
            self.event_loop.call_at(receiver.paused_until + self.latency(), self._arrive, receiver, arrive, values)
        else:
            arrive(*values)

    def coordinate(self, local: Replica, steps: Coordinating[T], done: Callable[[T | Exception], None]) -> None:
        """Carry out a coordinator's steps on a node; if the node crashes meanwhile, `done` is never called."""
        life = local.life

        def go_on(answer: object) -> None:
            if local.life != life or not local.up:
                return
            if local.paused_until > self.event_loop.now:
                self.event_loop.call_at(local.paused_until, go_on, answer)
                return
            try:
                request = steps.send(answer)
            except StopIteration as finished:
                done(finished.value)
            except Exception as error:  # noqa: BLE001 - any error of a coordinator is the answer to its client
                done(error)
            else:
                self._begin(local, request, go_on)

        go_on(None)

    def _begin(self, local: Replica, request: QuorumRequest | Delay, go_on: Callable[[object], None]) -> None:
        if isinstance(request, Delay):
            self.event_loop.call_later(request.delay, go_on, None)
            return
        pending = _PendingAnswers(request, go_on)
        for target in request.targets:
            self.deliver((local, target), self._do, local, target, pending)
        self.event_loop.call_later(request.patience, self._time_is_up, pending)

    def _do(self, local: Replica, target: Replica, pending: _PendingAnswers) -> None:
        """A message has reached a replica, which applies and answers a write only once that is on its disk."""
        if pending.ask.writes and self.profile.sync_us and not self.calm:
            self.event_loop.call_later(
                int(self._rng.random() * self.profile.sync_us), self._synced, (local, target), target.life, pending
            )
        else:
            self.deliver((target, local), self._answered, pending, target, pending.ask.action(target))

    def _synced(self, ends: tuple[Replica, Replica], life: int, pending: _PendingAnswers) -> None:
        local, target = ends
        if target.life == life:
            self.deliver((target, local), self._answered, pending, target, pending.ask.action(target))

    def _answered(self, pending: _PendingAnswers, target: Replica, answer: object) -> None:
        if target.number in pending.seen:
            return
        pending.seen.add(target.number)
        pending.answers.append((target, answer))
        pending.good += pending.ask.counts(answer)
        if not pending.over and (pending.good >= pending.ask.need or len(pending.answers) == len(pending.ask.targets)):
            pending.over = True
            pending.go_on(list(pending.answers))

    def _time_is_up(self, pending: _PendingAnswers) -> None:
        for replica in pending.ask.targets:
            if replica.number not in pending.seen:
                pending.ask.missed(replica)
        if not pending.over:
            pending.over = True
            pending.go_on(list(pending.answers))
