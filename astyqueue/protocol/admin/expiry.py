"""Expired messages that no claim reaches become dead letters.

They are in a queue without consumers, or of a priority for which others never leave room.
Names show them where a queue bounds the life of its messages: an id has the moment at which its message was due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import ClassVar, Final, cast

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.admin.browse import contents
from astyqueue.protocol.claiming.selection import EXPIRED, DeadLettered
from astyqueue.protocol.layout.columns import Dead, Entry, State, dead_name
from astyqueue.protocol.layout.unique_key import owned_keys, settle_effects
from astyqueue.protocol.row.header_commit import CommitLoop, CommitPlan
from astyqueue.protocol.row.paging import peek_snapshot, scanned_up_to, unlisted_page
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.steps import Client, Steps, read_one
from astyqueue.store import Named, Put

#: Messages in one commit, each of two columns at most, and commits of one call.
_TOGETHER: Final = 100
_COMMITS: Final = 10


@dataclass(slots=True)
class _Burial(CommitPlan):
    """A commit that makes dead letters; `puts` are their columns."""

    acts_late: ClassVar[bool] = False

    buried: list[DeadLettered] = field(default_factory=list)

    def was_done(self, row: str) -> Steps[bool]:
        """Whether a dead letter is there as this commit would have written it; another sweep names another moment."""
        written = {put.name: put.value for put in self.puts}
        found = (yield from read_one(Named(row, tuple(written)), exact=True)) if written else []
        return any(column.value == written[column.name] for column in found)


def bury_expired(
    process: Client, row: str, levels: int, life: int, on_buried: Callable[[list[DeadLettered]], object]
) -> Steps[None]:
    """Make dead letters of messages that were due `life` microseconds ago and are not leased: 1000 at most.

    Reads names; it commits only if a plain read has found one. `on_buried` is called after each commit.
    """
    snapshot = yield from peek_snapshot(row, levels, process.now())
    if not (yield from _expired(snapshot, process.now(), life)):
        return
    loop = CommitLoop(process, RowSnapshot(row, levels))
    for _ in range(_COMMITS):
        plan = yield from loop.carry_out(partial(_plan, process, life))
        if plan is None:
            break
        on_buried(cast("_Burial", plan).buried)


def _plan(process: Client, life: int, snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
    now = process.now()
    entries = yield from _expired(snapshot, now, life)
    if not entries:
        return None
    plan = _Burial(shrunk=snapshot.loaded_timers.without({entry.id for entry in entries}))
    found = yield from contents([MessageId(snapshot.row, entry.priority, entry.id) for entry in entries])
    freed = {}
    for entry in entries:
        content = found.get(MessageId(snapshot.row, entry.priority, entry.id))
        if content is None:
            continue
        death = Dead(now, entry.spent, "expired", EXPIRED, "")
        plan.puts.append(Put(dead_name(entry.priority, entry.id), death.encode()))
        plan.buried.append(DeadLettered(entry, death, content.envelope))
        if content.envelope:
            freed[entry.id] = settle_effects(entry.priority, entry.id, content.envelope)
    plan.freed += yield from owned_keys(snapshot.row, freed)
    return plan


def _expired(snapshot: RowSnapshot, now: int, life: int) -> Steps[list[Entry]]:
    """Expired messages of a row, those that timers list first, up to the number of one commit."""
    bound = ids.first_at(now - life)
    found = list(islice((one for one in _returned(snapshot, now) if one.id < bound), _TOGETHER))
    for level in range(snapshot.levels):
        after: Id | None = scanned_up_to(snapshot, level)
        while after is not None and not found and after < bound:
            page = yield from unlisted_page(snapshot, level, after, until=bound, limit=_TOGETHER)
            found = [Entry(id_, level, 0) for id_ in page.ids]
            after = page.last
    return found


def _returned(snapshot: RowSnapshot, now: int) -> Iterator[Entry]:
    """The messages that timers list although no consumer has them. The next claim deletes those that are superseded."""
    for timer, one in snapshot.loaded_timers.hidden_messages():
        leased = timer.state == State.LEASED and timer.due > now
        if not leased and not (isinstance(one, Entry) and one.superseded):
            yield Entry(one.id, one.priority, one.spent)
