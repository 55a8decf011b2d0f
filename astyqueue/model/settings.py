"""What is fixed about a queue when it is created, and what may be changed while it runs."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from astyqueue.model.bodies import BODY_BYTES, BODY_BYTES_AT_MOST
from astyqueue.model.event import Keeping
from astyqueue.model.message import ATTEMPTS_MOST, LEASE_LEAST, LEASE_MOST, REMEMBERED_MOST

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_DAY: Final = 24 * 60 * _MINUTE
#: Placements: by time, and by the key if there is one; by key whatever the time; all in one row; by a function of the producers.
BY_TIME: Final = "time"
BY_KEY: Final = "key"
SINGLE: Final = "single"
FUNCTION: Final = "function"
#: Rows of a queue that is created: each process that works on it remembers every one, and looks at each about once a minute.
ROWS_AT_MOST: Final = 20_000


class Layout(BaseModel):
    """How a queue's messages are spread over rows; fixed at creation, because every process must agree on it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    time_shards: Annotated[int, Field(ge=1, le=10_000)] = 1
    time_shard_us: Annotated[int, Field(ge=_SECOND, description="microseconds a time shard lasts")] = 60 * _MINUTE
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
    `backoff_cap_us`, and shortened by up to half at random so that failures do not return together. `history` says which
    events are kept, and `history_kept_us` for how long. A row that Spark sent is not sent again for `deduplication_us` after its
    message was settled. `lease_cap_us` and `max_attempts_cap` bound what a message asks for itself, also one that was sent before.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lease_us: Annotated[int, Field(ge=LEASE_LEAST, le=LEASE_MOST)] = 2 * _MINUTE
    max_attempts: Annotated[int, Field(ge=1, le=ATTEMPTS_MOST)] = 5
    backoff_us: Annotated[int, Field(ge=0, le=24 * 60 * _MINUTE)] = 2 * _SECOND
    backoff_cap_us: Annotated[int, Field(ge=0, le=24 * 60 * _MINUTE)] = 10 * _MINUTE
    paused: bool = False
    body_bytes: Annotated[int, Field(ge=1, le=BODY_BYTES_AT_MOST)] = BODY_BYTES
    history: Keeping = "failures"
    history_kept_us: Annotated[int, Field(ge=60 * _MINUTE, le=400 * _DAY)] = 30 * _DAY
    deduplication_us: Annotated[int, Field(ge=_DAY, le=REMEMBERED_MOST * _SECOND)] = _DAY
    lease_cap_us: Annotated[int, Field(ge=LEASE_LEAST, le=LEASE_MOST)] = LEASE_MOST
    max_attempts_cap: Annotated[int, Field(ge=1, le=ATTEMPTS_MOST)] = ATTEMPTS_MOST

    def attempts(self, asked: int | None) -> int:
        """How many attempts a message has that asks for so many, or for none of its own."""
        return self.max_attempts if asked is None else min(asked, self.max_attempts_cap)

    def backoff(self, spent: int, chance: float) -> int:
        """Microseconds to wait after this many spent attempts; `chance` in [0, 1) decides the jitter."""
        grown = min(self.backoff_cap_us, self.backoff_us << min(max(0, spent - 1), 40))
        return grown - int(grown * chance / 2)


class Settings(BaseModel):
    """All that is stored about a queue.

    `unread`: fields of the stored behaviour that this release does not know, or whose values it cannot read; a newer one wrote them. They
    are ignored here, and stay as they are when something else is changed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    layout: Layout = Layout()
    behaviour: Behaviour = Behaviour()
    unread: Annotated[dict[str, JsonValue], Field(exclude=True)] = {}
