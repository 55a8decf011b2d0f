"""Small histories, told by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from pyarrow import Table
from pyspark.sql import DataFrame, SparkSession

from astyqueue import ids
from astyqueue.clock import microseconds
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Event, Kind
from astyqueue.spark.pipeline.batch import as_events
from astyqueue.spark.schemas import HISTORY, Shaping, schema_of
from astyqueue.units import SECOND

#: Noon of some day, and the length of one.
NOON: Final = microseconds(datetime(2026, 3, 14, 12, tzinfo=UTC))
DAY: Final = 86_400 * SECOND
QUEUE: Final = "emails"


class Life:
    """The events of one message; each call adds those of one moment, in seconds after noon."""

    def __init__(
        self, name: str, sent: float = 0.0, *, due: float | None = None, queue: str = QUEUE, **told: str
    ) -> None:
        """It is sent; `told` are its row, task, tenant, schedule and key."""
        at = NOON + int(sent * SECOND)
        message = MessageId(told.get("row", f"{queue}:0:0"), 0, ids.derived(at, name))
        first_due = at if due is None else NOON + int(due * SECOND)
        about = Event(
            at, Kind.SENT, queue, message, worker="web1:7:aa", sent=at, due=first_due, task=told.get("task", "welcome")
        )
        self._about = replace(about, tenant=told.get("tenant"), schedule=told.get("schedule"), key=told.get("key"))
        self.events = [self._about]
        self._attempt = 0
        self._claimed = self._began = at
        self._worker = ""

    def sent_told(self, *at: float) -> Life:
        """Its sent events were written at these moments instead, as tasks of Spark write them."""
        self.events[:1] = [replace(self._about, at=NOON + int(moment * SECOND)) for moment in at]
        return self

    def claimed(self, at: float, worker: str = "host1:8:bb", *, began: float | None = None) -> Life:
        """A worker claims it."""
        self._attempt += 1
        self._worker = worker
        self._claimed = NOON + int(at * SECOND)
        self._began = self._claimed if began is None else NOON + int(began * SECOND)
        return self._tell(at, Kind.CLAIMED, claimed=self._claimed)

    def done(self, at: float, *, lost: bool = False) -> Life:
        """Its handler returned."""
        return self._tell(at, Kind.DONE, lost=lost, **self._ending())

    def failed(self, at: float, reason: str = "KeyError: 'x'", *, dies: bool = False) -> Life:
        """Its handler raised."""
        self._tell(at, Kind.FAILED, reason=reason, **self._ending())
        return self._tell(
            at, Kind.DEAD if dies else Kind.RETRIED, reason=reason, why="failed" if dies else "", **self._ending()
        )

    def rejected(self, at: float, reason: str) -> Life:
        """Its handler rejects it: it is dead at once."""
        return self._tell(at, Kind.DEAD, reason=reason, why="rejected", **self._ending())

    def released(self, at: float) -> Life:
        """Its worker releases it, which spends no attempt."""
        self._tell(at, Kind.RELEASED, **self._ending())
        self._attempt -= 1
        return self

    def lapsed(self, at: float) -> Life:
        """Its lease ran out."""
        return self._tell(at, Kind.FAILED, why="lapsed", reason="its lease ran out")

    def cancelled(self, at: float) -> Life:
        """Somebody deleted it."""
        return self._order(at, Kind.CANCELLED, why="deleted")

    def redriven(self, at: float) -> Life:
        """It is no dead letter any more."""
        self._attempt = 0
        return self._order(at, Kind.REDRIVEN)

    def _order(self, at: float, kind: Kind, *, why: str = "") -> Life:
        """A command on it, whose event has of the message only its id and its key."""
        about = self._about
        moment = NOON + int(at * SECOND)
        self.events.append(Event(moment, kind, about.queue, about.message, key=about.key, worker="desk1:9:dd", why=why))
        return self

    def _ending(self) -> dict[str, int]:
        return {"claimed": self._claimed, "began": self._began}

    def _tell(self, at: float, kind: Kind, **told: object) -> Life:
        moment = NOON + int(at * SECOND)
        event = replace(self._about, at=moment, kind=kind, attempt=self._attempt, worker=self._worker, **told)  # type: ignore[arg-type]  # the fields of events
        self.events.append(event)
        return self


def fired(at: float, occurrence: float, schedule: str = "digest", *, queue: str = QUEUE) -> Event:
    """A schedule sent a message."""
    moment = NOON + int(at * SECOND)
    message = MessageId(f"{queue}:home:0", 0, ids.derived(moment, schedule))
    occurs = NOON + int(occurrence * SECOND)
    return Event(
        moment, Kind.FIRED, queue, message, key=schedule, schedule=schedule, sent=moment, due=occurs, slot=occurs
    )


def frame(spark: SparkSession, events: Iterable[Event]) -> DataFrame:
    """Events as the data source has them, in a relation of this process: no worker of Python makes its rows."""
    schema = schema_of(HISTORY)
    rows = Table.from_batches([Shaping(schema).events(list(events))])
    return as_events(spark.createDataFrame(rows, schema))


def told(*lives: Life) -> list[Event]:
    """All events of some messages."""
    return [event for life in lives for event in life.events]
