"""What may befall those who act while every order of their steps is tried, and how much that came to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypedDict

from tests.modelcheck.executor import Scenario
from tests.modelcheck.explorer import Exploration, explore


class Befalls(TypedDict, total=False):
    """How often each may happen in one order of events."""

    crashes: int
    unknowns: int
    pauses: int


PLAIN: Final[Befalls] = {}
CRASH: Final[Befalls] = {"crashes": 1}
CRASHES: Final[Befalls] = {"crashes": 2}
UNKNOWN: Final[Befalls] = {"unknowns": 1}
UNKNOWNS: Final[Befalls] = {"unknowns": 2}
PAUSE: Final[Befalls] = {"pauses": 1}


def named(befalls: Befalls) -> str:
    return "-".join(name if number == 1 else f"{name}{number}" for name, number in befalls.items()) or "nothing"


def played(make: Callable[[], Scenario], befalls: Befalls, *, note: str = "") -> Exploration:
    explored = explore(make, isolated=True, limit=20_000, **befalls)
    print(f"{getattr(make, '__name__', 'unguarded')}, {named(befalls)} befalls: {explored}{note}")  # noqa: T201 - how much was explored is part of the proof
    return explored
