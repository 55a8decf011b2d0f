"""A schedule as it is stored: when it fires, what it sends, by which policies, and what became of its slots."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Self, TypeVar

from pydantic import JsonValue

from astyqueue.clock import SECOND
from astyqueue.durations import as_microseconds
from astyqueue.errors import BadInput
from astyqueue.ids import Id
from astyqueue.model.wording import spelled_duration

P = TypeVar("P", bound=StrEnum)
#: The name of a schedule, in bytes: it has to fit into a timer.
NAME_BYTES: Final = 200
#: The header of a message that tells which schedule sent it. Nobody else may send one: it would count as a firing.
SCHEDULE: Final = "schedule"
#: Slots fired at once under misfire="all", unless it says how many; and how many at most.
ALL: Final = 100
ALL_AT_MOST: Final = 1_000
#: How late a slot may be under misfire="skip", unless it says how late.
GRACE: Final = 60 * SECOND
#: Firings that a schedule remembers, and slots that may wait under overlap="queue all".
REMEMBERED: Final = 10
BACKLOG: Final = 100

_TAKES_COUNT: Final = "all"
_TAKE_DURATION: Final = frozenset({"skip", "within"})
_PLAIN: Final = frozenset({"once", "latest"})
MISFIRES: Final = _PLAIN | _TAKE_DURATION | {_TAKES_COUNT}


@dataclass(frozen=True, slots=True)
class Misfire:
    """What becomes of slots that nobody fired in time. `bound`: a number of slots ("all"), or microseconds ("skip", "within")."""

    kind: str
    bound: int = 0

    @classmethod
    def read(cls, written: str) -> Self:
        """Of "once", "latest", "all", "all 50", "skip", "skip 5m" or "within 1h"; anything else raises BadInput."""
        kind, _, bound = written.strip().partition(" ") if isinstance(written, str) else ("", "", "")
        if kind in _PLAIN and not bound:
            return cls(kind)
        if kind == _TAKES_COUNT and (not bound or (bound.isdecimal() and 0 < int(bound) <= ALL_AT_MOST)):
            return cls(kind, int(bound or ALL))
        if kind in _TAKE_DURATION and (bound or kind == "skip"):
            return cls(kind, as_microseconds(bound) if bound else GRACE)
        problem = (
            f'misfire is "once", "latest", "all" (or "all 50", up to {ALL_AT_MOST}), "skip" (or "skip 5m") or "within 1h", not {written!r}'
        )
        raise BadInput(problem)

    def __str__(self) -> str:
        """The text that `read` reads."""
        if self.kind in _PLAIN:
            return self.kind
        return f"{self.kind} {self.bound if self.kind == _TAKES_COUNT else spelled_duration(self.bound)}"


class Overlap(StrEnum):
    """What becomes of a slot while the run before it has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue one"
    QUEUE_ALL = "queue all"
    CANCEL_RUNNING = "cancel running"


class AfterFailure(StrEnum):
    """What becomes of a schedule whose last run is a dead letter."""

    GO_ON = "go on"
    PAUSE = "pause"


class Origin(StrEnum):
    """Where a schedule comes from: somebody made it, code declares it, or it is a message's own trigger."""

    PEOPLE = "people"
    CODE = "code"
    MESSAGE = "message"


def _one_of(policies: type[P], name: str, written: str) -> P:
    try:
        return policies(written)
    except ValueError as error:
        problem = f"{name} is one of {', '.join(policies)}, not {written!r:.80}"
        raise BadInput(problem) from error


@dataclass(frozen=True, slots=True)
class Policies:
    """How a schedule deals with slots that come late, that meet the run before, or that follow a failure."""

    misfire: Misfire = Misfire("once")
    overlap: Overlap = Overlap.ALLOW
    after_failure: AfterFailure = AfterFailure.GO_ON

    @classmethod
    def read(cls, misfire: str | Misfire, overlap: str, after_failure: str) -> Self:
        """The policies that people name; BadInput for others."""
        late = misfire if isinstance(misfire, Misfire) else Misfire.read(misfire)
        return cls(late, _one_of(Overlap, "overlap", overlap), _one_of(AfterFailure, "after_failure", after_failure))


@dataclass(frozen=True, slots=True)
class Template:
    """What each message of a schedule is made of; `expires` and `lease` are microseconds, `body` is JSON already encoded."""

    body: bytes
    priority: int = 0
    key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    expires: int | None = None
    lease: int | None = None
    attempts: int | None = None


class Run(NamedTuple):
    """A message that a schedule sent."""

    priority: int
    id: Id


class Firing(NamedTuple):
    """What became of a slot, or of so many from it on; `at` is when, `run` the message if there is one, `why` if there is none."""

    slot: int
    slots: int
    at: int
    run: Run | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A trigger column. Moments are microseconds since 1970.

    `declared` is the trigger as it was handed in, `anchored` what it came to when the schedule was made. All slots up to
    `last` are dealt with; `next` is the one after them. `backlog` are slots that wait for the run before to end. `slots`
    counts those dealt with, `fired` the messages sent for them, `skipped` the slots for which none was. `mark` is of the
    command that changed it last, and `made` of the one that made it.
    """

    name: str
    declared: JsonValue
    anchored: JsonValue
    template: Template
    policies: Policies
    origin: Origin
    made: str
    mark: str
    created: int
    last: int
    next: int | None
    paused: str = ""
    backlog: tuple[int, ...] = ()
    run: Run | None = None
    slots: int = 0
    fired: int = 0
    skipped: int = 0
    history: tuple[Firing, ...] = ()

    @property
    def wakes(self) -> int | None:
        """When there is something to do for it; None while it is paused, and once it has ended.

        A message's own that ended without firing its last slot is removed when its last run has ended.
        """
        if self.paused:
            return None
        return self.last if self.backlog or (self.ended and self.origin is Origin.MESSAGE) else self.next

    @property
    def ended(self) -> bool:
        """Whether there is no slot left and none waits."""
        return self.next is None and not self.backlog


def check_schedule_name(name: str) -> str:
    """The name itself; BadInput unless it is text of 1 to 200 bytes without line breaks."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.encode(errors="surrogatepass")) <= NAME_BYTES:
        problem = f"{name!r:.80} is no name for a schedule: give printable text of 1 to {NAME_BYTES} bytes"
        raise BadInput(problem)
    return name
