"""Service levels: which part of a message's way is to be how short, said as `wait<=5s` or `emails:end<=1m`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from astyqueue.durations import as_microseconds
from astyqueue.errors import BadInput
from astyqueue.spark.pipelines.outputs import LENGTHS

_WRITTEN: Final = re.compile(r"\s*(?:(?P<queue>[A-Za-z0-9._-]+):)?\s*(?P<length>[a-z]+)\s*<=\s*(?P<limit>\S.*?)\s*")
_COLUMNS: Final = {name: column for name, column, _ in LENGTHS}


class Objective(NamedTuple):
    """That a length of time (wait, run or end, as in the facts) is at most so many microseconds."""

    length: str
    limit: int
    text: str

    @property
    def column(self) -> str:
        """The column of events that has the length."""
        return _COLUMNS[self.length]


#: What counts as good where nobody said anything: handlers begin within ten seconds of when they were to.
DEFAULT: Final = Objective("wait", 10_000_000, "wait<=10s")


class Objectives:
    """What is asked for of each queue."""

    def __init__(self, of_queues: dict[str, Objective] | None = None, otherwise: Objective = DEFAULT) -> None:
        """Some queues have one of their own."""
        self.of_queues = dict(of_queues or {})
        self.otherwise = otherwise

    @classmethod
    def read(cls, texts: Iterable[str]) -> Objectives:
        """Those written as `wait<=5s` (any queue) or `emails:end<=1m`; of two for the same queue the last counts. Else BadInput."""
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
        """That of a queue."""
        return self.of_queues.get(queue, self.otherwise)


def _read(text: str) -> tuple[str | None, Objective]:
    found = _WRITTEN.fullmatch(text)
    if found is None or found["length"] not in _COLUMNS:
        message = f"a service level is written wait<=5s, run<=2m or emails:end<=1h (wait, run or end), and this is not: {text!r}"
        raise BadInput(message)
    limit = as_microseconds(found["limit"])
    return found["queue"], Objective(found["length"], limit, f"{found['length']}<={found['limit']}")
