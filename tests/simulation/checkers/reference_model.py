"""The true contents of each row, commit by commit, and what no commit may ever do.

A commit counts from the moment at which a majority of the replicas has accepted it, whether or not any process knows.
The model applies commits in that order, and checks what each does to the messages of its row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.ids import Id, Nonce
from astyqueue.protocol.layout.columns import (
    HEADER,
    Dead,
    Entry,
    Mark,
    State,
    Timer,
    Type,
    decode_dead,
    decode_timer,
    hidden_by,
)
from astyqueue.store import Name
from astyqueue.stores import column_name_codec
from tests.simulation.cassandra.replica import Ballot, Decision, Replica
from tests.simulation.cassandra.storage import DELETED, Cell, Changes
from tests.simulation.checkers.key_model import KeyModel

_HEADER: Final = column_name_codec.encode(HEADER)


@dataclass(slots=True)
class RowModel:
    """One row. `where` is the timer that lists a message.

    `died` are messages that were dead letters at some time, `gone` those that a commit removed, `replaced` those of
    them that lost their unique key to another message in that commit, `superseded` those that were leased when another
    message took their key, and `claims` the claims that ever had a message. `turns` has the commits in which a message
    was leased for the first time, and in which it ended.
    """

    header: bytes | None = None
    timers: dict[Name, Timer] = field(default_factory=dict)
    where: dict[Id, Name] = field(default_factory=dict)
    dead: dict[Id, Dead] = field(default_factory=dict)
    died: set[Id] = field(default_factory=set)
    gone: set[Id] = field(default_factory=set)
    replaced: set[Id] = field(default_factory=set)
    superseded: set[Id] = field(default_factory=set)
    claims: dict[Id, set[bytes]] = field(default_factory=dict)
    under_way: set[Id] = field(default_factory=set)
    turns: list[Turn] = field(default_factory=list)


class Turn(NamedTuple):
    """A message that ends, or is under way from this commit on."""

    commit: int
    begins: bool
    id: Id


#: The timer that a message comes from, and the attempts spent until then.
_Listed = dict[Id, tuple[Timer, int]]


@dataclass(slots=True)
class _Commit:
    """The changes of one commit, sorted by what they are."""

    row: str
    timers: dict[Name, Timer] = field(default_factory=dict)
    ended: list[Timer] = field(default_factory=list)
    died: dict[Id, Dead] = field(default_factory=dict)
    revived: list[Id] = field(default_factory=list)
    removed: list[Id] = field(default_factory=list)
    inserted: list[Id] = field(default_factory=list)
    keyed: bool = False


class ReferenceModel:
    """All rows; `violations` lists what went wrong, in that order."""

    def __init__(self, quorum: int, first: str | tuple[str, ...]) -> None:
        """Judges rows whose names begin with `first`, or with one of several."""
        self.rows: dict[str, RowModel] = {}
        self.key_models: dict[str, KeyModel] = {}
        self.violations: list[str] = []
        self.commits = 0
        self._quorum = quorum
        self._first = first
        self._accepted: dict[tuple[str, Ballot], set[int]] = {}
        self._decided: set[tuple[str, Ballot]] = set()

    def record_accept(self, row: str, proposal: Decision, replica: Replica) -> None:
        """Note that a replica accepted a proposal for good; once a majority has, it is decided."""
        if not row.startswith(self._first):
            return
        accepted = self._accepted.setdefault((row, proposal.ballot), set())
        accepted.add(replica.number)
        if len(accepted) >= self._quorum and (row, proposal.origin) not in self._decided:
            self._decided.add((row, proposal.origin))
            self.commits += 1
            model = self.rows.setdefault(row, RowModel())
            if (header := proposal.changes.get(_HEADER)) is not None:
                model.header = None if header.kind == DELETED else header.value
            self._check(model, _sorted(row, proposal.changes))
            self._check_keys(model, self.key_models.setdefault(row, KeyModel(row)), proposal.changes)

    def current_header(self, row: str) -> bytes | None:
        """The value of a row's header after the last decided commit."""
        return self.rows[row].header if row in self.rows else None

    def _check_keys(self, row: RowModel, keys: KeyModel, changes: Changes) -> None:
        if keys.follow(changes):
            for wrong in keys.wrong_keys(row.gone.union(row.dead), row.superseded):
                self._report(keys.row, wrong)

    def _check(self, row: RowModel, commit: _Commit) -> None:
        """Apply a commit, and note what it may not do."""
        row.gone.difference_update(commit.inserted)
        row.superseded.difference_update(commit.revived)
        before = {name: row.timers.get(name) for name in [*commit.timers, *[timer.name for timer in commit.ended]]}
        listed = {one.id: (timer, one.spent) for timer in before.values() if timer for one in hidden_by(timer)}
        for id_ in listed:
            if row.where.get(id_) in before:
                del row.where[id_]
        for timer in commit.ended:
            row.timers.pop(timer.name, None)
        for timer in commit.timers.values():
            self._list(row, commit, timer, listed=listed)
        self._bury(row, commit)
        self._remove(row, commit, listed)

    def _list(self, row: RowModel, commit: _Commit, timer: Timer, *, listed: _Listed) -> None:
        row.timers[timer.name] = timer
        for one in hidden_by(timer):
            if one.id in row.where:
                self._report(
                    commit.row, f"{ids.text(one.id)} is listed in two timers: two receipts of it could be current"
                )
            if one.id in row.gone:
                self._report(commit.row, f"{ids.text(one.id)} is taken although it was settled or removed before")
            if one.id in row.dead and one.id not in commit.revived:
                self._report(commit.row, f"{ids.text(one.id)} is taken although it is a dead letter")
            row.where[one.id] = timer.name
            if timer.state == State.LEASED:
                row.claims.setdefault(one.id, set()).add(timer.nonce)
                self._turn(row, one.id, begins=True)
            origin = listed.get(one.id)
            self._check_superseded(row, commit, one, leased=_stays_leased(timer, origin[0] if origin else None))
            self._count_attempts(commit, timer, one.spent, origin=origin)

    def _check_superseded(self, row: RowModel, commit: _Commit, one: Entry | Mark, *, leased: bool) -> None:
        """A message is superseded under its lease, by the commit that gives its key away, and stays so until its end.

        `leased`: it is listed under the claim that it had before.
        """
        superseded, before = isinstance(one, Entry) and one.superseded, one.id in row.superseded
        if superseded and not before and not commit.keyed:
            self._report(commit.row, f"{ids.text(one.id)} is superseded, and no message takes its key")
        if before and not superseded:
            self._report(commit.row, f"{ids.text(one.id)} was superseded, and its timer no longer says so")
        if (superseded or before) and not leased:
            self._report(commit.row, f"{ids.text(one.id)} is superseded, and given back or delivered again")
        if superseded:
            row.superseded.add(one.id)

    def _count_attempts(self, commit: _Commit, timer: Timer, spent: int, *, origin: tuple[Timer, int] | None) -> None:
        """Attempts begin at none, and grow by one if an attempt fails, or if a lease alone in its timer expires."""
        if origin is None:
            if spent:
                self._report(commit.row, f"a message begins with {spent} attempts spent")
            return
        before, least = origin
        taken_again = timer.state == State.LEASED and timer.nonce != before.nonce
        counts = before.state == State.LEASED and (not taken_again or (before.made_for == 1 and before.alone))
        if not least <= spent <= least + counts:
            self._report(
                commit.row,
                f"attempts go from {least} to {spent}, of a timer made for {before.made_for} with alone={before.alone}",
            )

    def _bury(self, row: RowModel, commit: _Commit) -> None:
        for id_ in commit.revived:
            row.dead.pop(id_, None)
            if id_ not in row.where and id_ not in commit.removed and id_ not in commit.died:
                self._report(commit.row, f"the dead letter {ids.text(id_)} vanished")
        for id_, dead in commit.died.items():
            if id_ in row.where or id_ in row.gone:
                self._report(commit.row, f"{ids.text(id_)} dies while another process leases it, or after its end")
            if dead.kind == "attempts" and dead.attempts < 1:
                self._report(commit.row, f"{ids.text(id_)} dies of attempts that no process made")
            row.dead[id_] = dead
            row.died.add(id_)
            self._turn(row, id_, begins=False)

    def _remove(self, row: RowModel, commit: _Commit, listed: _Listed) -> None:
        for id_ in commit.removed:
            if id_ in row.where:
                self._report(commit.row, f"{ids.text(id_)} is removed while another process leases it")
            if id_ in row.gone and id_ in listed:
                self._report(commit.row, f"{ids.text(id_)} is settled a second time")
            if id_ in row.dead:
                self._report(commit.row, f"{ids.text(id_)} is removed, and its dead column stays")
            row.gone.add(id_)
            self._turn(row, id_, begins=False)
            if commit.keyed:
                row.replaced.add(id_)

    def _turn(self, row: RowModel, id_: Id, *, begins: bool) -> None:
        if begins == (id_ in row.under_way):
            return
        row.turns.append(Turn(self.commits, begins, id_))
        (row.under_way.add if begins else row.under_way.discard)(id_)

    def _report(self, row: str, what: str) -> None:
        self.violations.append(f"row {row}, commit {self.commits}: {what}")

    @property
    def hidden(self) -> Counter[str]:
        """How many messages timers list, by row."""
        return Counter({name: len(row.where) for name, row in self.rows.items()})


def _stays_leased(timer: Timer, before: Timer | None) -> bool:
    """Whether messages of the one timer are still leased in the other, by the same claim."""
    return before is not None and timer.state == before.state == State.LEASED and timer.nonce == before.nonce


def _sorted(row: str, changes: Changes) -> _Commit:
    commit = _Commit(row)
    for encoded, cell in changes.items():
        if encoded != _HEADER:
            _sort_in(commit, column_name_codec.decode(encoded), cell)
    return commit


def _sort_in(commit: _Commit, name: Name, cell: Cell) -> None:
    deleted = cell.kind == DELETED
    match name.type, deleted:
        case Type.TIMER, True:
            commit.ended.append(Timer(name, (), Nonce(b""), "", 0))
        case Type.TIMER, False:
            commit.timers[name] = decode_timer(commit.row, name, cell.value)
        case Type.DEAD, True:
            commit.revived.append(name.id)
        case Type.DEAD, False:
            commit.died[name.id] = decode_dead(cell.value)
        case Type.KEY, False:
            commit.keyed = True
        case Type.MESSAGE, True:
            commit.removed.append(name.id)
        case Type.MESSAGE, False:
            commit.inserted.append(name.id)
