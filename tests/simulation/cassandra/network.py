"""The network between replicas: delays, drops, duplicates and reorders messages, also beyond their sender's timeout."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from astyqueue.units import SECOND
from tests.simulation.cassandra.replica import Replica
from tests.simulation.engine.event_loop import Timeline
from tests.simulation.engine.fault_profile import Weather

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
class Ask:
    """A request of a coordinator: let these replicas do this, until `need` have answered well, all have, or time is up.

    `missed` is called for each that has not answered in time. The coordinator gets pairs of replica and answer, in the
    order of arrival.
    """

    targets: list[Replica]
    does: Callable[[Replica], object]
    need: int
    well: Callable[[object], bool] = lambda _: True
    missed: Callable[[Replica], None] = _ignore
    patience: int = PATIENCE
    writes: bool = False


@dataclass(slots=True)
class Later:
    """A request of a coordinator: go on after so long."""

    delay: int


Answers = list[tuple[Replica, Any]]
Coordinating = Generator[Ask | Later, Any, T]


@dataclass(slots=True, eq=False)
class _Gathering:
    """The answers to one request, as they arrive."""

    ask: Ask
    go_on: Callable[[object], None]
    answers: Answers = field(default_factory=list)
    heard: set[int] = field(default_factory=set)
    good: int = 0
    over: bool = False


class Network:
    """Carries messages between nodes, with the faults of the world's weather."""

    def __init__(self, timeline: Timeline, weather: Weather, chance: random.Random) -> None:
        """All nodes reach each other."""
        self.timeline = timeline
        self.weather = weather
        self.parted: set[frozenset[int]] = set()
        self.calm = False
        self._chance = chance

    def way(self) -> int:
        """How long a message takes."""
        chance = self._chance.random
        if not self.calm and self.weather.late and chance() < self.weather.late:
            return int(chance() ** 3 * _LATE)
        return _QUICK + int(chance() * (_SLOW - _QUICK))

    def carry(self, ends: tuple[Replica, Replica], arrive: Callable[..., None], *values: object) -> None:
        """Deliver a message of the first node to the second, once, never or twice."""
        sender, receiver = ends
        if sender is receiver:
            self.timeline.after(_AT_HOME, self._arrive, receiver, arrive, values)
        elif self.calm:
            self.timeline.after(self.way(), self._arrive, receiver, arrive, values)
        elif not self._lost(sender, receiver):
            self.timeline.after(self.way(), self._arrive, receiver, arrive, values)
            if self.weather.duplicate and self._chance.random() < self.weather.duplicate:
                self.timeline.after(self.way() * 5, self._arrive, receiver, arrive, values)

    def _lost(self, sender: Replica, receiver: Replica) -> bool:
        if self.weather.drop and self._chance.random() < self.weather.drop:
            return True
        return bool(self.parted) and frozenset((sender.number, receiver.number)) in self.parted

    def _arrive(self, receiver: Replica, arrive: Callable[..., None], values: tuple[object, ...]) -> None:
        if not receiver.up:
            return
        if receiver.paused_until > self.timeline.now:
            self.timeline.at(receiver.paused_until + self.way(), self._arrive, receiver, arrive, values)
        else:
            arrive(*values)

    def coordinate(self, home: Replica, steps: Coordinating[T], done: Callable[[T | Exception], None]) -> None:
        """Carry out a coordinator's steps on a node; if the node crashes meanwhile, `done` is never called."""
        life = home.life

        def go_on(answer: object) -> None:
            if home.life != life or not home.up:
                return
            if home.paused_until > self.timeline.now:
                self.timeline.at(home.paused_until, go_on, answer)
                return
            try:
                asked = steps.send(answer)
            except StopIteration as finished:
                done(finished.value)
            except Exception as error:  # noqa: BLE001 - any error of a coordinator is the answer to its client
                done(error)
            else:
                self._begin(home, asked, go_on)

        go_on(None)

    def _begin(self, home: Replica, asked: Ask | Later, go_on: Callable[[object], None]) -> None:
        if isinstance(asked, Later):
            self.timeline.after(asked.delay, go_on, None)
            return
        gathering = _Gathering(asked, go_on)
        for target in asked.targets:
            self.carry((home, target), self._do, home, target, gathering)
        self.timeline.after(asked.patience, self._time_is_up, gathering)

    def _do(self, home: Replica, target: Replica, gathering: _Gathering) -> None:
        """A message has reached a replica, which applies and answers a write only once that is on its disk."""
        if gathering.ask.writes and self.weather.sync_us and not self.calm:
            self.timeline.after(
                int(self._chance.random() * self.weather.sync_us), self._synced, (home, target), target.life, gathering
            )
        else:
            self.carry((target, home), self._answered, gathering, target, gathering.ask.does(target))

    def _synced(self, ends: tuple[Replica, Replica], life: int, gathering: _Gathering) -> None:
        home, target = ends
        if target.life == life:
            self.carry((target, home), self._answered, gathering, target, gathering.ask.does(target))

    def _answered(self, gathering: _Gathering, target: Replica, answer: object) -> None:
        if target.number in gathering.heard:
            return
        gathering.heard.add(target.number)
        gathering.answers.append((target, answer))
        gathering.good += gathering.ask.well(answer)
        if not gathering.over and (
            gathering.good >= gathering.ask.need or len(gathering.answers) == len(gathering.ask.targets)
        ):
            gathering.over = True
            gathering.go_on(list(gathering.answers))

    def _time_is_up(self, gathering: _Gathering) -> None:
        for replica in gathering.ask.targets:
            if replica.number not in gathering.heard:
                gathering.ask.missed(replica)
        if not gathering.over:
            gathering.over = True
            gathering.go_on(list(gathering.answers))
