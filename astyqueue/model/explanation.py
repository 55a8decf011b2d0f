"""Why a message has not run yet, and its life so far, as far as the store records it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from astyqueue.clock import instant
from astyqueue.model.message import MessageId
from astyqueue.model.moments import exact
from astyqueue.model.views import Json, Standing


class LifeEvent(NamedTuple):
    """A past or future event of a message: when (microseconds since 1970; None if that is not stored), and what."""

    at: int | None
    what: str


def in_order(life: Iterable[LifeEvent]) -> tuple[LifeEvent, ...]:
    """The events by time; those without a time come first."""
    return tuple(sorted(life, key=lambda event: (event.at is not None, event.at or 0)))


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a message has not run, in a sentence or two, and the facts behind it.

    `standing` is None if the message does not exist. `now` is when it was read and `until` when it may be handed out,
    if that is later (both microseconds since 1970). `spent` of `allowed` attempts are used up; `holder` is the process
    that has its lease, or had it when it expired. `life` is ordered by time; events without a time come first.
    """

    id: MessageId
    standing: Standing | None
    why: str
    now: int
    until: int | None = None
    spent: int = 0
    allowed: int | None = None
    holder: str = ""
    life: tuple[LifeEvent, ...] = ()

    def __str__(self) -> str:
        """The id, and why."""
        return f"{self.id}: {self.why}"

    def as_json(self) -> Json:
        """The explanation as JSON, with instants as text."""
        return {
            "id": str(self.id),
            "standing": self.standing.value if self.standing else "gone",
            "why": self.why,
            "now": _text(self.now),
            "until": _text(self.until),
            "spent": self.spent,
            "allowed": self.allowed,
            "holder": self.holder,
            "life": [{"at": _text(event.at), "what": event.what} for event in self.life],
        }


def _text(moment: int | None) -> str | None:
    return None if moment is None else exact(instant(moment))
