"""Deleting messages, rows and queues on request, in any state, and freeing their unique keys.

All of it uses ordinary header commits. A header is never deleted and nothing is deleted by range, so that processes
with an older snapshot of a row are refused and read it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from astyqueue.ids import LEAST, Id
from astyqueue.model.envelope import MessageId
from astyqueue.model.settings import Settings
from astyqueue.model.views import Content
from astyqueue.protocol.admin.browse import contents
from astyqueue.protocol.admin.settings import delete_settings
from astyqueue.protocol.layout.columns import Type, dead_name, message_name
from astyqueue.protocol.layout.rows import Ring, is_home
from astyqueue.protocol.layout.unique_key import owned_keys, settle_effects
from astyqueue.protocol.row.header_commit import (
    COMMIT_MESSAGES,
    COMMIT_TRIES,
    CommitLoop,
    CommitPlan,
    RemovalPlan,
    conflicts_error,
)
from astyqueue.protocol.row.paging import scanned_up_to, unlisted_page
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.scheduling.schedule_commands import delete_schedules
from astyqueue.protocol.steps import Client, Steps, read_one
from astyqueue.store import Name, Named, Slice

#: Dead letters in one commit: each is two columns.
_DEAD: Final = COMMIT_MESSAGES // 2


def _most(row: str) -> int:
    """Messages in one commit: in home rows they have keys, and are two columns each."""
    return COMMIT_MESSAGES // 2 if is_home(row) else COMMIT_MESSAGES


def delete(process: Client, message: MessageId) -> Steps[bool]:
    """Delete one message, waiting, hidden or dead; returns whether it existed.

    If it is leased, its receipt becomes invalid, and no other.
    """
    plan = yield from CommitLoop(process, RowSnapshot(message.row, 1)).carry_out(partial(_deletion, message))
    return plan is not None


def _deletion(message: MessageId, snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
    found = yield from read_one(Named(snapshot.row, (message_name(message.priority, message.id),)))
    dead = yield from read_one(Named(snapshot.row, (dead_name(message.priority, message.id),)))
    if not found and not dead:
        return None
    plan = RemovalPlan([column.name for column in found], dead, snapshot.loaded_timers.without({message.id}))
    return (yield from release_keys(plan, snapshot.row, {message: Content.of(found[0].value)} if found else {}))


#: Called with messages that were just deleted.
OnDeleted = Callable[[Sequence[MessageId]], object]


def clear(process: Client, row: str, levels: int, on_deleted: OnDeleted = lambda _: None) -> Steps[int]:
    """Delete every message of a row, waiting, leased, delayed or dead; returns their number.

    Receipts of leased messages become invalid. A message sent meanwhile may be deleted or not; one sent afterwards
    stays. What was deleted before an error stays deleted. `on_deleted` is called after each commit.
    """
    commits = CommitLoop(process, RowSnapshot(row, levels))
    clearing = _Clearing(process, levels)
    while plan := (yield from commits.carry_out(clearing.plan)):
        clearing.done(plan, commits.snapshot)
        on_deleted([MessageId(row, name.priority, name.id) for name in plan.messages])
    return clearing.removed


def drop(process: Client, settings: Settings, on_deleted: OnDeleted = lambda _: None) -> Steps[int]:
    """Remove a queue's schedules, clear all its rows and delete its settings; returns the number of its messages.

    In this order, as a process may fire a schedule until it is removed. `on_deleted` is called after each commit.
    The rows keep their headers: a new queue of this name continues from them.
    """
    removed, ring = 0, Ring(settings.name, settings.layout)
    yield from delete_schedules(process, ring)
    for row in ring.rows():
        removed += yield from clear(process, row, settings.layout.priorities, on_deleted)
    yield from delete_settings(settings.name, process.observers)
    return removed


@dataclass(slots=True)
class _Clearing:
    """The progress of clearing a row.

    Waiting messages are searched once from the beginning of the row, as stranded ones are deleted too; then from where
    all scans have passed. A commit deletes what timers list, else dead letters, else waiting messages. This order is
    safe: while the header is unchanged and no timer is left, no message can become hidden or dead. So when nothing is
    found, the header is compared once more: a message claimed and dead-lettered between the reads was in none of them.
    """

    process: Client
    levels: int
    removed: int = 0
    _header: bytes | None = None
    _passed: dict[tuple[Type, int], Id] = field(default_factory=dict)
    _reached: tuple[tuple[Type, int], Id] | None = None

    def plan(self, snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
        """The next commit; None when nothing is left."""
        self._reached = None
        plan, tries = (yield from self._next(snapshot)), 1
        while plan is None and (yield from self._was_changed(snapshot)):
            if tries == COMMIT_TRIES:
                raise conflicts_error(snapshot.row)
            plan, tries = (yield from self._next(snapshot)), tries + 1
        if plan is None or not is_home(snapshot.row):
            return plan
        found = yield from contents([MessageId(snapshot.row, name.priority, name.id) for name in plan.messages])
        return (yield from release_keys(plan, snapshot.row, found))

    def _next(self, snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
        if snapshot.loaded_header.value != self._header:
            self._reset_dead()
        return (
            (yield from self._hidden(snapshot))
            or (yield from self._dead(snapshot))
            or (yield from self._waiting(snapshot))
        )

    def _was_changed(self, snapshot: RowSnapshot) -> Steps[bool]:
        """Whether another process has committed since the row was loaded, which is then loaded again."""
        before = snapshot.loaded_header.value
        snapshot.forget()
        yield from load_snapshot(snapshot, self.process.now())
        return snapshot.loaded_header.value != before

    def done(self, plan: CommitPlan, snapshot: RowSnapshot) -> None:
        """Record a commit and continue beyond what it deleted, so that its tombstones are not read again.

        After a commit of unknown outcome, it may be an earlier plan than the last: all is read from the start again.
        """
        self.removed += len(plan.messages)
        self._header = snapshot.header.value if snapshot.header else None
        if self._header is None:
            self._passed.clear()
        elif self._reached:
            part, last = self._reached
            self._passed[part] = last

    def _reset_dead(self) -> None:
        """Read dead letters from the start again: another process changed the row, so any message may be dead now."""
        for level in range(self.levels):
            self._passed.pop((Type.DEAD, level), None)

    def _hidden(self, snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
        hidden = islice(snapshot.loaded_timers.hidden_messages(), _most(snapshot.row))
        names = tuple(message_name(one.priority, one.id) for _, one in hidden)
        if not names:
            return None
        present = yield from read_one(Named(snapshot.row, names, values=False))
        shrunk = snapshot.loaded_timers.without({name.id for name in names})
        return RemovalPlan([column.name for column in present], [], shrunk)

    def _dead(self, snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
        for level in range(self.levels):
            after = self._passed.get((Type.DEAD, level), LEAST)
            dead = yield from read_one(Slice(snapshot.row, Type.DEAD, level, after=after, beyond=True, limit=_DEAD))
            if dead:
                self._reached = (Type.DEAD, level), dead[-1].name.id
                names = tuple(message_name(level, column.name.id) for column in dead)
                present = yield from read_one(Named(snapshot.row, names, values=False))
                return RemovalPlan([column.name for column in present], dead)
        return None

    def _waiting(self, snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
        for level in range(self.levels):
            names = yield from self._waiting_at(snapshot, level)
            if names:
                self._reached = (Type.MESSAGE, level), names[-1].id
                return RemovalPlan(names)
        return None

    def _waiting_at(self, snapshot: RowSnapshot, level: int) -> Steps[list[Name]]:
        after: Id | None = self._passed.get((Type.MESSAGE, level), LEAST)
        while after is not None:
            page = yield from unlisted_page(snapshot, level, after, limit=_most(snapshot.row))
            if page.ids:
                return [message_name(level, id_) for id_ in page.ids]
            after = page.last
        self._passed[Type.MESSAGE, level] = max(
            scanned_up_to(snapshot, level), self._passed.get((Type.MESSAGE, level), LEAST)
        )
        return []


def release_keys(plan: CommitPlan, row: str, found: Mapping[MessageId, Content]) -> Steps[CommitPlan]:
    """Add to a plan that it frees the keys these messages still have, and writes their marks."""
    going = {
        id_.id: settle_effects(id_.priority, id_.id, content.envelope)
        for id_, content in found.items()
        if content.envelope
    }
    plan.freed += yield from owned_keys(row, going)
    plan.puts += [effects.mark for effects in going.values() if effects.mark]
    return plan
