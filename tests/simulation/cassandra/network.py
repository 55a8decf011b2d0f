"""The network between replicas: delays, drops, duplicates and reorders messages, also beyond their sender's timeout."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from astyqueue.units import SECOND
from tests.simulation.cassandra.replica import Replica
from tests.simulation.engine.event_loop import Deadlines, EventLoop
from tests.simulation.engine.fault_profile import FaultProfile

T = TypeVar("T")

#: One way between two nodes, in microseconds: usually between the first two; a late message takes up to the third.
_QUICK: Final = 300
_SLOW: Final = 1_500
_SPREAD: Final = _SLOW - _QUICK
_LATE: Final = 8 * SECOND
#: How long a message of a node to itself takes.
_AT_HOME: Final = 50
#: How long a coordinator waits for answers.
PATIENCE: Final = SECOND


@dataclass(slots=True)
class QuorumRequest:
    """A request of a coordinator: let these replicas do this, until `need` have answered well, all have, or time is up.

    An answer is good if it `counts`, or any if that is None. `missed` is called for each replica that has not answered
    in time. The coordinator gets pairs of replica and answer, in the order of arrival.
    """

    targets: list[Replica]
    action: Callable[[Replica], object]
    need: int
    counts: Callable[[object], bool] | None = None
    missed: Callable[[Replica], None] | None = None
    patience: int = PATIENCE
    writes: bool = False


@dataclass(slots=True)
class Delay:
    """A request of a coordinator: go on after `delay` microseconds."""

    delay: int


Answers = list[tuple[Replica, Any]]
Coordinating = Generator[QuorumRequest | Delay, Any, T]


class _PendingAnswers:
    """The answers to one request of a coordinator, as they arrive, by the numbers of replicas.

    `met`: nothing is left to do when the coordinator has waited for as long as it does.
    """

    __slots__ = ("_answers", "_go_on", "_good", "_over", "ask", "local", "met")

    def __init__(self, ask: QuorumRequest, local: Replica, go_on: Callable[[object], None]) -> None:
        """None has come; `go_on` gets the answers to the node `local`."""
        self.ask = ask
        self.local = local
        self.met = False
        self._go_on = go_on
        self._answers: dict[int, tuple[Replica, Any]] = {}
        self._good = 0
        self._over = False

    def came(self, target: Replica, answer: object) -> None:
        """Take an answer, unless it is a duplicate; the coordinator goes on once it has enough of them."""
        answers, ask = self._answers, self.ask
        if target.number in answers:
            return
        answers[target.number] = target, answer
        if ask.counts is None or ask.counts(answer):
            self._good += 1
        all_came = len(answers) == len(ask.targets)
        if not self._over and (all_came or self._good >= ask.need):
            self._end()
        self.met = all_came or (self._over and ask.missed is None)

    def time_is_up(self) -> None:
        """Note which replicas have not answered; the coordinator goes on with the answers that it has."""
        if self.ask.missed is not None:
            for replica in self.ask.targets:
                if replica.number not in self._answers:
                    self.ask.missed(replica)
        if not self._over:
            self._end()

    def _end(self) -> None:
        self._over = True
        self._go_on(list(self._answers.values()))


class _Coordination(Generic[T]):
    """The steps of a coordinator on one node, which end when that crashes; `done` is called when they are over."""

    __slots__ = ("_done", "_life", "_local", "_network", "_steps")

    def __init__(
        self, network: Network, local: Replica, steps: Coordinating[T], done: Callable[[T | Exception], None]
    ) -> None:
        """No step was taken yet."""
        self._network = network
        self._local = local
        self._life = local.life
        self._steps = steps
        self._done = done

    def go_on(self, answer: object) -> None:
        """Take the next step, once the node is not paused any more."""
        local, network = self._local, self._network
        if local.life != self._life or not local.up:
            return
        if local.paused_until > network.event_loop.now:
            network.event_loop.call_at(local.paused_until, self.go_on, answer)
            return
        try:
            request = self._steps.send(answer)
        except StopIteration as finished:
            self._done(finished.value)
        except Exception as error:  # noqa: BLE001 - any error of a coordinator is the answer to its client
            self._done(error)
        else:
            network.begin(local, request, self.go_on)


class Network:
    """Carries messages between nodes, with the faults of the profile."""

    def __init__(self, event_loop: EventLoop, profile: FaultProfile, rng: random.Random) -> None:
        """All nodes reach each other."""
        self.event_loop = event_loop
        self.profile = profile
        self.partitioned: set[frozenset[int]] = set()
        self.calm = False
        self._random = rng.random
        self._plan = event_loop.plan
        self._drop, self._duplicate = profile.drop, profile.duplicate
        self._late, self._sync_us = profile.late, profile.sync_us
        self._patience: dict[int, Deadlines] = {}

    def end_faults(self) -> None:
        """From now on deliver each message once and soon, and let every write be on its disk at once."""
        self.calm = True
        self._drop = self._duplicate = self._late = 0
        self._sync_us = 0

    def latency(self) -> int:
        """How long a message takes."""
        if self._late and self._random() < self._late:
            return int(self._random() ** 3 * _LATE)
        return _QUICK + int(self._random() * _SPREAD)

    def _deliver(
        self, producer: Replica, receiver: Replica, arrive: Callable[..., None], values: tuple[object, ...]
    ) -> None:
        """Deliver a message of the first node to the second, once, never or twice."""
        if producer is receiver:
            self._plan(_AT_HOME, arrive, values)
            return
        if (self._drop and self._random() < self._drop) or (self.partitioned and self._apart(producer, receiver)):
            return
        delay = self.latency() if self._late else _QUICK + int(self._random() * _SPREAD)
        self._plan(delay, arrive, values)
        if self._duplicate and self._random() < self._duplicate:
            self._plan(self.latency() * 5, arrive, values)

    def _apart(self, producer: Replica, receiver: Replica) -> bool:
        return not self.calm and frozenset((producer.number, receiver.number)) in self.partitioned

    def _hold(self, receiver: Replica, arrive: Callable[..., None], values: tuple[object, ...]) -> None:
        """A message has reached a node that does not get it now: a paused one gets it later, one that is down never."""
        if receiver.up:
            self.event_loop.call_at(receiver.paused_until + self.latency(), arrive, *values)

    def coordinate(self, local: Replica, steps: Coordinating[T], done: Callable[[T | Exception], None]) -> None:
        """Carry out a coordinator's steps on a node; if the node crashes meanwhile, `done` is never called."""
        _Coordination(self, local, steps, done).go_on(None)

    def begin(self, local: Replica, request: QuorumRequest | Delay, go_on: Callable[[object], None]) -> None:
        """Begin what a coordinator on a node requests; it goes on with the answer."""
        if isinstance(request, Delay):
            self.event_loop.call_later(request.delay, go_on, None)
            return
        pending = _PendingAnswers(request, local, go_on)
        for target in request.targets:
            self._deliver(local, target, self._ask, (pending, target))
        deadlines = self._patience.get(request.patience)
        if deadlines is None:
            deadlines = self._patience[request.patience] = Deadlines(self.event_loop, request.patience)
        deadlines.set(pending)

    def _ask(self, pending: _PendingAnswers, target: Replica) -> None:
        """A message has reached a replica, which applies and answers a write only once that is on its disk."""
        if not target.up or target.paused_until > self.event_loop.now:
            self._hold(target, self._ask, (pending, target))
        elif self._sync_us and pending.ask.writes:
            delay = int(self._random() * self._sync_us)
            self.event_loop.call_later(delay, self._synced, pending, target, target.life)
        else:
            self._deliver(target, pending.local, self._answer, (pending, target, pending.ask.action(target)))

    def _synced(self, pending: _PendingAnswers, target: Replica, life: int) -> None:
        if target.life == life:
            self._deliver(target, pending.local, self._answer, (pending, target, pending.ask.action(target)))

    def _answer(self, pending: _PendingAnswers, target: Replica, answer: object) -> None:
        local = pending.local
        if not local.up or local.paused_until > self.event_loop.now:
            self._hold(local, self._answer, (pending, target, answer))
        else:
            pending.came(target, answer)
