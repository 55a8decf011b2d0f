"""Schedules: the order in which actors go on and the faults of each step, as text that can be read and replayed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

from astyqueue.durations import Duration
from astyqueue.protocol.steps import Request
from astyqueue.testing.timemachine import TimeMachine

#: What an actor yields: a request to the store, or a function to call.
Action = Request | Callable[[], object]
#: An actor at work. The answers cannot be typed per request, as with `Steps`; only the check knows the type of the
#: result.
Work = Generator[Action, Any, Any]
Actor = Callable[[], Work]


class Mode(StrEnum):
    """What becomes of a request, as it is written behind the name of the actor."""

    GO = ""  # done and answered
    HELD = "~"  # done; the answer waits for the actor's next turn
    APPLIED = "+?"  # done, and answered with an unknown outcome
    LOST = "-?"  # not done, and answered with an unknown outcome
    UNANSWERED = "!"  # done; the actor has stopped for ever before it hears so
    END = "."  # each unfinished actor has stopped for ever


class Choice(NamedTuple):
    """One step of a schedule; the actor is "" for the end of all."""

    actor: str
    mode: Mode

    def __str__(self) -> str:
        return self.actor + self.mode

    @classmethod
    def parse(cls, written: str) -> Self:
        """The choice that was written so."""
        mode = next(mode for mode in Mode if mode and written.endswith(mode)) if not written[-1].isalnum() else Mode.GO
        return cls(written.removesuffix(mode), mode)


#: The end of a schedule in which each unfinished actor stops for ever.
END: Final = Choice("", Mode.END)


class Schedule(tuple[Choice, ...]):
    """Choices in their order; printed as one line, such as `ann bob ann+? bob! .`, which `parse` reads again."""

    __slots__ = ()

    def __str__(self) -> str:
        return " ".join(map(str, self))

    @classmethod
    def parse(cls, line: str) -> Self:
        """The schedule that was printed so."""
        return cls(map(Choice.parse, line.split()))

    @property
    def switches(self) -> int:
        """How often another actor takes over: a schedule with few switches is easy to follow."""
        return sum(before.actor != after.actor for before, after in pairwise(self))


@dataclass(frozen=True, slots=True)
class Advance:
    """Yielded by an actor that advances the clock: this much time passes."""

    machine: TimeMachine
    duration: Duration

    def __call__(self) -> None:
        """Let it pass."""
        self.machine.advance(self.duration)

    def __str__(self) -> str:
        return f"{self.duration} pass"


def advancing(machine: TimeMachine, *durations: Duration) -> Actor:
    """An actor that lets time pass, once for each duration."""

    def advance() -> Work:
        for duration in durations:
            yield Advance(machine, duration)

    return advance
