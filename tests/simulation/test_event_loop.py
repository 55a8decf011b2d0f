"""The order of simulated events: a deadline is one of them, whether or not it has an event of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.simulation.engine.event_loop import START, Deadlines, EventLoop

_AHEAD = 50
#: Sets a deadline.
SetDeadline = Callable[["Awaited"], None]


@dataclass
class Awaited:
    """A deadline that notes when it passed unmet."""

    number: int
    event_loop: EventLoop
    noted: list[tuple[int, str]]
    met: bool = False

    def time_is_up(self) -> None:
        self.noted.append((self.event_loop.now, f"{self.number} is overdue"))


@dataclass
class Bench:
    """Events at random moments, half of which set a deadline that another one may meet."""

    rng: random.Random
    event_loop: EventLoop = field(default_factory=EventLoop)
    noted: list[tuple[int, str]] = field(default_factory=list)

    def play(self, set_deadline: SetDeadline) -> list[tuple[int, str]]:
        for number in range(60):
            self.event_loop.call_later(self.rng.randint(0, 300), self._begin, number, set_deadline)
        for latest in sorted(self.rng.sample(range(500), 20)):
            enough = len(self.noted) + self.rng.choice((3, 1_000))
            self.event_loop.run(partial(self._has_noted, enough), START + latest)
            self.noted.append((self.event_loop.now, "the run is over"))
        return self.noted

    def _has_noted(self, count: int) -> bool:
        return len(self.noted) >= count

    def _begin(self, number: int, set_deadline: SetDeadline) -> None:
        self.noted.append((self.event_loop.now, f"{number} begins"))
        awaited = Awaited(number, self.event_loop, self.noted)
        set_deadline(awaited)
        if self.rng.random() < 0.8:
            self.event_loop.call_later(self.rng.randint(0, 2 * _AHEAD), self._meet, awaited)

    def _meet(self, awaited: Awaited) -> None:
        awaited.met = True
        if self.rng.random() < 0.5:
            self.event_loop.recheck()


def _planned(event_loop: EventLoop) -> SetDeadline:
    """Deadlines that each have an event."""

    def pass_by(awaited: Awaited) -> None:
        if not awaited.met:
            awaited.time_is_up()

    return lambda awaited: event_loop.call_later(_AHEAD, pass_by, awaited)


@pytest.mark.parametrize("seed", range(100))
def test_deadlines_pass_as_if_each_had_an_event(seed: int) -> None:
    """In one order with the other events, and a run without further events ends with the last of them, met or not."""
    first, second = Bench(random.Random(seed)), Bench(random.Random(seed))
    assert first.play(Deadlines(first.event_loop, _AHEAD).set) == second.play(_planned(second.event_loop))
