"""Raised commits that people ask for: planned on what a row is, and planned anew when others came first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from astyqueue.errors import OutcomeUnknown, StoreError, StoreUnavailable
from astyqueue.ids import Id
from astyqueue.protocol.bell import Wish, want
from astyqueue.protocol.change import Change
from astyqueue.protocol.claim import without
from astyqueue.protocol.columns import HEADER, Header, Timer
from astyqueue.protocol.pages import listed_by
from astyqueue.protocol.process import Process
from astyqueue.protocol.settle import raise_for
from astyqueue.protocol.sight import Sight, know
from astyqueue.protocol.steps import Steps, read_column, read_one
from astyqueue.store import Column, Name, Named, Put, Refused

#: Refusals in a row after which a command gives up: it must end, also beside processes that claim all the time.
TRIES: Final = 50
#: After so many refusals in a row, those who keep the row busy are asked to leave it alone for a moment.
_CROWDED_OUT: Final = 3
#: Messages in one commit.
MOST: Final = 200


@dataclass(slots=True)
class Plan(ABC):
    """What one raised commit is to do to a row.

    Messages and dead columns go, timers lose messages, new timers come; keys are freed, or taken, if they are as they were
    read; other columns are put.
    """

    messages: list[Name] = field(default_factory=list)
    dead: list[Column] = field(default_factory=list)
    shrunk: list[tuple[Timer, Timer | None]] = field(default_factory=list)
    listed: list[Timer] = field(default_factory=list)
    freed: list[Column] = field(default_factory=list)
    taken: list[tuple[Column | None, Put]] = field(default_factory=list)
    puts: list[Put] = field(default_factory=list)

    def add_to(self, change: Change) -> None:
        """Make it part of a change that expects what it replaces or removes as it was read."""
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
        for standing, key in self.taken:
            change.expect(key.name, standing.value if standing else None)
            change.put(key.name, key.value)
        change.put_all(*self.puts)

    @property
    def due(self) -> int | None:
        """The earliest due that it adds."""
        return min((timer.due for timer in self.listed), default=None)

    @abstractmethod
    def was_done(self, row: str) -> Steps[bool]:
        """Whether a commit of unknown outcome was applied, as far as its traces tell; of one that may be repeated, False is safe."""


@dataclass(slots=True)
class Removal(Plan):
    """A commit that removes messages or dead columns, whatever else it does; one that finds none of them there may be repeated."""

    def was_done(self, row: str) -> Steps[bool]:
        """Whether all that it removes is gone: a message never comes back, and a letter that died anew died otherwise."""
        died = {column.name: column.value for column in self.dead}
        if not (self.messages or died):
            return False
        columns = yield from read_one(Named(row, (*self.messages, *died)), exact=True)
        return all(column.name in died and died[column.name] != column.value for column in columns)


def ask_for(process: Process, row: str, *, refused: int) -> Steps[None]:
    """After each few refusals, ask the owner of a row for a pause, so that it is not distance that decides who gets in."""
    if refused % _CROWDED_OUT == 0:
        yield from want(row.split(":", 1)[0], Wish(process.name, row), process.nonce())


Planning = Callable[[Sight], Steps[Plan | None]]


def shrunk_by(sight: Sight, leaving: set[Id]) -> list[tuple[Timer, Timer | None]]:
    """Each known timer that lists one of these messages, and what is left of it in place: its other receipts stay valid."""
    timers = (sight.timers or {}).values()
    return [(timer, without(timer, leaving)) for timer in timers if any(one.id in leaving for one in listed_by(timer))]


@dataclass(slots=True)
class Raising:
    """Raised commits of one row, one after the other; what is known of the row is kept from one to the next.

    `knowing` sees to it that as much of the row is known as plans are made on: the header at least.
    """

    process: Process
    sight: Sight
    knowing: Callable[[Sight, int], Steps[None]] = know

    def carry_out(self, planning: Planning) -> Steps[Plan | None]:
        """Plan on the row as it is and commit, until that goes through; None when there was nothing to do (any more).

        The plan is made when the header and all timers are known, or what `knowing` sees to. When others change the row each
        time in between, StoreUnavailable ends it.
        """
        for number in range(1, TRIES + 1):
            yield from self.knowing(self.sight, self.process.now())
            plan = yield from planning(self.sight)
            if plan is None or (yield from self._commit(plan)):
                return plan
            self.sight.forget()
            yield from ask_for(self.process, self.sight.row, refused=number)
        message = (
            f"row {self.sight.row}: others changed it {TRIES} times in a row while this was tried. What was asked is not done, "
            "or not to its end: pause the queue, or try again when it is less busy"
        )
        raise StoreUnavailable(message)

    def _commit(self, plan: Plan) -> Steps[bool]:
        change = Change(self.sight.row)
        plan.add_to(change)
        header = raise_for(self.process, change, self.sight.value, due=plan.due)
        try:
            outcome = yield from change.commit()
        except OutcomeUnknown as unknown:
            return (yield from self._read_back(plan, header, unknown))
        if isinstance(outcome, Refused):
            return False
        self._remember(plan, header)
        return True

    def _remember(self, plan: Plan, header: Header) -> None:
        for timer, left in plan.shrunk:
            self.sight.replace(timer.name, [left] if left else [])
        self.sight.raised(header, plan.listed, ())

    def _read_back(self, plan: Plan, header: Header, unknown: OutcomeUnknown) -> Steps[bool]:
        """Find out what became of a commit: our header, the one before it, or that of others who went on from either."""
        known = self.sight.value
        self.sight.forget()
        try:
            column = yield from read_column(self.sight.row, HEADER, exact=True)
            standing = column.value if column else None
            if standing in (known, header.encode()):
                return standing != known
            return (yield from plan.was_done(self.sight.row))
        except StoreError as error:
            raise unknown from error
