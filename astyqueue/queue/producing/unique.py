"""Sends messages with unique keys to their home rows, in commits, and handles keys that are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from astyqueue.errors import KeyTaken
from astyqueue.ids import IdSource
from astyqueue.model.message import PreparedMessage, Unique
from astyqueue.model.views import Standing
from astyqueue.protocol.admin.browse import get
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.sending.unique import CANCELS, UniqueMessage, UniqueSendResult, send_replacing, send_unique
from astyqueue.protocol.steps import BATCH_BYTES, BATCH_COLUMNS, Client, Steps

#: Messages of one commit, each with its key.
_MOST: Final = BATCH_COLUMNS // 2
#: A key may be taken, and be free again before its owner is read; after this many times in sequence KeyTaken is raised.
_TRIES: Final = 10


def send_part(
    process: Client, ids: IdSource, row: str, part: Mapping[int, PreparedMessage]
) -> Steps[dict[int, UniqueSendResult]]:
    """Send messages in one commit of their home row; returns for each position the message that has its key."""
    keyed = {place: _keyed(ids, one) for place, one in part.items()}
    results = yield from _commit(process, row, list(keyed.values()), next(iter(part.values())).unique)
    return {place: results[one.key] for place, one in keyed.items()}


def _keyed(ids: IdSource, prepared: PreparedMessage) -> UniqueMessage:
    [id_] = ids.block(1, prepared.due)
    return UniqueMessage(str(prepared.key), prepared.priority, id_, prepared.value, prepared.life)


def _commit(
    process: Client, row: str, keyed: list[UniqueMessage], unique: Unique | None
) -> Steps[dict[str, UniqueSendResult]]:
    if unique not in CANCELS:
        return (yield from send_unique(process, row, keyed))
    [wanted] = keyed
    result = yield from send_replacing(
        process, row, wanted, keeps_due=unique is Unique.REPLACE, supersedes=unique is Unique.SUPERSEDE
    )
    return {wanted.key: result}


def sent_or_kept(
    process: Client, attempt: Callable[[], Steps[UniqueSendResult]], *, key: str, unique: Unique | None
) -> Steps[UniqueSendResult]:
    """The result of attempts to take a key; KeyTaken if it has an owner that `unique` does not keep.

    If the previous owner ended before its state was read, the attempt is repeated.
    """
    for _ in range(_TRIES):
        result = yield from attempt()
        if result.sent or unique is Unique.KEEP:
            return result
        found = yield from get(process, result.id)
        absent = Standing.DELAYED if result.repeats else Standing.DEAD
        standing = found.standing if found else absent
        stays = unique in (Unique.REJECT, Unique.SUPERSEDE) and standing is not Standing.DEAD
        if standing is Standing.IN_FLIGHT or stays:
            break
    raise KeyTaken(key, result.id, standing.value, repeats=result.repeats)


def commits_of(ring: Ring, prepared: Mapping[int, PreparedMessage]) -> Iterator[tuple[str, dict[int, PreparedMessage]]]:
    """The home row and the messages, by position, of each commit that sends these messages."""
    by_row: dict[str, list[tuple[int, PreparedMessage]]] = {}
    for place, one in prepared.items():
        by_row.setdefault(ring.home(ring.shard_of_key(str(one.key))), []).append((place, one))
    for row, items in by_row.items():
        for part in _parts(items):
            yield row, part


def _parts(items: list[tuple[int, PreparedMessage]]) -> Iterator[dict[int, PreparedMessage]]:
    """The messages of each commit, by position: no key twice, and a message that replaces another one is alone."""
    part: dict[int, PreparedMessage] = {}
    for place, one in items:
        size = sum(len(other.value) for other in part.values()) + len(one.value)
        full = len(part) >= _MOST or size > BATCH_BYTES or any(other.key == one.key for other in part.values())
        if part and (full or one.unique in CANCELS or next(iter(part.values())).unique in CANCELS):
            yield part
            part = {}
        part[place] = one
    if part:
        yield part
