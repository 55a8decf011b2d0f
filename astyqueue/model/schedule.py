"""A schedule as stored: its trigger, message template, policies, and the record of its occurrences."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Self, TypeVar

from pydantic import JsonValue

from astyqueue.durations import as_microseconds
from astyqueue.errors import BadInput
from astyqueue.ids import Id
from astyqueue.text import duration_setting_text
from astyqueue.units import SECOND

P = TypeVar("P", bound=StrEnum)
#: The name of a schedule, in bytes: it has to fit into a timer.
NAME_BYTES: Final = 200
#: The header that names the schedule that sent a message. Producers may not set it: the message would count as a
#: firing.
SCHEDULE: Final = "schedule"
#: Occurrences fired at once under misfire="all": the default, and the limit.
ALL: Final = 100
ALL_AT_MOST: Final = 1_000
#: The default of how late an occurrence may be under misfire="skip".
GRACE: Final = 60 * SECOND
#: Firings that a schedule remembers, and occurrences that may wait under overlap="queue all".
REMEMBERED: Final = 10
BACKLOG: Final = 100

_TAKES_COUNT: Final = "all"
_TAKE_DURATION: Final = frozenset({"skip", "within"})
_PLAIN: Final = frozenset({"once", "latest"})
MISFIRES: Final = _PLAIN | _TAKE_DURATION | {_TAKES_COUNT}


@dataclass(frozen=True, slots=True)
class Misfire:
    """The policy for occurrences not fired in time. `bound` counts them ("all") or microseconds ("skip", "within")."""

    kind: str
    bound: int = 0

    @classmethod
    def read(cls, written: str) -> Self:
        """Parse "once", "latest", "all", "all 50", "skip", "skip 5m" or "within 1h"; anything else raises BadInput."""
        kind, _, bound = written.strip().partition(" ") if isinstance(written, str) else ("", "", "")
        if kind in _PLAIN and not bound:
            return cls(kind)
        if kind == _TAKES_COUNT and (not bound or (bound.isdecimal() and 0 < int(bound) <= ALL_AT_MOST)):
            return cls(kind, int(bound or ALL))
        if kind in _TAKE_DURATION and (bound or kind == "skip"):
            return cls(kind, as_microseconds(bound) if bound else GRACE)
        forms = f'"once", "latest", "all" (or "all 50", up to {ALL_AT_MOST}), "skip" (or "skip 5m") or "within 1h"'
        problem = f"misfire is {forms}, not {written!r}"
        raise BadInput(problem)

    def __str__(self) -> str:
        """The text that `read` reads."""
        if self.kind in _PLAIN:
            return self.kind
        return f"{self.kind} {self.bound if self.kind == _TAKES_COUNT else duration_setting_text(self.bound)}"


class Overlap(StrEnum):
    """The policy for an occurrence that comes while the previous run has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue one"
    QUEUE_ALL = "queue all"
    CANCEL_RUNNING = "cancel running"


class AfterFailure(StrEnum):
    """The policy for a schedule whose last run became a dead letter."""

    GO_ON = "go on"
    PAUSE = "pause"


class Origin(StrEnum):
    """Where a schedule comes from: an operator made it, code declares it, or it is a message's own trigger."""

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
    """How a schedule handles occurrences that are late, overlap the previous run, or follow a failure."""

    misfire: Misfire = Misfire("once")
    overlap: Overlap = Overlap.ALLOW
    after_failure: AfterFailure = AfterFailure.GO_ON

    @classmethod
    def read(cls, misfire: str | Misfire, overlap: str, after_failure: str) -> Self:
        """The policies of these names; BadInput for an unknown one."""
        late = misfire if isinstance(misfire, Misfire) else Misfire.read(misfire)
        return cls(late, _one_of(Overlap, "overlap", overlap), _one_of(AfterFailure, "after_failure", after_failure))


@dataclass(frozen=True, slots=True)
class Template:
    """The contents of each message of a schedule; `expires` and `lease` are microseconds, `body` is encoded JSON."""

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
    """What became of `occurrences` from `occurrence` on: `at` is when, `run` the message, or `why` there is none."""

    occurrence: int
    occurrences: int
    at: int
    run: Run | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The content of a trigger column. Moments are microseconds since 1970.

    `declared` is the trigger as given, `anchored` the same with its start fixed when the schedule was made. All
    occurrences up to `last` are dealt with; `next` is the one after them. `backlog` are occurrences that wait for the
    previous run to end. `occurrences` counts those dealt with, `fired` the messages sent for them, `skipped` the
    occurrences without a message. `mark` is the nonce of the command that changed the schedule last, `creation_nonce`
    that of the one that made it.
    """

    name: str
    declared: JsonValue
    anchored: JsonValue
    template: Template
    policies: Policies
    origin: Origin
    creation_nonce: str
    mark: str
    created: int
    last: int
    next: int | None
    paused: str = ""
    backlog: tuple[int, ...] = ()
    run: Run | None = None
    occurrences: int = 0
    fired: int = 0
    skipped: int = 0
    history: tuple[Firing, ...] = ()

    @property
    def wakes(self) -> int | None:
        """When the schedule is next due for work; None while it is paused, and once it has ended.

        A message's own schedule that ended without firing its last occurrence is removed when its last run has ended.
        """
        if self.paused:
            return None
        return self.last if self.backlog or (self.ended and self.origin is Origin.MESSAGE) else self.next

    @property
    def ended(self) -> bool:
        """Whether no occurrence is left and the backlog is empty."""
        return self.next is None and not self.backlog


def check_schedule_name(name: str) -> str:
    """The name itself; BadInput unless it is printable text of 1 to 200 bytes."""
    if (
        not isinstance(name, str)
        or not name.isprintable()
        or not 0 < len(name.encode(errors="surrogatepass")) <= NAME_BYTES
    ):
        problem = f"{name!r:.80} is not a valid schedule name: give printable text of 1 to {NAME_BYTES} bytes"
        raise BadInput(problem)
    return name
