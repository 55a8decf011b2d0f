"""The model checker: executes every interleaving of several actors, one after the other.

Operations are steps that yield at each request, so what several of them may do together is a tree: at every point one
of the unfinished actors goes on. `explore` searches that whole tree, depth first, each schedule in a scenario of its
own, and passes what happened to the scenario's check. Nothing is random: `replay` plays again what `explore` found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

from tests.modelcheck.executor import Allowance, Event, Execution, Scenario
from tests.modelcheck.independence import Effects, effects_of
from tests.modelcheck.schedule import Choice, Schedule
from tests.modelcheck.trace import render_trace

#: A schedule longer than this counts as one that never ends.
LONGEST: Final = 300
_NO_LIMIT: Final = Allowance(LONGEST, LONGEST, LONGEST)


@dataclass(frozen=True, slots=True)
class Violation:
    """A schedule that ended badly, and why; as text it lists what happened step by step."""

    schedule: Schedule
    reason: str
    events: tuple[Event, ...]

    def __str__(self) -> str:
        again = f"To see it again: replay(make_scenario, {str(self.schedule)!r})"
        return f"{self.reason}\n{render_trace(self.events)}\n{again}"


@dataclass(slots=True)
class Exploration:
    """What `explore` did: complete schedules, steps (repeated beginnings included), and what ended badly.

    `pruned` counts beginnings that were not finished because an equal order had been played. `complete` is False when
    the limit was reached first.
    """

    schedules: int = 0
    steps: int = 0
    pruned: int = 0
    complete: bool = True
    violations: list[Violation] = field(default_factory=list)

    @property
    def shortest(self) -> Violation | None:
        """The violation that is easiest to follow: the fewest steps, then the fewest changes of actor."""
        return min(self.violations, key=lambda found: (len(found.schedule), found.schedule.switches), default=None)

    def require_none(self) -> Self:
        """Raise AssertionError with the shortest violation, if there is any."""
        if self.shortest is not None:
            message = (
                f"{len(self.violations)} of {self.schedules} schedules end badly, the shortest so: {self.shortest}"
            )
            raise AssertionError(message)
        return self

    def __str__(self) -> str:
        extent = "all" if self.complete else "the first"
        pruned = f", {self.pruned} beginnings pruned" if self.pruned else ""
        return f"{extent} {self.schedules} schedules, {self.steps} steps{pruned}, {len(self.violations)} violations"


def explore(
    make_scenario: Callable[[], Scenario],
    *,
    crashes: int = 0,
    unknowns: int = 0,
    pauses: int = 0,
    isolated: bool = False,
    limit: int | None = None,
) -> Exploration:
    """Play every possible schedule, up to `limit` of them, each in a scenario of its own.

    In one schedule at most `crashes` actors stop for ever: before a request is carried out, or after that and before
    they get the answer. At most `unknowns` sends and commits are answered by `OutcomeUnknown`, applied or not. At most
    `pauses` answers reach their actor late, when others have gone on.

    `isolated` promises that actors share nothing but the store and what they call: no list, no source of ids, no memory
    of a process, no store that counts requests; and that the check does not look at the order of events. Then of all
    schedules that differ only in the order of requests that cannot affect each other (reads, or requests for different
    columns) one is played.
    """
    search = _Search(make_scenario, Allowance(crashes, unknowns, pauses), isolated=isolated)
    while search.play_next():
        if limit is not None and search.result.schedules >= limit:
            search.result.complete = False
            break
    return search.result


def replay(make_scenario: Callable[[], Scenario], schedule: Schedule | str) -> Violation | None:
    """Play exactly this schedule; returns what is wrong at its end, or None.

    ValueError if the schedule does not fit the scenario.
    """
    choices = Schedule.parse(schedule) if isinstance(schedule, str) else schedule
    execution = Execution(make_scenario(), _NO_LIMIT)
    for choice in choices:
        execution.take(choice)
    return _violation(execution)


def _violation(execution: Execution) -> Violation | None:
    reason = execution.violation()
    return None if reason is None else Violation(execution.history.schedule, reason, tuple(execution.history.events))


class _ChoicePoint:
    """A point at which several choices are possible: those still to be tried, and those that need not be.

    `sleeping` are choices that an earlier schedule made here or before, with nothing since that affects what they
    affect: to make them now would only repeat that schedule in another order (known as sleep sets).
    """

    def __init__(self, choices: list[tuple[Choice, Effects]], sleeping: dict[Choice, Effects]) -> None:
        self._untried = choices[::-1]
        self._sleeping = sleeping
        self.choice, self._effects = self._untried.pop()

    def next(self, *, isolated: bool) -> bool:
        """Go on to the next choice; False if there is none."""
        if isolated:
            self._sleeping[self.choice] = self._effects
        if not self._untried:
            return False
        self.choice, self._effects = self._untried.pop()
        return True

    def still_sleeping(self) -> dict[Choice, Effects]:
        """The choices that still need not be tried after the present one."""
        return {
            choice: touched
            for choice, touched in self._sleeping.items()
            if choice.actor != self.choice.actor and touched.independent_of(self._effects)
        }


class _Search:
    """The search of the tree: depth first, from the root for every schedule, since steps cannot be copied."""

    def __init__(self, make_scenario: Callable[[], Scenario], allowance: Allowance, *, isolated: bool) -> None:
        self._make_scenario = make_scenario
        self._allowance = allowance
        self._isolated = isolated
        self._points: list[_ChoicePoint] = []
        self.result = Exploration()

    def play_next(self) -> bool:
        """Play one schedule; returns whether there is another."""
        execution = Execution(self._make_scenario(), self._allowance)
        for known in self._points:
            execution.take(known.choice)
        while (point := self._choice_point(execution)) is not None:
            self._points.append(point)
            execution.take(point.choice)
        self.result.steps += len(self._points)
        self._note(execution)
        while self._points and not self._points[-1].next(isolated=self._isolated):
            self._points.pop()
        return bool(self._points)

    def _choice_point(self, execution: Execution) -> _ChoicePoint | None:
        """The choices at this point; None at the end, or when all of them have been tried in another order."""
        sleeping = self._points[-1].still_sleeping() if self._points else {}
        awake = [choice for choice in execution.choices() if choice not in sleeping]
        if not awake or len(self._points) == LONGEST:
            return None
        return _ChoicePoint([(choice, effects_of(execution.action(choice))) for choice in awake], sleeping)

    def _note(self, execution: Execution) -> None:
        history = execution.history
        if len(self._points) == LONGEST and execution.choices():
            self.result.schedules += 1
            reason = f"it goes on after {LONGEST} steps: give the actors an end"
            self.result.violations.append(Violation(history.schedule, reason, tuple(history.events)))
            return
        if execution.choices():
            self.result.pruned += 1
            return
        self.result.schedules += 1
        if (violation := _violation(execution)) is not None:
            self.result.violations.append(violation)
