"""Changing one row: a transaction is a batch with expectations; the commit loop plans and commits until one is applied.

Operators' commands, unique sends and schedules use the loop. Claims and settles have loops of their own, because they
may neither wait for each other nor give up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from astyqueue.errors import OutcomeUnknown, StoreError, StoreUnavailable
from astyqueue.ids import Id
from astyqueue.protocol.client import Client
from astyqueue.protocol.coordination.doorbell import RowRequest, request_row
from astyqueue.protocol.layout.columns import HEADER, Header, Timer, decode_header, hidden_by, timer_without
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.steps import Steps, commit, read_column, read_one
from astyqueue.store import Batch, Column, Expectation, Name, Named, Outcome, Put, Refused

#: Consecutive refusals after which a command gives up: it must end, also beside processes that claim all the time.
COMMIT_TRIES: Final = 50
#: After each such number of refusals, the row is requested from the process that keeps it busy.
_CROWDED_OUT: Final = 3
#: Messages in one commit.
COMMIT_MESSAGES: Final = 200


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

    def raise_header(self, known: bytes | None, header: Header) -> None:
        """Make it a header commit: it expects the known header and writes this one."""
        self.expect(HEADER, known)
        self._puts.append(Put(HEADER, header.encode()))

    def commit(self) -> Steps[Outcome]:
        """Commit; returns Committed or Refused. Raises OutcomeUnknown when the store does not report which."""
        batch = Batch(self.row, tuple(self._puts), tuple(self._deletes))
        return (yield from commit(batch, tuple(self._expects)))


def bump_header(process: Client, change: RowTransaction, known: bytes | None, *, due: int | None) -> Header:
    """Make a change a header commit on this header; returns the header it writes, with a floor of at most `due`."""
    header = decode_header(change.row, known) if known is not None else Header(0, process.now(), b"", process.name, ())
    floor = header.floor if due is None else min(header.floor, due)
    raised = Header(header.version + 1, floor, process.nonce(), header.owner, header.cursors)
    change.raise_header(known, raised)
    return raised


@dataclass(slots=True)
class CommitPlan(ABC):
    """The changes of one header commit to a row.

    `messages` and `dead` are deleted, `shrunk` timers replaced, `listed` timers added, keys `freed` or `taken` if they
    are unchanged since they were read, and `puts` are other columns.
    """

    #: Whether it still matters when a delayed commit of it is carried out after there was nothing left to do.
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
        """Whether all that it removes is gone. A deleted message never returns; a new dead letter has another value."""
        died = {column.name: column.value for column in self.dead}
        if not (self.messages or died):
            return False
        columns = yield from read_one(Named(row, (*self.messages, *died)), exact=True)
        return all(column.name in died and died[column.name] != column.value for column in columns)


def request_pause(process: Client, row: str, *, refused: int) -> Steps[None]:
    """After every third refusal, request the row from its owner: network distance must not decide who commits."""
    if refused % _CROWDED_OUT == 0:
        yield from request_row(row.split(":", 1)[0], RowRequest(process.name, row), process.nonce())


Planning = Callable[[RowSnapshot], Steps[CommitPlan | None]]


def timers_without(snapshot: RowSnapshot, leaving: set[Id]) -> list[tuple[Timer, Timer | None]]:
    """Each known timer that lists one of these messages, and what remains of it: its other receipts stay valid."""
    timers = (snapshot.timers or {}).values()
    return [
        (timer, timer_without(timer, leaving)) for timer in timers if any(one.id in leaving for one in hidden_by(timer))
    ]


@dataclass(slots=True)
class CommitLoop:
    """Header commits of one row, one after the other; the snapshot of the row is kept from one to the next.

    `knowing` loads as much of the row as plans need: the header at least.
    """

    process: Client
    snapshot: RowSnapshot
    knowing: Callable[[RowSnapshot, int], Steps[None]] = load_snapshot
    _delayed: tuple[bytes | None, OutcomeUnknown] | None = None

    def carry_out(self, planning: Planning) -> Steps[CommitPlan | None]:
        """Load the row, plan and commit until a commit is applied; returns its plan, or None if nothing was left to do.

        Raises StoreUnavailable after 50 attempts between which other processes changed the row. Raises OutcomeUnknown
        instead of returning None while a commit without an answer may still be carried out.
        """
        for number in range(1, COMMIT_TRIES + 1):
            yield from self.knowing(self.snapshot, self.process.now())
            plan = yield from planning(self.snapshot)
            if plan is None and self._delayed and self._delayed[0] == self.snapshot.value:
                raise self._delayed[1]
            if plan is None or (yield from self._commit(plan)):
                return plan
            self.snapshot.forget()
            yield from request_pause(self.process, self.snapshot.row, refused=number)
        message = (
            f"row {self.snapshot.row}: gave up after {COMMIT_TRIES} conflicts with other processes. The operation was "
            "not completed, part of it may have been applied: pause the queue, or retry when it is less busy"
        )
        raise StoreUnavailable(message)

    def _commit(self, plan: CommitPlan) -> Steps[bool]:
        change = RowTransaction(self.snapshot.row)
        plan.add_to(change)
        header = bump_header(self.process, change, self.snapshot.value, due=plan.due)
        try:
            outcome = yield from change.commit()
        except OutcomeUnknown as unknown:
            return (yield from self._read_back(plan, header, unknown))
        if isinstance(outcome, Refused):
            return False
        self._remember(plan, header)
        return True

    def _remember(self, plan: CommitPlan, header: Header) -> None:
        self._delayed = None
        for timer, left in plan.shrunk:
            self.snapshot.replace(timer.name, [left] if left else [])
        self.snapshot.raised(header, plan.listed, ())

    def _read_back(self, plan: CommitPlan, header: Header, unknown: OutcomeUnknown) -> Steps[bool]:
        """Whether the commit was applied: yes if the row has our header, no if the previous one; else by its traces."""
        known = self.snapshot.value
        self.snapshot.forget()
        try:
            column = yield from read_column(self.snapshot.row, HEADER, exact=True)
            current = column.value if column else None
            if current == known:  # not applied so far; as long as the header stays, it may be when the request arrives
                self._delayed = (known, unknown) if plan.acts_late else None
                return False
            if current == header.encode():
                return True
            return (yield from plan.was_done(self.snapshot.row))
        except StoreError as error:
            raise unknown from error
