"""How a mutant changes the code, or the requests between processes and the store."""

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
from tests.simulation.cassandra.cluster import OnAnswer
from tests.simulation.engine.client import Interceptor, original
from tests.simulation.engine.fault_profile import GRACE
from tests.simulation.engine.simulation import SimulationResult, simulate

StoreRequest = Read | Send | Commit
Forward = Callable[[StoreRequest, OnAnswer], None]
Patches = contextlib.AbstractContextManager[object]


#: Errors which show that a mutant no longer fits the code.
_UNFIT: Final = re.compile(r" failed: (Type|Attribute|Name)Error")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake: what it changes in the code, or between processes and the store.

    It must be detected `within` this number of seeds, wherever one begins. The tests begin at `first`, where it is
    noticed soon. `lock` and `idle` are as of `simulate`.
    """

    name: str
    within: int
    patches: Callable[[], list[Patches]] = list
    interceptor: Interceptor = original
    grace_us: int = GRACE
    first: int = 0
    lock: str | None = None
    idle: bool = False

    def play(self, seed: int, only: frozenset[str] | None = None) -> SimulationResult:
        """Play a seed, or these parts of its simulation, with the mistake in place.

        AssertionError if the mistake does not fit the code any more.
        """
        with contextlib.ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            result = simulate(
                seed,
                interceptor=self.interceptor,
                grace_us=self.grace_us,
                only=only,
                lock=self.lock,
                idle=self.idle,
            )
        if unfit := [violation for violation in result.violations if _UNFIT.search(violation)]:
            message = f"{self.name!r} patches code that has changed since: {unfit[0]}"
            raise AssertionError(message)
        return result

    def detected(self, first: int, most: int) -> SimulationResult | None:
        """The result of the first of `most` seeds that detects the mutant; None if none does."""
        played = (self.play(seed) for seed in range(first, first + most))
        return next((result for result in played if result.violations), None)


def asking_otherwise(change: Callable[[StoreRequest], StoreRequest]) -> Interceptor:
    def intercept(request: StoreRequest, forward: Forward, on_answer: OnAnswer) -> None:
        forward(change(request), on_answer)

    return intercept


def without(kind: Type) -> Interceptor:
    """Commits without their expectations on columns of this type, which a refusal reports as if they held."""

    def intercept(request: StoreRequest, forward: Forward, on_answer: OnAnswer) -> None:
        if not isinstance(request, Commit):
            forward(request, on_answer)
            return
        kept = tuple(each for each in request.expects if each.name.type != kind)

        def completed(answer: object) -> None:
            on_answer(Refused({**dict(request.expects), **answer.present}) if isinstance(answer, Refused) else answer)

        forward(replace(request, expects=kept), completed)

    return intercept


def unknown(request: StoreRequest, answer: object) -> bool:
    """Whether this is a commit of unknown outcome."""
    return isinstance(request, Commit) and isinstance(answer, OutcomeUnknown)
