"""Settling: recording the outcomes of leased messages.

A settle expects only its own timer, unchanged. It does not touch the row's header, because a process that claims all
the time would starve it. A message given back *before* its timer is due is the exception: a timer due earlier than all
others must lower the header's floor. If the header is refused, the message gets a mark in its own timer instead; that
ends its receipt, and a process that reads the timer may claim it from the mark's time on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from astyqueue.errors import Closed, OutcomeUnknown, StoreError, Undecodable
from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import HEADER, Timer, Type, decode_timer
from astyqueue.protocol.row.bounded_reads import ReadWindow, read_in_pages
from astyqueue.protocol.row.header_commit import RowTransaction, bump_header
from astyqueue.protocol.settling.outcomes import Extend, Outcome, Outcomes, SettlePlan, plan_settle
from astyqueue.protocol.steps import Client, Steps, read_column, read_one
from astyqueue.store import Committed, Name, Named, Slice

#: Attempts of one commit with unknown outcome before OutcomeUnknown is raised.
_TRIES: Final = 5
_TIMERS_A_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class SettleRequest:
    """Outcomes of messages that one timer hides.

    `unanswered`: commits of this claim with unknown outcome, because the store did not answer or the caller was
    cancelled. Keep the list as long as the claim: a repeated settle may have been done already, and finds that by their
    traces.
    """

    timer: Timer
    outcomes: Outcomes
    unanswered: list[SettlePlan] = field(default_factory=list)

    def begin(self, settle_plan: SettlePlan) -> None:
        """Record a commit before it is sent, unless an equal one of unknown outcome is recorded already."""
        if settle_plan not in self.unanswered:
            self.unanswered.append(settle_plan)

    def end(self, settle_plan: SettlePlan, *, applied: bool) -> None:
        """Remove a commit whose outcome is known; if it was applied, no other commit on that timer can have been."""
        self.unanswered[:] = [
            one
            for one in self.unanswered
            if one is not settle_plan and not (applied and one.timer == settle_plan.timer)
        ]


@dataclass(slots=True)
class SettleResult:
    """The result of a settle: the plans that were committed, and the ids of `lost` messages, whose lease had ended."""

    done: list[SettlePlan] = field(default_factory=list)
    lost: list[Id] = field(default_factory=list)


def settle(process: Client, row: str, wanted: SettleRequest) -> Steps[SettleResult]:
    """Commit these outcomes of leased messages; messages without a lease are returned as lost, and stay unchanged.

    When the store fails half-way, the commits until then are added to `unanswered`, so that a repeated settle reports
    them as done. While `unanswered` is not empty, errors are raised as OutcomeUnknown: any other means that nothing was
    changed.
    """
    settling = _Settling(process, row, wanted)
    try:
        yield from settling.commit_all()
    except (StoreError, Closed) as error:
        wanted.unanswered.extend(
            settle_plan for settle_plan in settling.result.done if settle_plan not in wanted.unanswered
        )
        if not wanted.unanswered or isinstance(error, OutcomeUnknown):
            raise
        message = (
            f"row {row}: it is unknown whether outcomes of leased messages were recorded, and reading them back "
            f"failed ({error}). The leases are unchanged: settle the messages again when the store answers"
        )
        raise OutcomeUnknown(message) from error
    return settling.result


class _Settling:
    """The commits of one settle. `result` has what was done so far, also when an error ends them."""

    __slots__ = ("_left", "_process", "_row", "_wanted", "result")

    def __init__(self, process: Client, row: str, wanted: SettleRequest) -> None:
        self.result = SettleResult()
        self._process = process
        self._row = row
        self._wanted = wanted
        self._left = dict(wanted.outcomes)

    def commit_all(self) -> Steps[None]:
        """Commit until no outcome is left, or no timer of the claim hides the messages of those that are."""
        current: Timer | None = self._wanted.timer
        while current is not None and self._left:
            wanted = replace(self._wanted, timer=current, outcomes=self._left)
            settle_plan = yield from _commit(self._process, self._row, wanted)
            if settle_plan is not None:
                self._done(settle_plan, settle_plan.decided)
            if self._left:
                yield from self._find_done()
            current = (yield from find_claim_timer(self._row, self._wanted.timer, self._left)) if self._left else None
        self.result.lost.extend(self._left)

    def _find_done(self) -> Steps[None]:
        """Remove outcomes that a commit of unknown outcome has applied; if all its traces are there, it is done."""
        for settle_plan in tuple(self._wanted.unanswered):
            kinds = yield from traces_of(self._row, settle_plan)
            until = settle_plan.leased_until
            applied = [
                id_
                for id_, outcome in self._left.items()
                if kinds.get(id_) is type(outcome) and not (isinstance(outcome, Extend) and until[id_] < outcome.until)
            ]
            if applied and kinds == settle_plan.kinds:
                self._process.report_read_back(self._row, "settle", applied=True)
                if kinds.keys() == set(applied):  # otherwise settles of its other messages look for its traces too
                    # what is gone may be the work of another plan on its timer
                    self._wanted.end(settle_plan, applied=False)
                self._done(settle_plan, applied)
            else:
                self._remove(applied)

    def _done(self, settle_plan: SettlePlan, ids: Iterable[Id]) -> None:
        self.result.done.append(settle_plan)
        self._remove(ids)

    def _remove(self, ids: Iterable[Id]) -> None:
        for id_ in ids:
            self._left.pop(id_, None)


def find_claim_timer(row: str, timer: Timer, wanted: Iterable[Id]) -> Steps[Timer | None]:
    """The current timer of the same claim that hides one of these messages; a claim's timers only move up."""
    columns = yield from read_in_pages(
        Slice(row, Type.TIMER, 0, after=timer.name.id), _TIMERS_A_PAGE, ReadWindow(), exact=True
    )
    for column in columns:
        found = _readable(row, column.name, column.value)
        if found and found.nonce == timer.nonce and not {entry.id for entry in found.entries}.isdisjoint(wanted):
            return found
    return None


def _readable(row: str, name: Name, value: bytes) -> Timer | None:
    """A timer; None if it cannot be read: that stops claims of its row, but not settles of other timers."""
    try:
        return decode_timer(row, name, value)
    except Undecodable:
        return None


def _commit(process: Client, row: str, wanted: SettleRequest) -> Steps[SettlePlan | None]:
    """Commit against this timer; None if it has changed, so that it must be searched again."""
    settle_plan = plan_settle(process, wanted.timer, wanted.outcomes)
    if settle_plan.sooner:
        applied = yield from _commit_sooner(process, row, wanted, settle_plan=settle_plan)
        if applied:
            return settle_plan
        settle_plan = plan_settle(process, wanted.timer, wanted.outcomes, marking=True)
    applied = yield from _apply(process, wanted, settle_plan, RowTransaction(row))
    return settle_plan if applied else None


def _commit_sooner(process: Client, row: str, wanted: SettleRequest, *, settle_plan: SettlePlan) -> Steps[bool]:
    """Commit together with the header, once."""
    column = yield from read_column(row, HEADER, exact=True)
    change = RowTransaction(row)
    try:
        known = column.value if column else None
        header = bump_header(process, change, known, due=settle_plan.floor)
    except Undecodable:  # that stops claims, but leased messages can still get marks
        return False
    applied = yield from _apply(process, wanted, settle_plan, change)
    if applied:
        settle_plan.header_change = (known, header)
    return applied


def _apply(process: Client, wanted: SettleRequest, settle_plan: SettlePlan, change: RowTransaction) -> Steps[bool]:
    """Whether it was committed; after an unknown outcome the timer is read before the commit is repeated.

    If the timer has changed, False: the commit's traces show whether it was applied. So they do when a repeated commit
    is refused: the first may be applied late, by a server that was stalled, between the read and the repetition.
    """
    settle_plan.add_to(change)
    for tried in range(_TRIES):
        applied = yield from _attempt(wanted, settle_plan, change, again=tried > 0)
        if applied is not None:
            return applied
        column = yield from read_column(change.row, settle_plan.timer.name, exact=True)
        if column is None or column.value != settle_plan.timer.value:
            return False
        process.report_read_back(change.row, "settle", applied=False)
    message = (
        f"row {change.row}: after {_TRIES} attempts it is unknown whether outcomes of leased messages were recorded. "
        "The leases are unchanged: settle the messages again when the store answers"
    )
    raise OutcomeUnknown(message)


def _attempt(
    wanted: SettleRequest, settle_plan: SettlePlan, change: RowTransaction, *, again: bool
) -> Steps[bool | None]:
    """Whether a commit was applied; None if that is unknown."""
    wanted.begin(settle_plan)
    try:
        outcome = yield from change.commit()
    except OutcomeUnknown:
        return None
    except (StoreError, Closed):
        if not again:
            wanted.end(settle_plan, applied=False)
        raise
    applied = isinstance(outcome, Committed)
    if applied or not again:
        wanted.end(settle_plan, applied=applied)
    return applied


def traces_of(row: str, settle_plan: SettlePlan) -> Steps[dict[Id, type[Outcome]]]:
    """The outcomes that a commit of unknown outcome has left in the store, by their traces.

    A timer that is gone proves nothing: its messages may have been claimed again. What proves the commit: dead letters
    that carry this claim, timers with names drawn at random, and marks in the current timer; also messages that are
    gone, unless another one that the same commit would have deleted is still there, or a removed mark that it would
    have left is missing: then another process has cleared them.
    """
    moved = {timer.name: timer for timer in (*settle_plan.moved, *settle_plan.sooner)}
    deleted = (*settle_plan.acked, *settle_plan.dropped)
    removed = {put.name for put in settle_plan.written if put.name.type == Type.REMOVED}
    names = (settle_plan.timer.name, *deleted, *removed, *settle_plan.dead, *moved)
    found = yield from read_one(Named(row, names), exact=True)
    values = {column.name: column.value for column in found}
    if not (values.keys().isdisjoint(deleted) and removed <= values.keys()):
        return {}
    there = {entry.id for name, timer in moved.items() if name in values for entry in timer.entries}
    there.update(name.id for name in deleted)
    there.update(name.id for name, value in settle_plan.dead.items() if values.get(name) == value)
    current = values.get(settle_plan.timer.name)
    if settle_plan.marked and current is not None and (timer := _readable(row, settle_plan.timer.name, current)):
        there.update(mark.id for mark in settle_plan.marked.intersection(timer.marks))
    return {id_: kind for id_, kind in settle_plan.kinds.items() if id_ in there}
