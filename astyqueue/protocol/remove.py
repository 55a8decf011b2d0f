"""Removing messages, rows and queues on somebody's word, whatever state they are in.

All of it is done by ordinary raised commits. A header is never deleted and nothing is deleted by range, so that whoever
knew a row before is refused and looks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Final

from astyqueue.ids import LEAST, Id
from astyqueue.model.message import MessageId
from astyqueue.model.settings import Settings
from astyqueue.model.views import Content
from astyqueue.protocol.browse import contents
from astyqueue.protocol.columns import Type, dead_name, message_name
from astyqueue.protocol.freeing import let_go_along
from astyqueue.protocol.pages import listed_by, looked_past, unlisted
from astyqueue.protocol.process import Process
from astyqueue.protocol.raising import MOST, Plan, Raising, Removal, shrunk_by
from astyqueue.protocol.rows import Ring, is_home
from astyqueue.protocol.schedules import forget_schedules
from astyqueue.protocol.settings import forget_settings
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Name, Named, Slice

#: Dead letters in one commit: each is two columns.
_DEAD: Final = MOST // 2


def _most(row: str) -> int:
    """Messages in one commit: in home rows they have keys, and are two columns each."""
    return MOST // 2 if is_home(row) else MOST


def delete(process: Process, message: MessageId) -> Steps[bool]:
    """Remove one message, waiting, hidden or dead; whether it was there.

    If somebody has it in hand, that receipt is lost, and no other.
    """
    plan = yield from Raising(process, Sight(message.row, 1)).carry_out(partial(_deletion, message))
    return plan is not None


def _deletion(message: MessageId, sight: Sight) -> Steps[Plan | None]:
    found = yield from read_one(Named(sight.row, (message_name(message.priority, message.id),)))
    dead = yield from read_one(Named(sight.row, (dead_name(message.priority, message.id),)))
    if not found and not dead:
        return None
    plan = Removal([column.name for column in found], dead, shrunk_by(sight, {message.id}))
    return (yield from let_go_along(plan, sight.row, {message: Content.of(found[0].value)} if found else {}))


def clear(process: Process, row: str, levels: int) -> Steps[int]:
    """Remove every message of a row, waiting, in hand, delayed or dead, and say how many those were.

    Receipts of what was in hand are lost. What is sent meanwhile may stay or go; what is sent afterwards stays. An error
    leaves what was removed before it removed.
    """
    raising = Raising(process, Sight(row, levels))
    clearing = _Clearing(levels)
    while plan := (yield from raising.carry_out(clearing.plan)):
        clearing.done(plan, raising.sight)
    return clearing.removed


def drop(process: Process, settings: Settings) -> Steps[int]:
    """Clear all rows of a queue and forget its settings; how many messages it had.

    The rows keep their headers: a queue created again under this name goes on from them.
    """
    removed = 0
    for row in Ring(settings.name, settings.layout).rows():
        removed += yield from clear(process, row, settings.layout.priorities)
    yield from forget_schedules(process, Ring(settings.name, settings.layout))
    yield from forget_settings(settings.name)
    return removed


@dataclass(slots=True)
class _Clearing:
    """How far the clearing of a row came.

    What waits is looked for from the beginning of the row once, for what landed behind all looks is to go too; then from where every
    look has passed. A commit removes what timers list, else dead letters, else what waits. In this order each part is safe: while the
    header stands and no timer is left, nothing can be hidden or die.
    """

    levels: int
    removed: int = 0
    _header: bytes | None = None
    _passed: dict[tuple[Type, int], Id] = field(default_factory=dict)
    _reached: tuple[tuple[Type, int], Id] | None = None

    def plan(self, sight: Sight) -> Steps[Plan | None]:
        """What the next commit removes; None when nothing is left."""
        self._reached = None
        if sight.value != self._header:
            self._look_for_dead_again()
        plan = (yield from self._hidden(sight)) or (yield from self._dead(sight)) or (yield from self._waiting(sight))
        if plan is None or not is_home(sight.row):
            return plan
        found = yield from contents([MessageId(sight.row, name.priority, name.id) for name in plan.messages])
        return (yield from let_go_along(plan, sight.row, found))

    def done(self, plan: Plan, sight: Sight) -> None:
        """Go on behind what a commit removed: its graves need not be walked over again."""
        self.removed += len(plan.messages)
        self._header = sight.value if sight.known else None
        if self._reached:
            stretch, last = self._reached
            self._passed[stretch] = last

    def _look_for_dead_again(self) -> None:
        """Others changed the row: any message that was alive may have died since."""
        for level in range(self.levels):
            self._passed.pop((Type.DEAD, level), None)

    def _hidden(self, sight: Sight) -> Steps[Plan | None]:
        listed = chain.from_iterable(map(listed_by, (sight.timers or {}).values()))
        names = tuple(message_name(one.priority, one.id) for one in islice(listed, _most(sight.row)))
        if not names:
            return None
        present = yield from read_one(Named(sight.row, names, values=False))
        return Removal([column.name for column in present], [], shrunk_by(sight, {name.id for name in names}))

    def _dead(self, sight: Sight) -> Steps[Plan | None]:
        for level in range(self.levels):
            after = self._passed.get((Type.DEAD, level), LEAST)
            dead = yield from read_one(Slice(sight.row, Type.DEAD, level, after=after, beyond=True, limit=_DEAD))
            if dead:
                self._reached = (Type.DEAD, level), dead[-1].name.id
                names = tuple(message_name(level, column.name.id) for column in dead)
                present = yield from read_one(Named(sight.row, names, values=False))
                return Removal([column.name for column in present], dead)
        return None

    def _waiting(self, sight: Sight) -> Steps[Plan | None]:
        for level in range(self.levels):
            names = yield from self._waiting_at(sight, level)
            if names:
                self._reached = (Type.MESSAGE, level), names[-1].id
                return Removal(names)
        return None

    def _waiting_at(self, sight: Sight, level: int) -> Steps[list[Name]]:
        after: Id | None = self._passed.get((Type.MESSAGE, level), LEAST)
        while after is not None:
            page = yield from unlisted(sight, level, after, limit=_most(sight.row))
            if page.ids:
                return [message_name(level, id_) for id_ in page.ids]
            after = page.last
        self._passed[Type.MESSAGE, level] = max(looked_past(sight, level), self._passed.get((Type.MESSAGE, level), LEAST))
        return []
