"""Service levels: a limit on a length of time of each message, written `wait<=5s` or `emails:end<=1m`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from astyqueue.durations import as_microseconds
from astyqueue.errors import BadInput
from astyqueue.spark.pipeline.schemas import LENGTHS
from astyqueue.units import SECOND

_WRITTEN: Final = re.compile(r"\s*(?:(?P<queue>[A-Za-z0-9._-]+):)?\s*(?P<length>[a-z]+)\s*<=\s*(?P<limit>\S.*?)\s*")
_COLUMNS: Final = {name: column for name, column, _ in LENGTHS}


class Objective(NamedTuple):
    """A length of time (wait, run or end, as in the facts) is to be at most `limit` microseconds."""

    length: str
    limit: int
    text: str

    @property
    def column(self) -> str:
        """The column of events that has the length."""
        return _COLUMNS[self.length]


#: The default: handlers begin within ten seconds of the due time.
DEFAULT: Final = Objective("wait", 10 * SECOND, "wait<=10s")


class Objectives:
    """The objective of each queue."""

    def __init__(self, of_queues: dict[str, Objective] | None = None, otherwise: Objective = DEFAULT) -> None:
        """`of_queues` has the queues with an objective of their own; all others have `otherwise`."""
        self.of_queues = dict(of_queues or {})
        self.otherwise = otherwise

    @classmethod
    def read(cls, texts: Iterable[str]) -> Objectives:
        """Objectives written `wait<=5s` (any queue) or `emails:end<=1m`, else BadInput; the last for a queue counts."""
        of_queues: dict[str, Objective] = {}
        otherwise = DEFAULT
        for text in texts:
            queue, objective = _read(text)
            if queue:
                of_queues[queue] = objective
            else:
                otherwise = objective
        return cls(of_queues, otherwise)

    def of(self, queue: str) -> Objective:
        """The objective of a queue."""
        return self.of_queues.get(queue, self.otherwise)


def _read(text: str) -> tuple[str | None, Objective]:
    found = _WRITTEN.fullmatch(text)
    if found is None or found["length"] not in _COLUMNS:
        message = f"{text!r} is not a service level: write wait<=5s, run<=2m or emails:end<=1h (wait, run or end)"
        raise BadInput(message)
    limit = as_microseconds(found["limit"])
    return found["queue"], Objective(found["length"], limit, f"{found['length']}<={found['limit']}")
