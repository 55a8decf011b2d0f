"""Plays every interleaving of several actors, one after the other.

Operations are steps that yield at each request, so what several of them may do together is a tree: at every point one
of the unfinished actors goes on. `explore` walks that whole tree, each schedule in a world of its own, and passes what
happened to the world's judge. Nothing is random: `replay` plays again what `explore` found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

from tests.modelcheck.executor import Allowance, Event, Rehearsal, World
from tests.modelcheck.independence import Reach, reach
from tests.modelcheck.schedule import Choice, Schedule
from tests.modelcheck.trace import tale

#: A schedule longer than this counts as one that never ends.
LONGEST: Final = 300
_NO_LIMIT: Final = Allowance(LONGEST, LONGEST, LONGEST)


@dataclass(frozen=True, slots=True)
class Violation:
    """A schedule that ended badly, and why; as text it lists what happened step by step."""

    schedule: Schedule
    why: str
    events: tuple[Event, ...]

    def __str__(self) -> str:
        return f"{self.why}\n{tale(self.events)}\nTo see it again: replay(make_world, {str(self.schedule)!r})"


@dataclass(slots=True)
class Explored:
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
    make_world: Callable[[], World],
    *,
    crashes: int = 0,
    unknowns: int = 0,
    pauses: int = 0,
    isolated: bool = False,
    limit: int | None = None,
) -> Explored:
    """Play every possible schedule, up to `limit` of them, each in a world of its own.

    In one schedule at most `crashes` actors stop for ever: before a request is carried out, or after that and before
    they get the answer. At most `unknowns` sends and commits are answered by `OutcomeUnknown`, applied or not. At most
    `pauses` answers reach their actor late, when others have gone on.

    `isolated` promises that actors share nothing but the store and what they call: no list, no source of ids, no memory
    of a process, no store that counts requests; and that the judge does not look at the order of events. Then of all
    schedules that differ only in the order of requests that cannot affect each other (reads, or requests for different
    columns) one is played.
    """
    search = _Search(make_world, Allowance(crashes, unknowns, pauses), isolated=isolated)
    while search.play_next():
        if limit is not None and search.seen.schedules >= limit:
            search.seen.complete = False
            break
    return search.seen


def replay(make_world: Callable[[], World], schedule: Schedule | str) -> Violation | None:
    """Play exactly this schedule; returns what is wrong at its end, or None.

    ValueError if the schedule does not fit the world.
    """
    choices = Schedule.parse(schedule) if isinstance(schedule, str) else schedule
    rehearsal = Rehearsal(make_world(), _NO_LIMIT)
    for choice in choices:
        rehearsal.take(choice)
    return _judged(rehearsal)


def _judged(rehearsal: Rehearsal) -> Violation | None:
    why = rehearsal.verdict()
    return None if why is None else Violation(rehearsal.history.schedule, why, tuple(rehearsal.history.events))


class _Fork:
    """A point at which several choices are possible: those still to be tried, and those that need not be.

    `asleep` are choices that an earlier schedule made here or before, with nothing since that affects what they affect:
    to make them now would only repeat that schedule in another order (known as sleep sets).
    """

    def __init__(self, choices: list[tuple[Choice, Reach]], asleep: dict[Choice, Reach]) -> None:
        self._untried = choices[::-1]
        self._asleep = asleep
        self.choice, self._reach = self._untried.pop()

    def next(self, *, isolated: bool) -> bool:
        """Go on to the next choice; False if there is none."""
        if isolated:
            self._asleep[self.choice] = self._reach
        if not self._untried:
            return False
        self.choice, self._reach = self._untried.pop()
        return True

    def asleep_beyond(self) -> dict[Choice, Reach]:
        """The choices that still need not be tried after the present one."""
        return {
            choice: touched
            for choice, touched in self._asleep.items()
            if choice.actor != self.choice.actor and touched.apart_from(self._reach)
        }


class _Search:
    """The walk through the tree: depth first, from the root for every schedule, since steps cannot be copied."""

    def __init__(self, make_world: Callable[[], World], allowance: Allowance, *, isolated: bool) -> None:
        self._make_world = make_world
        self._allowance = allowance
        self._isolated = isolated
        self._forks: list[_Fork] = []
        self.seen = Explored()

    def play_next(self) -> bool:
        """Play one schedule; returns whether there is another."""
        rehearsal = Rehearsal(self._make_world(), self._allowance)
        for known in self._forks:
            rehearsal.take(known.choice)
        while (fork := self._fork(rehearsal)) is not None:
            self._forks.append(fork)
            rehearsal.take(fork.choice)
        self.seen.steps += len(self._forks)
        self._note(rehearsal)
        while self._forks and not self._forks[-1].next(isolated=self._isolated):
            self._forks.pop()
        return bool(self._forks)

    def _fork(self, rehearsal: Rehearsal) -> _Fork | None:
        """The choices at this point; None at the end, or when all of them have been tried in another order."""
        asleep = self._forks[-1].asleep_beyond() if self._forks else {}
        awake = [choice for choice in rehearsal.choices() if choice not in asleep]
        if not awake or len(self._forks) == LONGEST:
            return None
        return _Fork([(choice, reach(rehearsal.asked(choice))) for choice in awake], asleep)

    def _note(self, rehearsal: Rehearsal) -> None:
        history = rehearsal.history
        if len(self._forks) == LONGEST and rehearsal.choices():
            self.seen.schedules += 1
            why = f"it goes on after {LONGEST} steps: give the actors an end"
            self.seen.violations.append(Violation(history.schedule, why, tuple(history.events)))
            return
        if rehearsal.choices():
            self.seen.pruned += 1
            return
        self.seen.schedules += 1
        if (violation := _judged(rehearsal)) is not None:
            self.seen.violations.append(violation)
