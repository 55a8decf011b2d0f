"""How mistakes are planted: in the code, or between processes and the store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from astyqueue.errors import OutcomeUnknown
from astyqueue.protocol.columns import Type
from astyqueue.protocol.steps import Commit, Read, Send
from astyqueue.store import Refused
from astyqueue.testing.simulation import Fault, Judged, Meddling, honest, simulate
from astyqueue.testing.simulation.cluster import Hear
from astyqueue.testing.simulation.weather import GRACE

Asked = Read | Send | Commit
Forward = Callable[[Asked, Hear], None]
Patches = contextlib.AbstractContextManager[object]


@dataclass(frozen=True, slots=True)
class Planted:
    """A mistake: what it changes in the code, or between processes and the store.

    It is to be noticed `within` so many seeds, wherever one begins. The tests begin at `first`, where it is noticed soon.
    """

    name: str
    within: int
    patches: Callable[[], list[Patches]] = list
    meddling: Meddling = honest
    grace_us: int = GRACE
    always: frozenset[Fault] = frozenset()
    first: int = 0

    def play(self, seed: int, only: frozenset[str] | None = None) -> Judged:
        """Play a seed, or these parts of its world, with the mistake in place."""
        with contextlib.ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            return simulate(seed, meddling=self.meddling, grace_us=self.grace_us, always=self.always, only=only)

    def caught(self, first: int, most: int) -> Judged | None:
        """The first of so many seeds that shows it."""
        played = (self.play(seed) for seed in range(first, first + most))
        return next((judged for judged in played if judged.violations), None)


def asking_otherwise(change: Callable[[Asked], Asked]) -> Meddling:
    def meddle(asked: Asked, forward: Forward, hear: Hear) -> None:
        forward(change(asked), hear)

    return meddle


def without(kind: Type) -> Meddling:
    """Commits without their expectations on columns of this type, of which a refusal tells as if they held."""

    def meddle(asked: Asked, forward: Forward, hear: Hear) -> None:
        if not isinstance(asked, Commit):
            forward(asked, hear)
            return
        kept = tuple(each for each in asked.expects if each.name.type != kind)

        def completed(answer: object) -> None:
            hear(Refused({**dict(asked.expects), **answer.present}) if isinstance(answer, Refused) else answer)

        forward(replace(asked, expects=kept), completed)

    return meddle


def unknown(asked: Asked, answer: object) -> bool:
    """Whether this is a commit of which nobody knows whether it was done."""
    return isinstance(asked, Commit) and isinstance(answer, OutcomeUnknown)
