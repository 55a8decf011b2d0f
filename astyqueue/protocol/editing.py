"""Changing one schedule, by a raised commit of the home row it is in.

Whatever changes a schedule gives it another timer, so that a process that remembers the schedule by its timer never acts on
what it was before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from astyqueue.errors import NotFound, OutcomeUnknown
from astyqueue.model.message import MessageId
from astyqueue.model.schedules import Origin, Run, Schedule
from astyqueue.protocol.fire import listing
from astyqueue.protocol.keystate import slot_timers
from astyqueue.protocol.lookup import leave_hints
from astyqueue.protocol.process import Process
from astyqueue.protocol.raising import Plan, Raising
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Steps, read_column
from astyqueue.protocol.triggercolumn import decode_schedule, encode_schedule, message_of, slot_timer, trigger_name
from astyqueue.store import Column, Put

#: What becomes of a schedule: its successor, and the messages that it sends at once, by slot.
Changed = tuple[Schedule, dict[int, Run]]


@dataclass(frozen=True, slots=True)
class Kept:
    """A schedule in its home row, by its name."""

    process: Process
    row: str
    name: str

    def found(self) -> Steps[tuple[Column, Schedule] | None]:
        """The schedule and its column, if it is there."""
        column = yield from read_column(self.row, trigger_name(self.name))
        return None if column is None else (column, decode_schedule(self.row, column.value))

    def change(self, becomes: Callable[[Schedule], Steps[Changed | None]]) -> Steps[Schedule]:
        """Have the schedule become another one; NotFound if it is not there, and None leaves it as it is."""
        mark = self.process.nonce().hex()
        after: list[Schedule] = []

        def plan(sight: Sight) -> Steps[Plan | None]:
            found = yield from self.found()
            if found is None:
                message = f"there is no schedule {self.name!r} (any more)"
                raise NotFound(message)
            column, before = found
            changed = yield from becomes(before)
            after[:] = [changed[0] if changed else before]
            if changed is None:
                return None
            if (key := changed[0].template.key) is not None:
                yield from leave_hints(self.process, [(key, MessageId(self.row, *sent)) for sent in changed[1].values()])
            return self.edit(sight, column, Edit(mark, before, *changed))

        yield from Raising(self.process, Sight(self.row, 1)).carry_out(plan)
        return after[0]

    def edit(self, sight: Sight, column: Column | None, edit: Edit) -> Plan:
        """The commit by which a schedule takes the place of what was before; its timer is replaced whether or not it is due then."""
        plan = EditPlan(shrunk=[(timer, None) for timer in slot_timers(sight, self.name)], kept=self, edit=edit)
        if edit.after is None:
            plan.freed = [column] if column else []
            return plan
        after, now = replace(edit.after, mark=edit.mark), self.process.now()
        plan.taken = [(column, Put(trigger_name(self.name), encode_schedule(after)))]
        plan.puts = [message_of(after, run, slot=slot, now=now) for slot, run in edit.sent.items()]
        slot = slot_timer(self.process, after)
        plan.listed = [timer for timer in (slot, listing(self.process, plan.puts, now) if plan.puts else None) if timer]
        return plan


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a schedule, told from others by its mark: what it was and what it becomes, None for nothing."""

    mark: str
    before: Schedule | None
    after: Schedule | None
    sent: dict[int, Run] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class EditPlan(Plan):
    """A commit that changes one schedule."""

    kept: Kept
    edit: Edit

    def was_done(self, row: str) -> Steps[bool]:
        """Whether the schedule carries our mark. Firing leaves a mark as it is; one of somebody else's says nothing of ours."""
        before, after = self.edit.before, self.edit.after
        column = yield from read_column(row, trigger_name(self.kept.name), exact=True)
        found = decode_schedule(row, column.value) if column else None
        if after is None:
            return found is None or before is None or found.made != before.made
        if found is not None and found.mark == self.edit.mark:
            return True
        ends_with_its_slots = found is None and after.origin is Origin.MESSAGE
        if (found.mark if found else None) == (before.mark if before else None) and not ends_with_its_slots:
            return False
        message = f"row {row}: whether schedule {self.kept.name!r} was changed is not known: others changed it right after"
        raise OutcomeUnknown(message)
