"""Plays one schedule in one world: runs the actors in that order, and records everything that happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from astyqueue.errors import AstyqueueError, OutcomeUnknown, StoreError
from astyqueue.protocol.steps import Commit, Read, Send, perform
from astyqueue.store import Store
from astyqueue.waiting import Rest
from tests.modelcheck.schedule import END, Actor, Asked, Choice, Mode, Schedule, Work


class Event(NamedTuple):
    """What one choice did. The answer is an error if one was thrown into the steps, or ended them."""

    choice: Choice
    asked: Asked | None
    answer: object


@dataclass(frozen=True, slots=True)
class History:
    """What happened in a world, for its judge.

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


#: Says what is wrong, or None; may also use `assert`.
Judge = Callable[[History], str | None]


@dataclass(frozen=True, slots=True)
class World:
    """A fresh store, the actors that use it, and the judge of the outcome.

    Every world that a factory makes must be the same: no randomness and no clock but a `TimeMachine`. Actors run up to
    their first request, in order, when the world is played; names are letters, digits, `_` and `-`. The judge is called
    once, at the end, and may then use the store as it likes.
    """

    store: Store
    actors: Mapping[str, Actor]
    judge: Judge


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


class _Player:
    """A running actor: its steps, and the request whose answer it waits for."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.asked: Asked | None = None
        self.held: tuple[object] | None = None
        self.result: object = None
        self.error: Exception | None = None
        self.go_on(partial(next, work))

    def hear(self, answer: object) -> None:
        """Go on with an answer, up to the next request."""
        self.held = None
        self.go_on(partial(self.work.throw if isinstance(answer, StoreError) else self.work.send, answer))

    def go_on(self, move: Callable[[], Asked]) -> None:
        self.asked = None
        try:
            self.asked = move()
        except StopIteration as finished:
            self.result = finished.value
        except Exception as error:  # noqa: BLE001 - whatever an actor raises is its outcome
            self.error = error

    def modes(self, left: Allowance) -> list[Mode]:
        """What may happen to its request."""
        if self.held:
            return [Mode.GO]
        changes = not isinstance(self.asked, Read | Rest)
        unknown = left.unknowns > 0 and isinstance(self.asked, Send | Commit)
        possible = {
            Mode.GO: True,
            Mode.HELD: left.pauses > 0 and not isinstance(self.asked, Rest),
            Mode.APPLIED: unknown,
            Mode.LOST: unknown,
            Mode.UNANSWERED: left.crashes > 0 and changes,
        }
        return [mode for mode, offered in possible.items() if offered]


class Rehearsal:
    """One play of a world."""

    def __init__(self, world: World, allowance: Allowance) -> None:
        """Run every actor up to its first request."""
        self._world = world
        self._left = allowance
        self.history = History(world.store)
        self._players = {name: _Player(actor()) for name, actor in world.actors.items()}
        self._unfinished = list(self._players)
        self._note_who_finished()

    def choices(self) -> list[Choice]:
        """Everything that may happen next; empty at the end."""
        ready = [name for name in self._unfinished if name != self._just_held()]
        left = self._left if len(ready) > 1 else self._left._replace(pauses=0)
        offered = [Choice(name, mode) for name in ready for mode in self._players[name].modes(left)]
        if 0 < len(self._unfinished) <= self._left.crashes:
            offered.append(END)
        return offered

    def _just_held(self) -> str | None:
        """The actor that the last choice paused: another one goes on first, or it would be no pause."""
        last = self.history.events[-1].choice if self.history.events else END
        return last.actor if last.mode is Mode.HELD else None

    def asked(self, choice: Choice) -> Asked | None:
        """The request that the choice would carry out now; None if it does nothing to the world."""
        player = self._players.get(choice.actor)
        return None if player is None or player.held or choice.mode is Mode.LOST else player.asked

    def take(self, choice: Choice) -> None:
        """Carry out one of `choices`; ValueError for any other, which the schedule of another world may contain."""
        if choice not in self.choices():
            why = "the world is another one than before, or needs other limits"
            message = f"{choice} cannot come after {self.history.schedule}: {why}"
            raise ValueError(message)
        self._left = self._left.less(choice.mode, len(self._unfinished))
        if choice == END:
            self.history.events.append(Event(choice, None, None))
            self._stop(*self._unfinished)
        else:
            self._turn(choice, self._players[choice.actor])
        self._note_who_finished()

    def verdict(self) -> str | None:
        """What is wrong with what happened, or None."""
        for name, error in self.history.errors.items():
            if not isinstance(error, AstyqueueError):
                return f"{name} failed: {error!r}"
        try:
            return self._world.judge(self.history)
        except AssertionError as error:
            return str(error) or "the judge's assertion does not hold"

    def _turn(self, choice: Choice, player: _Player) -> None:
        asked = None if player.held else player.asked
        answer = player.held[0] if player.held else self._answer(choice.mode, player)
        self.history.events.append(Event(choice, asked, player.error or answer))
        if player.error is None:
            self._deliver(choice, player, answer)

    def _deliver(self, choice: Choice, player: _Player, answer: object) -> None:
        match choice.mode:
            case Mode.UNANSWERED:
                self._stop(choice.actor)
            case Mode.HELD:
                player.held = (answer,)
            case _:
                player.hear(answer)

    def _answer(self, mode: Mode, player: _Player) -> object:
        """Carry out the request. An error that a runner would not throw into steps ends them here, too."""
        unknown = OutcomeUnknown(_UNKNOWN)
        if mode is Mode.LOST or player.asked is None:
            return unknown
        try:
            answer = _do(player.asked, self._world.store)
        except StoreError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - whatever a request raises is the actor's outcome
            player.asked, player.error = None, error
            return None
        return unknown if mode is Mode.APPLIED else answer

    def _stop(self, *names: str) -> None:
        self.history.stopped.extend(names)
        self._unfinished = [name for name in self._unfinished if name not in names]

    def _note_who_finished(self) -> None:
        for name in [name for name in self._unfinished if self._players[name].asked is None]:
            self._unfinished.remove(name)
            player = self._players[name]
            if player.error is None:
                self.history.results[name] = player.result
            else:
                self.history.errors[name] = player.error


def _do(asked: Asked, store: Store) -> object:
    """The answer to a request; a rest ends at once, since in other schedules other actors go first."""
    match asked:
        case Rest():
            return None
        case Read() | Send() | Commit():
            return perform(asked, store)
        case _:
            return asked()
