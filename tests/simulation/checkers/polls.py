"""What each poll that finds nothing to do walks over: promise 4, poll by poll, in every world.

A poll reads names of messages, and the graves among them. A grave up to the head of its priority is passed once by the first
look and once by each of the late looks; a grave beyond the head is in the way of each poll, so there may be few of those.
Both hold from the moment on at which a process learnt the header of the row, while that is the one that stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import LOOKS
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.stores import key_codec
from tests.simulation.engine.client import SimulatedProcess
from tests.simulation.engine.history import Dear, History

#: Each of the scans passes a tombstone once. So does the peek of a process that watches the headers of all rows, and where there are
#: several priorities the one ahead of the first scan.
PASSES: Final = LOOKS + 2
#: Graves of its own that one poll of a process may walk over beyond the head.
AHEAD: Final = 12


@dataclass(slots=True)
class _Known:
    """What a process knew of a row after a poll, and how often each grave up to the head was passed since it learnt that."""

    of: tuple[Any, ...]
    timers: object
    passes: Counter[bytes]

    def still(self, snapshot: RowSnapshot, error: int) -> bool:
        """Whether it knows the same: neither the header, nor the timers, nor its clock was changed, and no look was set back."""
        return self.timers is snapshot.timers and self.of == _of(snapshot, error)


def _of(snapshot: RowSnapshot, error: int) -> tuple[Any, ...]:
    return snapshot.known, snapshot.value, dict(snapshot.looks.set_back), error


class Polls:
    """The polls of one process. `standing` tells the value of the header that stands in a row."""

    def __init__(self, client: SimulatedProcess, history: History, standing: Callable[[str], bytes | None]) -> None:
        """No row is known."""
        self._client = client
        self._history = history
        self._standing = standing
        self._known: dict[str, _Known] = {}

    def begin(self, snapshots: Iterable[RowSnapshot]) -> None:
        """A poll of these rows begins."""
        for snapshot in snapshots:
            self._client.walked.pop(snapshot.row, None)
            self._remember(snapshot)

    def found_nothing(self, snapshots: Iterable[RowSnapshot]) -> None:
        """The poll of these rows ended, and there was nothing to do: see what it walked over, where it learnt nothing new."""
        for snapshot in snapshots:
            walked = self._client.walked.pop(snapshot.row, None)
            known = self._remember(snapshot)
            if walked and known and snapshot.known and self._standing(snapshot.row) == snapshot.value:
                self._judge(snapshot, walked, known.passes)

    def _remember(self, snapshot: RowSnapshot) -> _Known | None:
        """What was known before and is still, or nothing: then it counts from now on."""
        known, error = self._known.get(snapshot.row), self._client.clock.error
        if known and known.still(snapshot, error):
            return known
        self._known[snapshot.row] = _Known(_of(snapshot, error), snapshot.timers, Counter())
        return None

    def _judge(self, snapshot: RowSnapshot, walked: list[bytes], passes: Counter[bytes]) -> None:
        ahead: set[Id] = set()
        for encoded in walked:
            name = key_codec.decode(encoded)
            if name.id > snapshot.looks.heads[name.priority]:
                ahead.add(name.id)
            else:
                passes[encoded] += 1
        self._history.idle_polls += 1
        most = max(passes.values(), default=0)
        if most > PASSES or len(ahead) > AHEAD:
            self._history.dear.append(Dear(self._client.name, snapshot.row, most, frozenset(ahead)))
