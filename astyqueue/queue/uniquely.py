"""Sending messages with unique keys: to their home rows, in commits, and what becomes of those whose keys are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from astyqueue.errors import KeyTaken
from astyqueue.ids import IdSource
from astyqueue.model.outgoing import Composed, Unique
from astyqueue.model.views import Standing
from astyqueue.protocol.browse import get
from astyqueue.protocol.process import Process
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.steps import Steps
from astyqueue.protocol.unique import CANCELS, Holder, Keyed, send_replacing, send_unique

#: Bounds of one commit: messages, each with its key, and bytes of their values.
_MOST: Final = 100
_BYTES: Final = 512 * 1024
#: A key may be taken, and free again before one sees by whom; so many times in a row is no accident.
_TRIES: Final = 10

#: Told of the rows that were sent to, and the first moment for which that was.
Arrived = Callable[[list[tuple[str, int]]], Steps[None]]


class Uniquely:
    """Sends with unique keys."""

    def __init__(self, process: Process, ids: IdSource, *, ring: Ring, arrived: Arrived) -> None:
        """`arrived` is told of what is in the store."""
        self._process = process
        self._ids = ids
        self._ring = ring
        self._arrived = arrived

    def send(self, composed: Composed) -> Steps[Holder]:
        """Send one, or keep the one that has its key if that is wanted; otherwise KeyTaken is raised."""

        def attempt() -> Steps[Holder]:
            [holder] = (yield from self.send_many({0: composed})).values()
            return holder

        return (yield from sent_or_kept(self._process, attempt, key=str(composed.key), unique=composed.unique))

    def send_many(self, composed: Mapping[int, Composed]) -> Steps[dict[int, Holder]]:
        """Send many, and say for each place which message has its key."""
        by_row: dict[str, list[tuple[int, Composed]]] = {}
        for place, one in composed.items():
            by_row.setdefault(self._row(one), []).append((place, one))
        holders: dict[int, Holder] = {}
        for row, items in by_row.items():
            for part in _parts(items):
                holders |= yield from self._send_part(row, part)
        return holders

    def _row(self, composed: Composed) -> str:
        return self._ring.home(self._ring.shard_of_key(str(composed.key)))

    def _send_part(self, row: str, part: dict[int, Composed]) -> Steps[dict[int, Holder]]:
        keyed = {place: self._keyed(one) for place, one in part.items()}
        holders = yield from self._commit(row, list(keyed.values()), next(iter(part.values())).unique)
        if sent := [holder.id.moment for holder in holders.values() if holder.sent]:
            yield from self._arrived([(row, min(sent))])
        return {place: holders[one.key] for place, one in keyed.items()}

    def _commit(self, row: str, keyed: list[Keyed], unique: Unique | None) -> Steps[dict[str, Holder]]:
        if unique not in CANCELS:
            return (yield from send_unique(self._process, row, keyed))
        [wanted] = keyed
        holder = yield from send_replacing(self._process, row, wanted, keeps_due=unique is Unique.REPLACE)
        return {wanted.key: holder}

    def _keyed(self, composed: Composed) -> Keyed:
        [id_] = self._ids.block(1, composed.due)
        return Keyed(str(composed.key), composed.priority, id_, composed.value)


def sent_or_kept(process: Process, attempt: Callable[[], Steps[Holder]], *, key: str, unique: Unique | None) -> Steps[Holder]:
    """Who has the key after an attempt to take it, if that is as wanted; KeyTaken if not.

    A message that had the key may have ended before one sees where it stands: then it is tried again.
    """
    for _ in range(_TRIES):
        holder = yield from attempt()
        if holder.sent or unique is Unique.KEEP:
            return holder
        found = yield from get(process, holder.id)
        absent = Standing.DELAYED if holder.repeats else Standing.DEAD
        standing = found.standing if found else absent
        if standing is Standing.IN_FLIGHT or (unique is Unique.REJECT and standing is not Standing.DEAD):
            break
    raise KeyTaken(key, holder.id, standing.value, repeats=holder.repeats)


def _parts(items: list[tuple[int, Composed]]) -> Iterator[dict[int, Composed]]:
    """What goes into one commit each, by place: no key twice, and one that replaces another message alone."""
    part: dict[int, Composed] = {}
    for place, one in items:
        size = sum(len(other.value) for other in part.values()) + len(one.value)
        full = len(part) >= _MOST or size > _BYTES or any(other.key == one.key for other in part.values())
        if part and (full or one.unique in CANCELS or next(iter(part.values())).unique in CANCELS):
            yield part
            part = {}
        part[place] = one
    if part:
        yield part
