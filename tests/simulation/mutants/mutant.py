"""How mistakes are planted in the code, or between processes and the store."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from astyqueue.errors import OutcomeUnknown
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.steps import Commit, Read, Send
from astyqueue.store import Refused
from tests.simulation.cassandra.cluster import Hear
from tests.simulation.engine.client import Meddling, honest
from tests.simulation.engine.fault_profile import GRACE
from tests.simulation.engine.simulation import Judged, simulate

Asked = Read | Send | Commit
Forward = Callable[[Asked, Hear], None]
Patches = contextlib.AbstractContextManager[object]


#: Errors of a process that come from the planting, not from the mistake.
_UNFIT: Final = re.compile(r" failed: (Type|Attribute|Name)Error")


@dataclass(frozen=True, slots=True)
class Planted:
    """A mistake: what it changes in the code, or between processes and the store.

    It must be noticed `within` so many seeds, wherever one begins. The tests begin at `first`, where it is noticed
    soon.
    """

    name: str
    within: int
    patches: Callable[[], list[Patches]] = list
    meddling: Meddling = honest
    grace_us: int = GRACE
    first: int = 0
    lock: str | None = None

    def play(self, seed: int, only: frozenset[str] | None = None) -> Judged:
        """Play a seed, or these parts of its world, with the mistake in place.

        AssertionError if the mistake does not fit the code any more.
        """
        with contextlib.ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            judged = simulate(seed, meddling=self.meddling, grace_us=self.grace_us, only=only, lock=self.lock)
        if unfit := [told for told in judged.violations if _UNFIT.search(told)]:
            message = f"{self.name!r} is planted in code that has changed since: {unfit[0]}"
            raise AssertionError(message)
        return judged

    def caught(self, first: int, most: int) -> Judged | None:
        """The judgement of the first of so many seeds that shows the mistake; None if none does."""
        played = (self.play(seed) for seed in range(first, first + most))
        return next((judged for judged in played if judged.violations), None)


def asking_otherwise(change: Callable[[Asked], Asked]) -> Meddling:
    def meddle(asked: Asked, forward: Forward, hear: Hear) -> None:
        forward(change(asked), hear)

    return meddle


def without(kind: Type) -> Meddling:
    """Commits without their expectations on columns of this type, which a refusal reports as if they held."""

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
    """Whether this is a commit of unknown outcome."""
    return isinstance(asked, Commit) and isinstance(answer, OutcomeUnknown)
