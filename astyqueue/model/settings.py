"""The settings of a queue: its layout, fixed at creation, and its behaviour, which may change while it runs.

Their names, values and units as people write them are here too, and errors in these terms.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from astyqueue.errors import BadInput, BadSetting
from astyqueue.model.body import BODY_BYTES, BODY_BYTES_AT_MOST
from astyqueue.model.envelope import ATTEMPTS_MOST, LEASE_LEAST, LEASE_MOST, REMEMBERED_MOST
from astyqueue.model.event import Keeping
from astyqueue.text import duration_setting_text
from astyqueue.units import SECOND

_MINUTE: Final = 60 * SECOND
_DAY: Final = 24 * 60 * _MINUTE
#: Placements: by time, and by the key if there is one; by key at any time; all in one row; by a function of the
#: producers.
BY_TIME: Final = "time"
BY_KEY: Final = "key"
SINGLE: Final = "single"
FUNCTION: Final = "function"
#: What a send does when its queue has `max_messages`.
REFUSE: Final = "refuse"
BLOCK: Final = "block"
DROP_OLDEST: Final = "drop_oldest"
FORWARD: Final = "forward"
#: The most rows of a new queue: each process that works on it keeps every row in memory and scans it about once a
#: minute.
ROWS_AT_MOST: Final = 20_000
#: The order of a sorted queue, and the place of a message without the header.
ASCENDING: Final = "ascending"
DESCENDING: Final = "descending"
FIRST: Final = "first"
LAST: Final = "last"
#: The greatest bound of a queue's messages: the processes that send to it count them.
MESSAGES_AT_MOST: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_MICROSECONDS: Final = "_us"
_BOUNDS: Final = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}


class Layout(BaseModel):
    """How a queue's messages are spread over rows; fixed at creation, because every process must agree on it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    time_shards: Annotated[int, Field(ge=1, le=10_000)] = 1
    time_shard_us: Annotated[int, Field(ge=SECOND, description="microseconds a time shard lasts")] = 60 * _MINUTE
    concurrency_shards: Annotated[int, Field(ge=1, le=1_024)] = 1
    priorities: Annotated[int, Field(ge=1, le=10)] = 1
    placement: Literal["time", "key", "single", "function"] = BY_TIME

    @property
    def rows(self) -> int:
        """How many rows a queue of this layout has, home rows too."""
        return (self.time_shards + 1) * self.concurrency_shards


class Behaviour(BaseModel):
    """How a queue behaves; stored with it, changed by `queues set`, followed by every process within ten seconds.

    Durations are microseconds. A failed attempt is followed by a pause of `backoff_us`, doubled each time up to
    `backoff_cap_us`, and shortened by up to half at random so that failures do not return together. `history` says
    which events are kept, and `history_kept_us` for how long. What Spark or a spool sent is not sent again for
    `deduplication_us` after it was settled. `lease_cap_us` and `max_attempts_cap` bound the options of all
    messages, old ones too. At most `max_active_processes` claim at the same time (0: any number), each under a permit
    that runs out `permit_lease_us` after it was last renewed.

    With `last_value` a message with a key is sent in place of the one that has that key (`unique="supersede"`).
    `max_messages` (0: any number) bounds the messages that are not dead; at the bound a send does what `overflow` says:
    "refuse", "block" for up to `overflow_wait_us`, "drop_oldest", or "forward" to the queue `overflow_to`.

    A message without `expires` of its own expires `expires_us` after it is due (0: never), and any message at most
    `expires_cap_us` after that (0: no cap), old ones too.

    With `sort_header` a message has the priority of the class of that header's value: of `sort_classes` the first is
    delivered first ("ascending") or last; without a class it is delivered with the first or the last of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lease_us: Annotated[int, Field(ge=LEASE_LEAST, le=LEASE_MOST)] = 2 * _MINUTE
    max_attempts: Annotated[int, Field(ge=1, le=ATTEMPTS_MOST)] = 5
    backoff_us: Annotated[int, Field(ge=0, le=24 * 60 * _MINUTE)] = 2 * SECOND
    backoff_cap_us: Annotated[int, Field(ge=0, le=24 * 60 * _MINUTE)] = 10 * _MINUTE
    paused: bool = False
    body_bytes: Annotated[int, Field(ge=1, le=BODY_BYTES_AT_MOST)] = BODY_BYTES
    history: Keeping = "failures"
    history_kept_us: Annotated[int, Field(ge=60 * _MINUTE, le=400 * _DAY)] = 30 * _DAY
    deduplication_us: Annotated[int, Field(ge=_DAY, le=REMEMBERED_MOST * SECOND)] = _DAY
    lease_cap_us: Annotated[int, Field(ge=LEASE_LEAST, le=LEASE_MOST)] = LEASE_MOST
    max_attempts_cap: Annotated[int, Field(ge=1, le=ATTEMPTS_MOST)] = ATTEMPTS_MOST
    max_active_processes: Annotated[int, Field(ge=0, le=100)] = 0
    permit_lease_us: Annotated[int, Field(ge=SECOND, le=60 * _MINUTE)] = 15 * SECOND
    last_value: bool = False
    max_messages: Annotated[int, Field(ge=0, le=MESSAGES_AT_MOST)] = 0
    overflow: Literal["refuse", "block", "drop_oldest", "forward"] = REFUSE
    overflow_to: Annotated[str, Field(pattern=rf"^({_NAME.pattern})?$")] = ""
    overflow_wait_us: Annotated[int, Field(ge=0, le=60 * _MINUTE)] = 30 * SECOND
    expires_us: Annotated[int, Field(ge=0, le=3_650 * _DAY)] = 0
    expires_cap_us: Annotated[int, Field(ge=0, le=3_650 * _DAY)] = 0
    sort_header: Annotated[str, Field(max_length=200)] = ""
    sort_classes: Annotated[str, Field(max_length=1_000)] = ""
    sort_order: Literal["ascending", "descending"] = ASCENDING
    sort_missing: Literal["first", "last"] = LAST

    def attempts(self, asked: int | None) -> int:
        """The attempts of a message: the requested number up to the cap, or the queue's if it requests none."""
        return self.max_attempts if asked is None else min(asked, self.max_attempts_cap)

    @property
    def life(self) -> int | None:
        """Microseconds from the due time of a message without `expires` until it expires; None: it does not."""
        return min((life for life in (self.expires_us, self.expires_cap_us) if life), default=None)

    def backoff(self, spent: int, chance: float) -> int:
        """Microseconds to wait after `spent` attempts; `chance` in [0, 1) decides the jitter."""
        grown = min(self.backoff_cap_us, self.backoff_us << min(max(0, spent - 1), 40))
        return grown - int(grown * chance / 2)


class Settings(BaseModel):
    """The stored settings of a queue.

    `unread`: fields of the stored behaviour that a newer release wrote, and that this one does not know or cannot read.
    They are ignored, and kept when other fields are changed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    layout: Layout = Layout()
    behaviour: Behaviour = Behaviour()
    unread: Annotated[dict[str, JsonValue], Field(exclude=True)] = {}


def check_queue_name(name: object) -> str:
    """The name itself; BadInput unless it is 1 to 100 letters, digits, '.', '_' or '-'."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    message = f"{name!r:.120} is not a valid queue name: use 1 to 100 letters (A-Z, a-z), digits, '.', '_' and '-'"
    raise BadInput(message)


def setting_name(field: str) -> str:
    """The public name of a stored field: "lease" for `lease_us`, "every" for `time_shard_us`."""
    return "every" if field == "time_shard_us" else field.removesuffix(_MICROSECONDS)


def setting_text(field: str, value: object) -> object:
    """A stored value as people write it: durations as text, other values unchanged."""
    if field.endswith(_MICROSECONDS) and isinstance(value, int) and value >= 0:
        return duration_setting_text(value)
    return value


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of an error about an unknown name: `; did you mean 'reason'?`, or nothing if no known name is similar."""
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def bad_setting(error: ValidationError) -> BadSetting:
    """The validation error with the public names and units of the settings."""
    return BadSetting("; ".join(map(_complaint, error.errors(include_url=False))))


def _complaint(detail: ErrorDetails) -> str:
    if not detail["loc"]:
        return detail["msg"]
    field = str(detail["loc"][-1])
    name, given = setting_name(field), detail["input"]
    if detail["type"] == "extra_forbidden":
        return f"a queue has no setting {name!r}"
    if bound := _BOUNDS.get(detail["type"]):
        word, limit = bound
        return f"{name} is {setting_text(field, given)} and must be {word} {setting_text(field, detail['ctx'][limit])}"
    return f"{name} is {given!r:.80}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"
