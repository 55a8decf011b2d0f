"""Claiming: leasing messages in one commit, which the store applies only if the row is unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from astyqueue.errors import OutcomeUnknown, StoreError
from astyqueue.ids import Id
from astyqueue.protocol.claiming.scan import scan_row
from astyqueue.protocol.claiming.selection import ClaimedMessage, ClaimPlan, ClaimRequest, DeadLettered, LapsedEntry
from astyqueue.protocol.layout.columns import (
    HEADER,
    Entry,
    Header,
    State,
    Timer,
    Type,
    blocked_timer,
    encoded,
    timer_without,
    visible_at,
)
from astyqueue.protocol.layout.unique_key import SettleEffects, owned_keys
from astyqueue.protocol.row.header_commit import HeaderCommits, RowTransaction
from astyqueue.protocol.row.snapshot import WORTH_STORING, RowSnapshot
from astyqueue.protocol.row.unanswered_commits import UnansweredCommits
from astyqueue.protocol.settling.outcomes import SettlePlan, columns_changed_by, plan_settle
from astyqueue.protocol.settling.settle import SettleRequest, SettleResult, settle
from astyqueue.protocol.steps import Client, Steps, read_one
from astyqueue.store import Committed, Name, Named, Outcome, Refused

#: Columns that one claim's commit may change for settles and dead letters; a larger settle is committed alone, first.
_CHANGES: Final = 250
#: Blocked messages in one timer: each that is claimed rewrites it.
_BLOCKED_TOGETHER: Final = 50
#: Consecutive refusals after which a claim leaves the row to other processes for now.
_TRIES: Final = 3


@dataclass(slots=True)
class Claim:
    """A timer of this process and the messages it hides: the right to settle them.

    `lease`: the microseconds for which they were leased, counted from before the commit.
    """

    row: str
    timer: Timer
    held: list[ClaimedMessage]
    lease: int


@dataclass(slots=True)
class ClaimResult:
    """The result of a claim. `suspect`: a suspect message waits for a process without leases. `more`: the row has more.

    `buried`: messages dead-lettered by the claim; `lapsed`: messages whose lease had expired; `superseded`: those of
    them that it deleted, because other messages have their keys. `committed`: a commit of
    the claim was applied, so the columns of the row lock are deleted too. `previous_owner`: the process whose row lease
    the claim ended, or empty.
    """

    claims: list[Claim] = field(default_factory=list)
    at_most_once: list[ClaimedMessage] = field(default_factory=list)
    settled: dict[Name, SettleResult] = field(default_factory=dict)
    dead: int = 0
    buried: list[DeadLettered] = field(default_factory=list)
    lapsed: list[LapsedEntry] = field(default_factory=list)
    superseded: list[Entry] = field(default_factory=list)
    undecodable: int = 0
    refused: int = 0
    more: bool = False
    suspect: bool = False
    committed: bool = False
    previous_owner: str = ""


def claim(
    process: Client,
    snapshot: RowSnapshot,
    request: ClaimRequest,
    *,
    settling: Sequence[SettleRequest] = (),
    into: ClaimResult | None = None,
) -> Steps[ClaimResult]:
    """Lease up to `request.want` due messages of a row, and settle others of it in the same commit if it is applied.

    Settles never wait for a claim: when the commit is refused, they are committed alone at once. If an error or a
    cancellation stops these steps, the snapshot is forgotten, not wrong, and `into` has what was settled until then.
    """
    claiming = _Claiming(process, snapshot, request, list(settling), into or ClaimResult())
    try:
        if claiming.settle_columns > _CHANGES or any(map(_elsewhere, settling)):
            yield from claiming.settle_alone()
        if not (yield from claiming.until_applied()):
            yield from claiming.settle_alone()
            yield from claiming.take_late_one()
            claiming.find_freed_groups()  # applies the settles: the floor that is stored then counts what they moved
            yield from claiming.store_cursors()
    except BaseException as error:
        snapshot.forget()
        if isinstance(error, StoreError):
            snapshot.sizes.forget()
        raise
    return claiming.claimed


@dataclass(slots=True)
class _ClaimCommit:
    """What one commit of a claim changes; `successors`: the timers that lose messages, and what remains of them."""

    claim_plan: ClaimPlan
    settle_plans: list[SettlePlan]
    successors: list[tuple[Timer, Timer | None]]
    claims: list[Claim]
    timers: list[Timer]


@dataclass(slots=True)
class _Claiming(HeaderCommits[_ClaimCommit]):
    """The commits of one claim, and the settles committed with it."""

    operation: ClassVar[str] = "claim"

    process: Client
    snapshot: RowSnapshot
    request: ClaimRequest
    waiting: list[SettleRequest]
    claimed: ClaimResult
    header: Header = field(init=False)
    unanswered: UnansweredCommits[_ClaimCommit] = field(init=False, default_factory=UnansweredCommits)

    @property
    def settle_columns(self) -> int:
        """Columns that the settles would change in the claim's commit."""
        return sum(columns_changed_by(settlement.outcomes) for settlement in self.waiting)

    def settle_alone(self) -> Steps[None]:
        """Commit the settles without a claim."""
        settlements = [one for one in self.waiting if one.timer.name not in self.claimed.settled]
        self.waiting.clear()
        for settlement in settlements:
            settled = yield from settle(self.process, self.snapshot.row, settlement)
            for settle_plan in settled.done:
                self.snapshot.settled(settle_plan.timer_change)
            self.claimed.settled[settlement.timer.name] = settled

    def find_freed_groups(self) -> None:
        """Have the row claimed from again if what was settled alone has freed a group in which messages wait."""
        self.snapshot.apply_settles()
        self.claimed.more |= self.snapshot.has_free_group and not self.claimed.suspect

    def store_cursors(self) -> Steps[None]:
        """Commit the header alone, once, if scans without a claim have moved the cursors far."""
        known, timers = self.snapshot.header, self.snapshot.timers
        if self.snapshot.ids_scanned < WORTH_STORING or known is None or timers is None:
            return  # a floor may rise only where all timers are known
        current = [list(cursors) for cursors in self.snapshot.scans.cursors]
        claim_plan = ClaimPlan(self.request, self.process.now(), 0, known, timers, cursors=current)
        yield from self.commit(_ClaimCommit(claim_plan, [], [], [], []))

    def plan(self) -> Steps[_ClaimCommit | None]:
        """Scan the row, and plan the settles that go with the claim; None: nothing is due, or it was claimed late."""
        if (yield from self.take_late_one()):
            return None
        settle_plans = [plan_settle(self.process, settlement.timer, settlement.outcomes) for settlement in self.waiting]
        claim_plan = yield from scan_row(
            self.process.now(),
            self.snapshot,
            self.request,
            settling=settle_plans,
            dead_letters_left=_CHANGES - self.settle_columns,
        )
        self.claimed.more, self.claimed.suspect = claim_plan.more, claim_plan.suspect
        if not claim_plan.anything and not any(part.sooner for part in settle_plans):
            self.snapshot.scans.late_scans_made(claim_plan.late_scans, claim_plan.now)
            return None
        timers = claim_plan.timers.by_name
        successors = [
            (timers[name], timer_without(timers[name], leaving)) for name, leaving in claim_plan.leaving.items()
        ]
        blocked, merged = _blocked(self.process, claim_plan)
        successors += [(timer, None) for timer in merged]
        claims = [
            Claim(self.snapshot.row, _leased(self.process, lease, held, claim_plan), held, lease)
            for (lease, _), held in claim_plan.leased.items()
        ]
        put_off = [visible_at(self.process, until, entries) for until, entries in claim_plan.early.items()]
        return _ClaimCommit(
            claim_plan, settle_plans, successors, claims, [*[one.timer for one in claims], *put_off, *blocked]
        )

    def transaction(self, plan: _ClaimCommit) -> Steps[RowTransaction]:
        """The claim's changes and the settles, which are recorded as begun, and the next header."""
        change = RowTransaction(self.snapshot.row)
        if plan.claim_plan.effects:
            yield from _free_keys(change, plan.claim_plan.effects)
        for settlement, part in zip(self.waiting, plan.settle_plans, strict=True):
            part.add_to(change)
            settlement.begin(part)
        for timer, successor in plan.successors:
            change.replace(timer, successor)
        for timer in plan.timers:
            change.put_timer(timer)
        for name, value in plan.claim_plan.dead.items():
            change.put(name, value)
        change.delete(*plan.claim_plan.consumed, *self.request.unlocks)
        self.header = self._next_header(plan)
        change.bump_header(plan.claim_plan.known.value, self.header)
        return change

    def _next_header(self, plan: _ClaimCommit) -> Header:
        """The next header. All timers are known here, so its floor may rise to the earliest due after this commit.

        Not beyond now while messages are blocked: a process that knows only the header looks whether a group is free.
        """
        dues = [timer.due for timer in plan.timers]
        if plan.claim_plan.blocked or plan.claim_plan.timers.groups.blocked:
            dues.append(plan.claim_plan.now)
        for part in plan.settle_plans:
            dues += [timer.due for timer in (*part.moved, *part.sooner)]
        known = plan.claim_plan.timers.next_due()
        floor = min(dues if known is None else [known, *dues], default=plan.claim_plan.now)
        owner = self.process.name if self.request.leases and (self.request.keeps or plan.claim_plan.room > 0) else ""
        version, cursors = plan.claim_plan.known.decoded.version + 1, tuple(map(tuple, self.snapshot.scans.cursors))
        return Header(version, floor, self.process.nonce(), owner, cursors)

    def answered(self, plan: _ClaimCommit, outcome: Outcome) -> None:
        """End the settles; a refusal shows the current header, and the cursors go back to where they were."""
        self._end_settles(plan, applied=isinstance(outcome, Committed))
        if isinstance(outcome, Refused):
            self.snapshot.refused(outcome.present[HEADER], plan.claim_plan.now, plan.claim_plan.cursors)

    def failed(self, plan: _ClaimCommit) -> None:
        """End the settles as not applied."""
        self._end_settles(plan, applied=False)

    def _end_settles(self, plan: _ClaimCommit, *, applied: bool) -> None:
        for settlement, part in zip(self.waiting, plan.settle_plans, strict=True):
            settlement.end(part, applied=applied)

    def read_back(self, plan: _ClaimCommit, unknown: OutcomeUnknown) -> Steps[bool]:
        """Whether a commit was applied: the header is the one it wrote, or a timer or dead letter that it wrote exists.

        If other processes have committed since and these are gone again, it counts as refused: no process has their
        receipts. So it does if it wrote none, as when all its messages are delivered at most once. Each of its settles
        then finds out from its own traces.
        """
        self.snapshot.forget()
        applied = yield from self.unanswered.read_back(
            self.snapshot.row,
            plan,
            unknown,
            expects=plan.claim_plan.known.value,
            header=self.header,
            traces=self._has_traces,
        )
        if applied:
            self._end_settles(plan, applied=True)
        return applied

    def _has_traces(self, plan: _ClaimCommit) -> Steps[bool]:
        dead = plan.claim_plan.dead
        names = (*[timer.name for timer in plan.timers], *dead)
        found = (yield from read_one(Named(self.snapshot.row, names), exact=True)) if names else []
        return any(dead.get(column.name, column.value) == column.value for column in found)

    def take_late_one(self) -> Steps[bool]:
        """Take what a commit has claimed that was carried out after it was read back; whether there was one."""
        late = yield from self.unanswered.carried_out_since(self.snapshot, self.process.now(), self._has_traces)
        if late is None:
            return False
        self.process.report_read_back(self.snapshot.row, self.operation, applied=True)
        self.snapshot.forget()
        self.header = late[0]
        self.remember(late[1])
        return True

    def remember(self, plan: _ClaimCommit) -> None:
        """Update the snapshot, and add to the result what was claimed, settled and dead-lettered."""
        claim_plan, before = plan.claim_plan, plan.claim_plan.known.decoded
        if self.header.owner and before.owner != self.header.owner:
            self.claimed.previous_owner = before.owner
        dead = [name.id for name in claim_plan.dead]
        self.snapshot.header_committed(self.header, plan.successors, plan.timers, dead=dead, at=claim_plan.now)
        self.snapshot.scans.late_scans_made(claim_plan.late_scans, claim_plan.now)
        for part in plan.settle_plans:
            self.snapshot.settled(part.timer_change)
            self.claimed.settled[part.timer.name] = SettleResult([part])
        self.claimed.lapsed += claim_plan.lapsed(timer for timer, _ in plan.successors)
        self.claimed.committed = True
        self.claimed.claims += plan.claims
        self.claimed.at_most_once += claim_plan.at_most_once
        self.claimed.dead += len(claim_plan.dead)
        self.claimed.buried += claim_plan.buried
        self.claimed.superseded += claim_plan.superseded
        self.claimed.undecodable += claim_plan.undecodable
        self._look_again_at_groups(claim_plan)
        self.claimed.more |= self.snapshot.has_free_group and not claim_plan.suspect

    def _look_again_at_groups(self, claim_plan: ClaimPlan) -> None:
        """Read the timers again if messages were blocked behind those that other processes have leased.

        One of these may have been settled after the timers were read and before this commit. Its process saw no blocked
        message then, and this one may have heard its ring before.
        """
        groups = claim_plan.timers.groups
        if any(groups.is_leased_by_others(entry.group, self.process.name) for entry in claim_plan.blocked):
            self.snapshot.timers = None
            self.claimed.more = True

    def again(self, refused: int) -> Steps[bool]:
        """Commit the settles alone, which never wait; the claim leaves the row to other processes after three tries.

        One that yields leaves it at once, unless its commit has no answer and may be carried out late: no process would
        know of the leases. Another commit either finds that out or keeps it from happening.
        """
        self.claimed.refused += 1
        yield from self.settle_alone()
        return refused < _TRIES and not (self.request.yields and self.unanswered.error is None)


def _blocked(process: Client, claim_plan: ClaimPlan) -> tuple[list[Timer], list[Timer]]:
    """The timers of the messages that this claim blocks, and shorter ones whose messages go into them.

    A message that comes to a busy group may be blocked alone: without the second, a row would have a timer for each.
    """
    merged: list[Timer] = []
    entries = list(claim_plan.blocked)
    for timer in sorted(claim_plan.timers.groups.timers(), key=lambda timer: len(timer.entries)) if entries else ():
        if timer.name not in claim_plan.leaving and len(timer.entries) <= len(entries) <= _BLOCKED_TOGETHER:
            merged.append(timer)
            entries += timer.entries
    parts = range(0, len(entries), _BLOCKED_TOGETHER)
    return [blocked_timer(process, entries[first : first + _BLOCKED_TOGETHER]) for first in parts], merged


def _elsewhere(settlement: SettleRequest) -> bool:
    """Whether some of these messages have left the timer, so that their present timer must be searched."""
    return not {entry.id for entry in settlement.timer.entries}.issuperset(settlement.outcomes)


def _free_keys(change: RowTransaction, going: Mapping[Id, SettleEffects]) -> Steps[None]:
    """Free the keys that these claimed messages still own, and write their marks: they are deleted or dead-lettered."""
    change.put_all(*[effects.mark for effects in going.values() if effects.mark])
    for column in (yield from owned_keys(change.row, going)):
        change.expect(column.name, column.value)
        change.delete(column.name)


def _leased(process: Client, lease: int, held: list[ClaimedMessage], claim_plan: ClaimPlan) -> Timer:
    name = Name(Type.TIMER, 0, process.id_at(process.now() + lease), State.LEASED)
    entries = tuple(one.entry for one in held)
    return encoded(
        Timer(
            name=name,
            entries=entries,
            nonce=process.nonce(),
            holder=process.name,
            made_for=len(held),
            alone=claim_plan.alone,
            isolated=claim_plan.suspect,
        )
    )
