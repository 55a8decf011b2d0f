"""One replica: its rows, what it promised and accepted, and the hints it keeps for others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from astyqueue.units import SECOND
from tests.simulation.cassandra.storage import Changes, Found, Row
from tests.simulation.engine.event_loop import SkewedClock


class Ballot(NamedTuple):
    """A time by the clock of a coordinator, and the coordinator's number.

    Servers compare ballots by time alone, and of two with one time they promise neither after the other: so no two
    commits of a row have one stamp.
    """

    moment: int
    node: int

    def blocks(self, other: Ballot) -> bool:
        """Whether a replica that promised this ballot refuses the other."""
        return self.moment >= other.moment and self != other


NO_BALLOT = Ballot(0, 0)


class Decision(NamedTuple):
    """Changes under a ballot: proposed, accepted or committed. `origin` is the ballot of their first proposal."""

    ballot: Ballot
    changes: Changes
    origin: Ballot


NOTHING = Decision(NO_BALLOT, {}, NO_BALLOT)


@dataclass(slots=True)
class Paxos:
    """What a replica remembers of the commits of one row.

    `writing` is the last promise to a coordinator that may propose a change.
    """

    promised: Ballot = NO_BALLOT
    writing: Ballot = NO_BALLOT
    accepted: Decision = NOTHING
    committed: Decision = NOTHING


class Promise(NamedTuple):
    """The answer to a prepare: what was accepted and committed before, and the requested cells.

    It is `stable` unless this replica made a promise for a change and has not seen how that change ended.
    """

    accepted: Decision
    committed: Decision
    found: Found
    stable: bool


class Hint(NamedTuple):
    """A write that another replica missed."""

    target: int
    row: str
    changes: Changes
    written: int


Selection = Callable[[Row], Found]


@dataclass(slots=True, eq=False)
class Replica:
    """A node with a copy of every row. Faults set `paused_until` and `up`; `life` counts its starts."""

    number: int
    clock: SkewedClock
    up: bool = True
    life: int = 0
    paused_until: int = 0
    down_since: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    paxos: dict[str, Paxos] = field(default_factory=dict)
    hints: list[Hint] = field(default_factory=list)
    _last: int = 0

    def next_ballot(self, beyond: Ballot = NO_BALLOT) -> Ballot:
        """A ballot of this coordinator, later than its last one and than the one because of which it was refused."""
        self._last = max(self.clock.now(), self._last + 1, beyond.moment + 1)
        return Ballot(self._last, self.number)

    def row(self, name: str) -> Row:
        """The row of this name, empty if there is none."""
        row = self.rows.get(name)
        if row is None:
            row = self.rows[name] = Row()
        return row

    def write(self, row: str, changes: Changes) -> bool:
        """Apply changes; always True, since callers count answers."""
        self.row(row).apply(changes)
        return True

    def _paxos(self, row: str) -> Paxos:
        state = self.paxos.get(row)
        if state is None:
            state = self.paxos[row] = Paxos()
        return state

    def prepare(self, row: str, ballot: Ballot, selection: Selection, *, writing: bool) -> Promise | Ballot:
        """Promise to accept no ballot before this one; or return the one that it promised already."""
        state = self._paxos(row)
        if state.promised.blocks(ballot):
            return state.promised
        stable = state.writing <= state.committed.ballot or state.writing == ballot
        state.promised = ballot
        if writing:
            state.writing = ballot
        return Promise(state.accepted, state.committed, selection(self.row(row)), stable)

    def propose(self, row: str, proposal: Decision) -> bool | Ballot:
        """Accept a proposal; or return the later ballot that it promised to another coordinator."""
        state = self._paxos(row)
        if state.promised.blocks(proposal.ballot):
            return state.promised
        state.promised, state.accepted = proposal.ballot, proposal
        return True

    def commit(self, row: str, decided: Decision) -> bool:
        """Apply a decided proposal."""
        state = self._paxos(row)
        if decided.ballot > state.committed.ballot:
            state.committed = decided
        return self.write(row, decided.changes)

    def crash(self, now: int) -> None:
        """Stop at once. Writes that were not on its disk are lost; no answer and no read has shown them."""
        self.up, self.down_since, self.paused_until = False, now, 0
        self.life += 1

    def purge(self, grace_us: int) -> int:
        """Drop tombstones older than that; returns how many."""
        before = self.clock.now() - max(grace_us, SECOND)
        return sum(row.purge(before) for row in self.rows.values())
