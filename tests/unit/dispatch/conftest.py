"""What the tests of dispatchers have in common: nothing they start outlives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from astyqueue.clock import Clock, SystemClock
from astyqueue.observe.observers import Observer
from astyqueue.queue.hooks import Hook
from astyqueue.store import Store
from astyqueue.testing import TimeMachine
from tests.support.places import Place
from tests.unit.dispatch.stage import Crew, Stage

Stages = Callable[..., Stage]


@pytest.fixture
def stages(place: Place) -> Iterator[Stages]:
    """Makes stages; their dispatchers are stopped at the end."""
    made: list[Stage] = []

    def stage(
        clock: Clock | None = None,
        store: Store | None = None,
        *,
        hooks: Iterable[Hook] = (),
        observers: Iterable[Observer] = (),
        **options: object,
    ) -> Stage:
        clock = clock or SystemClock()
        made.append(Stage(clock, store or place.store(clock), hooks=hooks, observers=observers, **options))
        return made[-1]

    yield stage
    for one in made:
        for dispatcher in one.started:
            dispatcher.stop()


@pytest.fixture
def stage(stages: Stages) -> Stage:
    """A queue in real time."""
    return stages()


@pytest.fixture
def still(stages: Stages, clock: TimeMachine) -> Stage:
    """A queue whose time stands still until the test moves it."""
    return stages(clock)


@pytest.fixture
def crew(clock: TimeMachine) -> Iterator[Crew]:
    made = Crew(clock)
    yield made
    for dispatcher in made.started:
        dispatcher.stop()
