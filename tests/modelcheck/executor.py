"""Executes one schedule in one scenario: runs the actors in that order, and records everything that happens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.clock import Clock
from astyqueue.errors import AstyqueueError, OutcomeUnknown, StoreError
from astyqueue.ids import Id, Nonce
from astyqueue.protocol.steps import Client, Commit, LocalCall, Read, Send, perform
from astyqueue.store import Store
from astyqueue.waiting import Rest
from tests.modelcheck.schedule import END, Action, Actor, Choice, Mode, Schedule, Work


class Event(NamedTuple):
    """What one choice did. The answer is an error if one was thrown into the steps, or ended them."""

    choice: Choice
    action: Action | None
    answer: object


@dataclass(frozen=True, slots=True)
class History:
    """What happened in a scenario, for its check.

    Actors that finished are in `results`, those that ended with an error in `errors`, those that stopped for ever in
    `stopped`. An error that is none of astyqueue's own is a violation by itself.
    """

    store: Store
    events: list[Event] = field(default_factory=list)
    results: dict[str, object] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)

    @property
    def schedule(self) -> Schedule:
        """The choices that were made."""
        return Schedule(event.choice for event in self.events)


#: Returns what is wrong, or None; may also use `assert`.
Check = Callable[[History], str | None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fresh store, the actors that use it, and the check of the outcome.

    Every scenario that a factory makes must be the same: no randomness and no clock but a `TimeMachine`. Actors run up
    to their first request, in order, when the scenario is executed; names are letters, digits, `_` and `-`. The check
    is called once, at the end, and may then use the store as it likes.
    """

    store: Store
    actors: Mapping[str, Actor]
    check: Check


class Allowance(NamedTuple):
    """How often, in one schedule, an actor may stop for ever, an outcome be unknown, and an answer come late."""

    crashes: int = 0
    unknowns: int = 0
    pauses: int = 0

    def less(self, mode: Mode, unfinished: int) -> Allowance:
        """What is left after a choice of this mode."""
        match mode:
            case Mode.GO:
                return self
            case Mode.HELD:
                return self._replace(pauses=self.pauses - 1)
            case Mode.UNANSWERED:
                return self._replace(crashes=self.crashes - 1)
            case Mode.APPLIED | Mode.LOST:
                return self._replace(unknowns=self.unknowns - 1)
            case Mode.END:
                return self._replace(crashes=self.crashes - unfinished)


_UNKNOWN: Final = "whether this was done is unknown, because the schedule says so"


class _RunningActor:
    """A running actor: its steps, and the request whose answer it waits for."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.action: Action | None = None
        self.held: tuple[object] | None = None
        self.result: object = None
        self.error: Exception | None = None
        self.go_on(partial(next, work))

    def answer(self, answer: object) -> None:
        """Go on with an answer, up to the next request."""
        self.held = None
        self.go_on(partial(self.work.throw if isinstance(answer, StoreError) else self.work.send, answer))

    def go_on(self, move: Callable[[], Action]) -> None:
        self.action = None
        try:
            self.action = move()
        except StopIteration as finished:
            self.result = finished.value
        except Exception as error:  # noqa: BLE001 - whatever an actor raises is its outcome
            self.error = error

    def modes(self, left: Allowance) -> list[Mode]:
        """What may happen to its request."""
        if self.held:
            return [Mode.GO]
        changes = not isinstance(self.action, Read | Rest)
        unknown = left.unknowns > 0 and isinstance(self.action, Send | Commit)
        possible = {
            Mode.GO: True,
            Mode.HELD: left.pauses > 0 and not isinstance(self.action, Rest),
            Mode.APPLIED: unknown,
            Mode.LOST: unknown,
            Mode.UNANSWERED: left.crashes > 0 and changes,
        }
        return [mode for mode, offered in possible.items() if offered]


class Execution:
    """One execution of a scenario."""

    def __init__(self, scenario: Scenario, allowance: Allowance) -> None:
        """Run every actor up to its first request."""
        self._scenario = scenario
        self._left = allowance
        self.history = History(scenario.store)
        self._running = {name: _RunningActor(actor()) for name, actor in scenario.actors.items()}
        self._unfinished = list(self._running)
        self._record_finished()

    def choices(self) -> list[Choice]:
        """Everything that may happen next; empty at the end."""
        ready = [name for name in self._unfinished if name != self._just_held()]
        left = self._left if len(ready) > 1 else self._left._replace(pauses=0)
        offered = [Choice(name, mode) for name in ready for mode in self._running[name].modes(left)]
        if 0 < len(self._unfinished) <= self._left.crashes:
            offered.append(END)
        return offered

    def _just_held(self) -> str | None:
        """The actor that the last choice paused: another one goes on first, or it would be no pause."""
        last = self.history.events[-1].choice if self.history.events else END
        return last.actor if last.mode is Mode.HELD else None

    def action(self, choice: Choice) -> Action | None:
        """The request that the choice would carry out now; None if it changes nothing."""
        running = self._running.get(choice.actor)
        return None if running is None or running.held or choice.mode is Mode.LOST else running.action

    def take(self, choice: Choice) -> None:
        """Carry out one of `choices`; ValueError for any other, which the schedule of another scenario may contain."""
        if choice not in self.choices():
            reason = "the scenario is another one than before, or needs other limits"
            message = f"{choice} cannot come after {self.history.schedule}: {reason}"
            raise ValueError(message)
        self._left = self._left.less(choice.mode, len(self._unfinished))
        if choice == END:
            self.history.events.append(Event(choice, None, None))
            self._stop(*self._unfinished)
        else:
            self._carry_out(choice, self._running[choice.actor])
        self._record_finished()

    def violation(self) -> str | None:
        """What is wrong with what happened, or None."""
        for name, error in self.history.errors.items():
            if not isinstance(error, AstyqueueError):
                return f"{name} failed: {error!r}"
        try:
            return self._scenario.check(self.history)
        except AssertionError as error:
            return str(error) or "the check's assertion does not hold"

    def _carry_out(self, choice: Choice, running: _RunningActor) -> None:
        action = None if running.held else running.action
        answer = running.held[0] if running.held else self._answer(choice.mode, running)
        self.history.events.append(Event(choice, action, running.error or answer))
        if running.error is None:
            self._deliver(choice, running, answer)

    def _deliver(self, choice: Choice, running: _RunningActor, answer: object) -> None:
        match choice.mode:
            case Mode.UNANSWERED:
                self._stop(choice.actor)
            case Mode.HELD:
                running.held = (answer,)
            case _:
                running.answer(answer)

    def _answer(self, mode: Mode, running: _RunningActor) -> object:
        """Carry out the request. An error that a runner would not throw into steps ends them here, too."""
        unknown = OutcomeUnknown(_UNKNOWN)
        if mode is Mode.LOST or running.action is None:
            return unknown
        try:
            answer = _do(running.action, self._scenario.store)
        except StoreError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - whatever a request raises is the actor's outcome
            running.action, running.error = None, error
            return None
        return unknown if mode is Mode.APPLIED else answer

    def _stop(self, *names: str) -> None:
        self.history.stopped.extend(names)
        self._unfinished = [name for name in self._unfinished if name not in names]

    def _record_finished(self) -> None:
        for name in [name for name in self._unfinished if self._running[name].action is None]:
            self._unfinished.remove(name)
            running = self._running[name]
            if running.error is None:
                self.history.results[name] = running.result
            else:
                self.history.errors[name] = running.error


def _do(action: Action, store: Store) -> object:
    """The answer to a request; a rest ends at once, since in other schedules other actors go first."""
    match action:
        case Rest():
            return None
        case Read() | Send() | Commit() | LocalCall():
            return perform(action, store)
        case _:
            return action()


def deterministic_client(name: str, clock: Clock) -> Client:
    """A process whose ids and nonces follow from its name alone, so that every execution of a scenario is the same.

    Its ids of one moment do not ascend, as those of several processes do not; give an actor one of its own.
    """
    numbers = itertools.count(1)

    def drawn() -> Nonce:
        return Nonce(ids.of_text(f"{name} {next(numbers)}")[8:])

    def id_at(moment: int) -> Id:
        return ids.first_at(moment)[:8] + drawn()

    return Client(name, clock.now, id_at, drawn)
