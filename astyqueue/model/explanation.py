"""Why a message has not run yet, and its life so far as far as the store tells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from astyqueue.clock import instant
from astyqueue.model.message import MessageId
from astyqueue.model.moments import exact
from astyqueue.model.views import Json, Standing


class Event(NamedTuple):
    """Something that happened to a message, or will: when (microseconds since 1970; None if that is not kept), and what."""

    at: int | None
    what: str


def in_order(life: Iterable[Event]) -> tuple[Event, ...]:
    """The order of a life: that of time, what has no time first."""
    return tuple(sorted(life, key=lambda event: (event.at is not None, event.at or 0)))


@dataclass(frozen=True, slots=True)
class Explanation:
    """What keeps a message, in a sentence or two, and the facts behind it.

    `standing` is None for a message that is not there. `now` is when it was looked at and `until` when it may be handed
    out, if that is later (microseconds). `spent` of `allowed` attempts are used up; `holder` is the process that has it in
    hand, or had it when its lease ran out. `life` is in the order of time, what has no time first.
    """

    id: MessageId
    standing: Standing | None
    why: str
    now: int
    until: int | None = None
    spent: int = 0
    allowed: int | None = None
    holder: str = ""
    life: tuple[Event, ...] = ()

    def __str__(self) -> str:
        """The id, and why."""
        return f"{self.id}: {self.why}"

    def as_json(self) -> Json:
        """The same as JSON."""
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
