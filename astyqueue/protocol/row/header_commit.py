"""Changing one row: a transaction is a batch with expectations, and `HeaderCommits` is the loop that commits it.

The loop plans on what is known of the row, commits, and plans again if another process committed first. Claims, firing
schedules, unique sends and operators' commands are such loops. A settle is not: it expects only its own timer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final, Generic, TypeVar

from astyqueue.errors import AstyqueueError, Closed, OutcomeUnknown, StoreError, StoreUnavailable
from astyqueue.ids import Nonce
from astyqueue.model.envelope import queue_of
from astyqueue.protocol.coordination.doorbell import RebalanceRequest, request_rebalance
from astyqueue.protocol.layout.columns import HEADER, Header, Timer, Type, decode_header
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.row.unanswered_commits import UnansweredCommits
from astyqueue.protocol.steps import BATCH_COLUMNS, Client, Steps, commit, read_one
from astyqueue.store import Batch, Column, Committed, Expectation, Name, Named, Outcome, Put

#: Consecutive refusals after which a command gives up: it must end, also beside processes that claim all the time.
COMMIT_TRIES: Final = 50
#: After each such number of refusals, the row is requested from the process that keeps it busy.
_CROWDED_OUT: Final = 3
#: In place of the nonce of a header that does not exist yet.
_NO_NONCE: Final = Nonce(b"")
#: Messages in one commit.
COMMIT_MESSAGES: Final = BATCH_COLUMNS


class RowTransaction:
    """Puts, deletes and expectations that go into one commit."""

    __slots__ = ("_deletes", "_expects", "_puts", "row")

    def __init__(self, row: str) -> None:
        """Begin an empty change of this row."""
        self.row = row
        self._puts: list[Put] = []
        self._deletes: list[Name] = []
        self._expects: list[Expectation] = []

    def __len__(self) -> int:
        """The number of columns that it changes."""
        return len(self._puts) + len(self._deletes)

    def put(self, name: Name, value: bytes) -> None:
        """Write a column."""
        self._puts.append(Put(name, value))

    def put_all(self, *puts: Put) -> None:
        """Write columns, some of which may have a time to live."""
        self._puts.extend(puts)

    def put_timer(self, timer: Timer) -> None:
        """Write a timer that is encoded already."""
        self._puts.append(Put(timer.name, timer.value))

    def delete(self, *names: Name) -> None:
        """Delete columns."""
        self._deletes.extend(names)

    def expect(self, name: Name, value: bytes | None) -> None:
        """Apply only if the column has this value, or is absent."""
        self._expects.append(Expectation(name, value))

    def replace(self, timer: Timer, successor: Timer | None) -> None:
        """Put `successor` in the place of a timer, or delete the timer if it is None; the timer must be unchanged."""
        self.expect(timer.name, timer.value)
        if successor is None:
            self._deletes.append(timer.name)
            return
        if successor.name != timer.name:
            self._deletes.append(timer.name)
        self._puts.append(Put(successor.name, successor.value))

    def bump_header(self, known: bytes | None, header: Header) -> None:
        """Make it a header commit: it expects the known header and writes this one."""
        self.expect(HEADER, known)
        self._puts.append(Put(HEADER, header.encode()))

    def commit(self) -> Steps[Outcome]:
        """Commit; returns Committed or Refused. Raises OutcomeUnknown when the store does not report which."""
        batch = Batch(self.row, tuple(self._puts), tuple(self._deletes))
        return (yield from commit(batch, tuple(self._expects)))


def bump_header(process: Client, change: RowTransaction, known: bytes | None, *, due: int | None) -> Header:
    """Make a change a header commit on this header; returns the header it writes, with a floor of at most `due`.

    It does not change the owner of the row, and a new row has none: this process may only send.
    """
    header = decode_header(change.row, known) if known is not None else Header(0, process.now(), _NO_NONCE, "", ())
    floor = header.floor if due is None else min(header.floor, due)
    bumped = Header(header.version + 1, floor, process.nonce(), header.owner, header.cursors)
    change.bump_header(known, bumped)
    return bumped


P = TypeVar("P")


class HeaderCommits(ABC, Generic[P]):
    """One operation on one row as commits that expect the header as its plan knew it.

    A subclass decides what is planned, how an unknown outcome is read back, and how often a refused commit is planned
    again. `operation` is the word by which observers get an unknown outcome that `read_back` resolves.
    """

    __slots__ = ()
    operation: ClassVar[str] = ""
    process: Client

    def until_applied(self) -> Steps[P | None]:
        """Plan and commit until a commit is applied; returns its plan, or None if there is nothing more to try."""
        refused = 0
        while (plan := (yield from self.plan())) is not None:
            if (yield from self.commit(plan)):
                return plan
            refused += 1
            if not (yield from self.again(refused)):
                break
        return None

    def commit(self, plan: P) -> Steps[bool]:
        """Commit a plan once; whether it was applied. Raises OutcomeUnknown if reading it back fails."""
        change = yield from self.transaction(plan)
        if change is None:
            return False
        try:
            outcome = yield from change.commit()
        except OutcomeUnknown as unknown:
            try:
                applied = yield from self.read_back(plan, unknown)
            except (StoreError, Closed) as error:
                raise unknown from error
            if self.operation:
                self.process.report_read_back(change.row, self.operation, applied=applied)
        except (StoreError, Closed):
            self.failed(plan)
            raise
        else:
            applied = isinstance(outcome, Committed)
            self.answered(plan, outcome)
        if applied:
            self.remember(plan)
        return applied

    @abstractmethod
    def plan(self) -> Steps[P | None]:
        """Read what is not known of the row, and plan the next commit; None: there is nothing more to do."""

    @abstractmethod
    def transaction(self, plan: P) -> Steps[RowTransaction | None]:
        """The transaction of a plan; None: the row changed while it was read, which counts as a refusal."""

    @abstractmethod
    def read_back(self, plan: P, unknown: OutcomeUnknown) -> Steps[bool]:
        """Whether a commit of unknown outcome was applied; False if the next plan finds that out."""

    def answered(self, plan: P, outcome: Outcome) -> None:
        """Use the store's answer to a commit: a refusal shows the present header."""

    def failed(self, plan: P) -> None:
        """Use an error that says that the commit changed nothing."""

    def remember(self, plan: P) -> None:
        """Record in what is known of the row that this plan was applied."""

    @abstractmethod
    def again(self, refused: int) -> Steps[bool]:
        """Prepare another attempt after this number of refusals; returns False, or raises, when it is too high."""


def contend(process: Client, row: str, *, refused: int) -> Steps[bool]:
    """Whether to try again after this number of refusals: up to 50.

    After every third, the row is requested from its owner: network distance must not decide who commits.
    """
    if refused == COMMIT_TRIES:
        return False
    if refused % _CROWDED_OUT == 0:
        yield from request_rebalance(queue_of(row), RebalanceRequest(process.name, row), process.nonce())
    return True


@dataclass(slots=True)
class CommitPlan(ABC):
    """The changes of one header commit to a row.

    `messages` and `dead` are deleted, `shrunk` timers replaced, `listed` timers added, keys `freed` or `taken` if they
    are unchanged since they were read, and `puts` are other columns.
    """

    #: Whether a delayed commit of this plan would still change something after a later plan found nothing to do.
    acts_late: ClassVar[bool] = True

    messages: list[Name] = field(default_factory=list)
    dead: list[Column] = field(default_factory=list)
    shrunk: list[tuple[Timer, Timer | None]] = field(default_factory=list)
    listed: list[Timer] = field(default_factory=list)
    freed: list[Column] = field(default_factory=list)
    taken: list[tuple[Column | None, Put]] = field(default_factory=list)
    puts: list[Put] = field(default_factory=list)

    def add_to(self, change: RowTransaction) -> None:
        """Add it to a transaction, which expects the columns that it replaces or removes to be as they were read."""
        change.delete(*self.messages)
        for column in self.dead:
            change.expect(column.name, column.value)
            change.delete(column.name)
        for timer, left in self.shrunk:
            change.replace(timer, left)
        for timer in self.listed:
            change.put_timer(timer)
        for column in self.freed:
            change.expect(column.name, column.value)
            change.delete(column.name)
        for current, key in self.taken:
            change.expect(key.name, current.value if current else None)
            change.put(key.name, key.value)
        change.put_all(*self.puts)

    @property
    def due(self) -> int | None:
        """The earliest due time of the timers that it adds; None if it adds none."""
        return min((timer.due for timer in self.listed), default=None)

    @abstractmethod
    def was_done(self, row: str) -> Steps[bool]:
        """Whether a commit of unknown outcome was applied, by its traces; False is safe if it may be repeated."""


@dataclass(slots=True)
class RemovalPlan(CommitPlan):
    """A plan that removes messages or dead columns, among other changes.

    Repeating it is safe, and so is carrying it out late.
    """

    acts_late: ClassVar[bool] = False

    def was_done(self, row: str) -> Steps[bool]:
        """Whether all that it removes is gone and every removed mark is there; another process may have removed them.

        A deleted message returns only by an idempotent send that finds no mark of it; a new dead letter has another
        value.
        """
        died = {column.name: column.value for column in self.dead}
        marks = {put.name for put in self.puts if put.name.type == Type.REMOVED}
        if not (self.messages or died):
            return False
        columns = yield from read_one(Named(row, (*self.messages, *died, *marks)), exact=True)
        found = {column.name: column.value for column in columns}
        if not marks <= found.keys():
            return False
        return all(name in marks or (name in died and died[name] != value) for name, value in found.items())


Planning = Callable[[RowSnapshot], Steps[CommitPlan | None]]


@dataclass(slots=True)
class CommitLoop(HeaderCommits[CommitPlan]):
    """Header commits of one row, one after the other; the snapshot of the row is kept from one to the next.

    `knowing` loads as much of the row as plans need: the header at least.
    """

    operation: ClassVar[str] = "change"

    process: Client
    snapshot: RowSnapshot
    knowing: Callable[[RowSnapshot, int], Steps[object]] = load_snapshot
    _planning: Planning = field(init=False)
    _header: Header = field(init=False)
    _unanswered: UnansweredCommits[CommitPlan] = field(init=False, default_factory=UnansweredCommits)

    def carry_out(self, planning: Planning) -> Steps[CommitPlan | None]:
        """Load the row, plan and commit until a commit is applied; returns its plan, or None if nothing was left to do.

        Raises StoreUnavailable after 50 attempts between which other processes changed the row. While a commit without
        an answer may still be carried out, it raises OutcomeUnknown instead of that, and instead of returning None.
        """
        self._planning = planning
        self._unanswered.clear()  # a call that failed may have left its own: they say nothing about this one
        try:
            return (yield from self.until_applied())
        except (StoreError, Closed) as error:
            if self._unanswered.error is None or isinstance(error, OutcomeUnknown):
                raise
            raise self._unanswered.error from error

    def plan(self) -> Steps[CommitPlan | None]:
        """Load the row and plan, unless an earlier plan turns out to have been carried out late.

        It may be carried out while this one is made, which then finds nothing to do, or that plan's work in its way.
        """
        yield from self.knowing(self.snapshot, self.process.now())
        if late := (yield from self._unanswered.carried_out(self.snapshot.loaded_header.value, self._has_traces)):
            return late[1]
        try:
            plan = yield from self._planning(self.snapshot)
        except StoreError:
            raise
        except AstyqueueError:
            if late := (yield from self._carried_out_since()):
                return late[1]
            raise
        if plan is None:
            late = yield from self._carried_out_since()
        else:  # planning may have read the row again
            late = yield from self._unanswered.carried_out(self.snapshot.loaded_header.value, self._has_traces)
        if late:
            return late[1]
        if plan is None and self._unanswered.error and any(one.acts_late for one in self._unanswered.plans):
            raise self._unanswered.error
        return plan

    def _carried_out_since(self) -> Steps[tuple[Header, CommitPlan] | None]:
        return (yield from self._unanswered.carried_out_since(self.snapshot, self.process.now(), self._has_traces))

    def _has_traces(self, plan: CommitPlan) -> Steps[bool]:
        """Whether a plan was carried out, by its traces, as when it is read back at once."""
        return (yield from plan.was_done(self.snapshot.row))

    def commit(self, plan: CommitPlan) -> Steps[bool]:
        """Commit a plan once, unless it was carried out late; whether it was applied."""
        if plan is self._unanswered.late:
            self.snapshot.forget()  # the row was read for a later plan
            return self.process.report_read_back(self.snapshot.row, self.operation, applied=True)
        return (yield from HeaderCommits.commit(self, plan))

    def transaction(self, plan: CommitPlan) -> Steps[RowTransaction]:
        """The changes of the plan, and the next header."""
        yield from ()
        change = RowTransaction(self.snapshot.row)
        plan.add_to(change)
        self._header = bump_header(self.process, change, self.snapshot.loaded_header.value, due=plan.due)
        return change

    def remember(self, plan: CommitPlan) -> None:
        """Keep the snapshot for the next commit."""
        self._unanswered.clear()
        self.snapshot.header_committed(self._header, plan.shrunk, plan.listed)

    def read_back(self, plan: CommitPlan, unknown: OutcomeUnknown) -> Steps[bool]:
        """Whether the commit was applied: by the header, or else by its traces."""
        row, expects = self.snapshot.row, self.snapshot.loaded_header.value
        self.snapshot.forget()
        return (
            yield from self._unanswered.read_back(
                row, plan, unknown, expects=expects, header=self._header, traces=self._has_traces
            )
        )

    def again(self, refused: int) -> Steps[bool]:
        """Read the row again, up to 50 times."""
        self.snapshot.forget()
        if (yield from contend(self.process, self.snapshot.row, refused=refused)):
            return True
        raise conflicts_error(self.snapshot.row)


def conflicts_error(row: str) -> StoreUnavailable:
    """The error of an operation that ends because other processes change the row each time that it was read."""
    return StoreUnavailable(
        f"row {row}: gave up after {COMMIT_TRIES} conflicts with other processes. The operation was "
        "not completed, part of it may have been applied: pause the queue, or retry when it is less busy"
    )
