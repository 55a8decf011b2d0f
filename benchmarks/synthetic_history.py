"""A synthetic history: the events of a day of a queue, written straight into the history."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from astyqueue import MessageQueue, ids
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Event, Kind
from astyqueue.protocol.history import record_events
from astyqueue.protocol.layout.rows import Ring
from astyqueue.units import SECOND

_KEPT: Final = 30 * 86_400 * SECOND
_TOGETHER: Final = 2_000
#: A task, how often it is sent, how long it runs (microseconds, in the middle), and how often it fails.
_TASKS: Final = (
    ("mail.welcome", 6, 40_000, 0.01),
    ("report.render", 1, 900_000, 0.04),
    ("image.resize", 3, 250_000, 0.002),
)
_REASONS: Final = (
    "TimeoutError: no answer after 30 s",
    "KeyError: 'user-{}'",
    "ConnectionResetError: 10.0.0.{}:5432",
    "ValueError: row {} is empty",
)
_TENANTS: Final = ("acme", "globex", "initech", "umbrella")


class Happened:
    """Events of `count` messages, evenly over a time that begins at `since` (microseconds)."""

    def __init__(self, queue: str, rows: list[str], *, since: int, gap: int, seed: int = 1) -> None:
        """Each message is sent `gap` microseconds after the one before, more or less."""
        self._queue = queue
        self._rows = rows
        self._since = since
        self._gap = gap
        self._chance = random.Random(seed)

    def events(self, messages: int) -> Iterator[Event]:
        """What happens to them, message by message."""
        for number in range(messages):
            yield from self._life(number)

    def _life(self, number: int) -> Iterator[Event]:
        chance = self._chance
        task, _, usual, fails = chance.choices(_TASKS, [weight for _, weight, *_ in _TASKS])[0]
        at = self._since + number * self._gap + chance.randrange(max(1, self._gap))
        message = MessageId(self._rows[number % len(self._rows)], 0, ids.derived(at, str(number)))
        tenant, worker = chance.choices(_TENANTS, (8, 4, 2, 1))[0], f"host{chance.randrange(4)}:1:00"
        about = Event(at, Kind.SENT, self._queue, message, worker="web:1:00", sent=at, due=at, task=task, tenant=tenant)
        yield about
        for attempt in itertools.count(1):
            claimed = at + int(chance.lognormvariate(11, 1.2))
            at = claimed + int(usual * chance.lognormvariate(0, 0.5))
            about = replace(about, at=claimed, kind=Kind.CLAIMED, attempt=attempt, worker=worker, claimed=claimed)
            yield about
            ended = replace(about, at=at, began=claimed, kind=Kind.DONE)
            if chance.random() >= fails:
                yield ended
                return
            reason = chance.choice(_REASONS).format(chance.randrange(250))
            dies = attempt == 3  # noqa: PLR2004 - attempts that are enough
            yield replace(ended, kind=Kind.FAILED, reason=reason)
            yield replace(ended, kind=Kind.DEAD if dies else Kind.RETRIED, reason=reason, why="failed" if dies else "")
            if dies:
                return
            at += 2 * SECOND


def make_up(queue: MessageQueue, messages: int, *, since: int, length: int) -> int:
    """Write the history of these messages, sent in `length` microseconds from `since`; returns how many events."""
    ring = Ring(queue.name, queue.settings.layout)
    rows = [ring.row(since, shard) for shard in range(ring.layout.concurrency_shards)]
    events = Happened(queue.name, rows, since=since, gap=max(1, length // messages)).events(messages)
    written = 0
    while some := list(itertools.islice(events, _TOGETHER)):
        queue.run(record_events(ring, some, _KEPT))
        written += len(some)
    return written
