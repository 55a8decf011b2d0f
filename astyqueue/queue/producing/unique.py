"""Sends messages with unique keys to their home rows, in commits, and handles keys that are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from astyqueue.errors import KeyTaken
from astyqueue.ids import IdSource
from astyqueue.model.compose import PreparedMessage, Unique
from astyqueue.model.views import Standing
from astyqueue.protocol.admin.browse import get
from astyqueue.protocol.client import Client
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.sending.unique import CANCELS, KeyHolder, UniqueMessage, send_replacing, send_unique
from astyqueue.protocol.steps import Steps

#: Limits of one commit: messages, each with its key, and bytes of their values.
_MOST: Final = 100
_BYTES: Final = 512 * 1024
#: A key may be taken, and be free again before its holder is read; after this many times in sequence KeyTaken is
#: raised.
_TRIES: Final = 10

#: Called with the rows that messages were sent to, each with the earliest moment at which one of them is due.
Arrived = Callable[[list[tuple[str, int]]], Steps[None]]


class UniqueSender:
    """Sends messages with unique keys."""

    def __init__(self, process: Client, ids: IdSource, *, ring: Ring, arrived: Arrived) -> None:
        """`arrived` is called after messages are in the store."""
        self._process = process
        self._ids = ids
        self._ring = ring
        self._arrived = arrived

    def send(self, composed: PreparedMessage) -> Steps[KeyHolder]:
        """Send one, or keep the holder of its key if the message says "keep"; else KeyTaken is raised."""

        def attempt() -> Steps[KeyHolder]:
            [holder] = (yield from self.send_many({0: composed})).values()
            return holder

        return (yield from sent_or_kept(self._process, attempt, key=str(composed.key), unique=composed.unique))

    def send_many(self, composed: Mapping[int, PreparedMessage]) -> Steps[dict[int, KeyHolder]]:
        """Send many; returns for each position the message that has its key."""
        by_row: dict[str, list[tuple[int, PreparedMessage]]] = {}
        for place, one in composed.items():
            by_row.setdefault(self._row(one), []).append((place, one))
        holders: dict[int, KeyHolder] = {}
        for row, items in by_row.items():
            for part in _parts(items):
                holders |= yield from self._send_part(row, part)
        return holders

    def _row(self, composed: PreparedMessage) -> str:
        return self._ring.home(self._ring.shard_of_key(str(composed.key)))

    def _send_part(self, row: str, part: dict[int, PreparedMessage]) -> Steps[dict[int, KeyHolder]]:
        keyed = {place: self._keyed(one) for place, one in part.items()}
        holders = yield from self._commit(row, list(keyed.values()), next(iter(part.values())).unique)
        if sent := [holder.id.moment for holder in holders.values() if holder.sent]:
            yield from self._arrived([(row, min(sent))])
        return {place: holders[one.key] for place, one in keyed.items()}

    def _commit(self, row: str, keyed: list[UniqueMessage], unique: Unique | None) -> Steps[dict[str, KeyHolder]]:
        if unique not in CANCELS:
            return (yield from send_unique(self._process, row, keyed))
        [wanted] = keyed
        holder = yield from send_replacing(self._process, row, wanted, keeps_due=unique is Unique.REPLACE)
        return {wanted.key: holder}

    def _keyed(self, composed: PreparedMessage) -> UniqueMessage:
        [id_] = self._ids.block(1, composed.due)
        return UniqueMessage(str(composed.key), composed.priority, id_, composed.value)


def sent_or_kept(
    process: Client, attempt: Callable[[], Steps[KeyHolder]], *, key: str, unique: Unique | None
) -> Steps[KeyHolder]:
    """The holder of a key after attempts to take it, if `unique` allows that holder; KeyTaken if not.

    If the previous holder ended before its state was read, the attempt is repeated.
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


def _parts(items: list[tuple[int, PreparedMessage]]) -> Iterator[dict[int, PreparedMessage]]:
    """The messages of each commit, by position: no key twice, and a message that replaces another one is alone."""
    part: dict[int, PreparedMessage] = {}
    for place, one in items:
        size = sum(len(other.value) for other in part.values()) + len(one.value)
        full = len(part) >= _MOST or size > _BYTES or any(other.key == one.key for other in part.values())
        if part and (full or one.unique in CANCELS or next(iter(part.values())).unique in CANCELS):
            yield part
            part = {}
        part[place] = one
    if part:
        yield part
