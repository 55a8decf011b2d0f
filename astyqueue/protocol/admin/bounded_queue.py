"""The messages of a queue whose number is bounded: how many there are, and the deletion of the oldest."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from typing import Final, NamedTuple

from astyqueue.errors import Undecodable
from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.admin.browse import contents
from astyqueue.protocol.admin.delete import OnDeleted, release_keys
from astyqueue.protocol.layout.columns import Mark, State, Type, dead_name, message_name
from astyqueue.protocol.layout.rows import is_home
from astyqueue.protocol.parallel_reads import in_parallel
from astyqueue.protocol.row.header_commit import COMMIT_MESSAGES, CommitLoop, CommitPlan, RemovalPlan
from astyqueue.protocol.row.paging import peek_snapshot, scanned_up_to, unlisted_page
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.steps import Client, Steps, read_one
from astyqueue.store import Named

_eviction_order: Final = attrgetter("priority", "id")


class Depth(NamedTuple):
    """How many messages are not dead, as far as they were counted, and the first ones to delete.

    Those are of the lowest priority, the oldest of it first, and not leased.
    """

    messages: int
    oldest: Sequence[MessageId] = ()


def measure(process: Client, rows: Sequence[str], levels: int, *, most: int, oldest: int = 0) -> Steps[Depth]:
    """Count the messages of these rows, and find the `oldest` ones; reads their names, of at most `most` in each row.

    The rows are read at different moments. One that cannot be read counts as empty.
    """
    now = process.now()
    found = yield from in_parallel(_measured(row, levels, now, most=most, oldest=oldest) for row in rows)
    first = heapq.nsmallest(oldest, chain.from_iterable(one.oldest for one in found), key=_eviction_order)
    return Depth(sum(one.messages for one in found), first)


def _measured(row: str, levels: int, now: int, *, most: int, oldest: int) -> Steps[Depth]:
    try:
        snapshot = yield from peek_snapshot(row, levels, now)
    except Undecodable:
        return Depth(0)
    count = len(snapshot.loaded_timers.hidden)
    found = list(dict.fromkeys(_returned(snapshot, now))) if oldest else []  # one may move while timers are read
    waiting: list[MessageId] = []  # apart from those: a lower priority, or an older message, comes first
    for level in range(levels):
        after: Id | None = scanned_up_to(snapshot, level)
        while after is not None and count < most:
            page = yield from unlisted_page(snapshot, level, after)
            waiting += [MessageId(row, level, id_) for id_ in islice(page.ids, oldest - len(waiting))]
            count += len(page.ids)
            after = page.last
    return Depth(count, [*found, *waiting])


def _returned(snapshot: RowSnapshot, now: int) -> Iterator[MessageId]:
    """The messages that timers list although no consumer has them: those given back, or whose lease has run out."""
    for timer, one in snapshot.loaded_timers.hidden_messages():
        if isinstance(one, Mark) or timer.state != State.LEASED or timer.due <= now:
            yield MessageId(snapshot.row, one.priority, one.id)


def delete_waiting(process: Client, messages: Sequence[MessageId], on_deleted: OnDeleted) -> Steps[None]:
    """Delete those that still wait; calls `on_deleted` after each commit.

    One that was leased meanwhile, or is dead or gone, is left.
    """
    by_row: dict[str, list[MessageId]] = {}
    for message in messages:
        by_row.setdefault(message.row, []).append(message)
    for row, some in by_row.items():
        loop = CommitLoop(process, RowSnapshot(row, 1))
        most = COMMIT_MESSAGES // 2 if is_home(row) else COMMIT_MESSAGES  # with their keys they are two columns each
        for first in range(0, len(some), most):
            plan = yield from loop.carry_out(partial(_deletion, process, some[first : first + most]))
            if plan:
                on_deleted([MessageId(row, name.priority, name.id) for name in plan.messages])


def _deletion(process: Client, messages: Sequence[MessageId], snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
    returned = set(_returned(snapshot, process.now()))
    wanted = [one for one in messages if one.id not in snapshot.loaded_timers.hidden or one in returned]
    names = [name(one.priority, one.id) for one in wanted for name in (message_name, dead_name)]
    found = (yield from read_one(Named(snapshot.row, tuple(names), values=False), exact=True)) if names else []
    dead = {column.name.id for column in found if column.name.type == Type.DEAD}
    waiting = [column.name for column in found if column.name.type == Type.MESSAGE and column.name.id not in dead]
    if not waiting:
        return None
    plan = RemovalPlan(waiting, [], snapshot.loaded_timers.without({name.id for name in waiting}))
    if not is_home(snapshot.row):
        return plan
    keyed = yield from contents([MessageId(snapshot.row, name.priority, name.id) for name in waiting])
    return (yield from release_keys(plan, snapshot.row, keyed))
