"""The faults of actors while every order of their steps is explored, and how many orders there were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypedDict

from tests.modelcheck.executor import Scenario
from tests.modelcheck.explorer import Exploration, explore


class Faults(TypedDict, total=False):
    """How often each may happen in one order of events."""

    crashes: int
    unknowns: int
    pauses: int


PLAIN: Final[Faults] = {}
CRASH: Final[Faults] = {"crashes": 1}
CRASHES: Final[Faults] = {"crashes": 2}
UNKNOWN: Final[Faults] = {"unknowns": 1}
UNKNOWNS: Final[Faults] = {"unknowns": 2}
PAUSE: Final[Faults] = {"pauses": 1}


def named(faults: Faults) -> str:
    return "-".join(name if number == 1 else f"{name}{number}" for name, number in faults.items()) or "nothing"


def played(make: Callable[[], Scenario], faults: Faults, *, note: str = "") -> Exploration:
    explored = explore(make, isolated=True, limit=20_000, **faults)
    print(f"{getattr(make, '__name__', 'unguarded')}, {named(faults)} befalls: {explored}{note}")  # noqa: T201 - how much was explored is part of the proof
    return explored
