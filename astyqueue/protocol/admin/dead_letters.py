"""Dead letters: listing, redriving with the unique keys they had, and purging.

To redrive or purge many, the caller loops: it reads a page of the chosen ones, then makes one call for that page. So it
may stop between two pages, go slowly, or continue later from where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from astyqueue.errors import StoreCorrupt
from astyqueue.ids import LEAST, Id
from astyqueue.model.envelope import MessageId
from astyqueue.model.views import Content, DeadFilter, DeadLetter, RedriveReport
from astyqueue.protocol.admin.browse import contents
from astyqueue.protocol.admin.delete import OnDeleted
from astyqueue.protocol.layout.columns import (
    Dead,
    Entry,
    Type,
    dead_name,
    decode_dead,
    message_name,
    visible_at,
)
from astyqueue.protocol.layout.rows import is_home
from astyqueue.protocol.layout.unique_key import KeyOwner, key_name
from astyqueue.protocol.row.header_commit import COMMIT_MESSAGES, CommitLoop, CommitPlan, RemovalPlan
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.sending.key_state import FREE, KeyState, key_states
from astyqueue.protocol.steps import Client, Steps, read_one
from astyqueue.store import Column, Name, Named, Put, Slice

#: Dead letters read for one page, and purged in one commit (each is two columns).
PAGE: Final = 100
#: Kinds of dead letters that a redrive would make dead letters again at once.
_HOPELESS: Final = frozenset({"undecodable", "expired"})
_ALL: Final = DeadFilter()


class DeadPage(NamedTuple):
    """Some dead letters; the next page begins beyond `after`; None: this is the last page. A page may be empty."""

    letters: list[DeadLetter]
    after: MessageId | None


class MatchingPage(NamedTuple):
    """As a `DeadPage`, but only the ids of the dead letters."""

    ids: list[MessageId]
    after: MessageId | None


class _Scanned(NamedTuple):
    """The dead columns of one row and priority that fit, and the last one read; None at the end."""

    deaths: dict[MessageId, Dead]
    last: MessageId | None


def dead_page(
    rows: Sequence[str], levels: int, *, after: MessageId | None = None, where: DeadFilter = _ALL, limit: int = PAGE
) -> Steps[DeadPage]:
    """The next dead letters that fit: row by row, the highest priority first, then by when they were first due.

    At most `limit` are read, so a page may have fewer, or none, although there are more.
    """
    scanned = yield from _scan(rows, levels, after=after, where=where, limit=limit)
    letters = yield from _letters(scanned.deaths)
    return DeadPage([letter for letter in letters if where.fits_content(letter)], scanned.last)


def matching_page(
    rows: Sequence[str], levels: int, *, after: MessageId | None = None, where: DeadFilter = _ALL, limit: int = PAGE
) -> Steps[MatchingPage]:
    """As `dead_page`, for a redrive or a purge: messages are read only if the filter needs their content."""
    if where.asks_content:
        page = yield from dead_page(rows, levels, after=after, where=where, limit=limit)
        return MatchingPage([letter.id for letter in page.letters], page.after)
    scanned = yield from _scan(rows, levels, after=after, where=where, limit=limit)
    return MatchingPage(list(scanned.deaths), scanned.last)


def dead_letter(message: MessageId) -> Steps[DeadLetter | None]:
    """One dead letter, with its body or its raw bytes; None if it is not one."""
    columns = yield from read_one(Named(message.row, (dead_name(message.priority, message.id),)))
    if not columns:
        return None
    letters = yield from _letters({message: decode_dead(columns[0].value)})
    return letters[0]


def redrive(
    process: Client,
    chosen: Sequence[MessageId],
    *,
    force: bool = False,
    dry_run: bool = False,
    on_redriven: Callable[[list[MessageId]], object] = lambda _: None,
) -> Steps[RedriveReport]:
    """Put dead letters back: each may be claimed at once, and has all its attempts again.

    Ids that are not dead letters are skipped. Undecodable and expired ones would be dead-lettered again at once and are
    left, unless `force`, as after an upgrade that can read them. A letter with a unique key takes it again, and is left
    if another message has it. `on_redriven` is called after each commit with the ids of the letters that it put back.
    """
    report = RedriveReport(dry_run=dry_run)
    for row, part in _parts(chosen, COMMIT_MESSAGES):
        redriving = _Redriving(process, part, force=force)
        if dry_run:
            dead = yield from redriving.fit(row)
            report += RedriveReport(len(dead), redriving.left)
            continue
        plan = yield from CommitLoop(process, RowSnapshot(row, 1)).carry_out(redriving.plan)
        back = [MessageId(row, column.name.priority, column.name.id) for column in plan.dead] if plan else []
        if back:
            on_redriven(back)
        report += RedriveReport(len(back), redriving.left)
    return report


def purge(process: Client, chosen: Sequence[MessageId], on_deleted: OnDeleted = lambda _: None) -> Steps[int]:
    """Delete dead letters for good; returns their number.

    Ids that are not dead letters are skipped. `on_deleted` is called after each commit.
    """
    purged = 0
    for row, part in _parts(chosen, PAGE):
        plan = yield from CommitLoop(process, RowSnapshot(row, 1)).carry_out(partial(_purging, part))
        if plan:
            on_deleted(gone := [MessageId(row, column.name.priority, column.name.id) for column in plan.dead])
            purged += len(gone)
    return purged


class _Redriving:
    """A redrive of letters of one row, in one commit."""

    def __init__(self, process: Client, chosen: Sequence[MessageId], *, force: bool) -> None:
        self.left = 0
        self.retaken: ReacquiredKeys = {}
        self._process = process
        self._chosen = chosen
        self._force = force

    def fit(self, row: str) -> Steps[list[Column]]:
        """The current dead columns of those to redrive; counts those that are left."""
        dead = yield from _dead_columns(row, self._chosen)
        fit = [column for column in dead if self._force or decode_dead(column.value).kind not in _HOPELESS]
        if is_home(row):
            self.retaken = yield from reacquired_keys(
                row, [MessageId(row, column.name.priority, column.name.id) for column in fit]
            )
            fit = [column for column in fit if self.retaken.get(column.name.id, ()) is not None]
        self.left = len(dead) - len(fit)
        return fit

    def plan(self, snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
        """Replace the dead columns by a timer, due now, that lists the messages."""
        dead = yield from self.fit(snapshot.row)
        if not dead:
            return None
        entries = [Entry(column.name.id, column.name.priority, 0) for column in dead]
        timer = visible_at(self._process, self._process.now(), entries)
        return RemovalPlan(dead=dead, listed=[timer], taken=[key for key in self.retaken.values() if key])


def _purging(chosen: Sequence[MessageId], snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
    dead = yield from _dead_columns(snapshot.row, chosen)
    return RemovalPlan([message_name(column.name.priority, column.name.id) for column in dead], dead) if dead else None


def _dead_columns(row: str, chosen: Sequence[MessageId]) -> Steps[list[Column]]:
    return (yield from read_one(Named(row, tuple(dead_name(one.priority, one.id) for one in chosen))))


def _parts(chosen: Sequence[MessageId], most: int) -> list[tuple[str, list[MessageId]]]:
    """The messages by row, in groups of at most `most`; of half as many in home rows, where they may have keys."""
    by_row: dict[str, list[MessageId]] = {}
    for message in dict.fromkeys(chosen):
        by_row.setdefault(message.row, []).append(message)
    return [
        (row, messages[at : at + size])
        for row, messages in by_row.items()
        for size in [most // 2 if is_home(row) else most]
        for at in range(0, len(messages), size)
    ]


def _scan(
    rows: Sequence[str], levels: int, *, after: MessageId | None, where: DeadFilter, limit: int
) -> Steps[_Scanned]:
    """The next dead columns of the first row and priority that has any beyond `after`."""
    places = [(row, level) for row in rows for level in reversed(range(levels))]
    if after is not None:
        places = places[places.index((after.row, after.priority)) :]
    for row, level in places:
        first = after.id if after is not None and (row, level) == (after.row, after.priority) else LEAST
        columns = yield from read_one(Slice(row, Type.DEAD, level, after=first, beyond=True, limit=limit))
        if columns:
            found = {MessageId(row, level, column.name.id): decode_dead(column.value) for column in columns}
            fit = {id_: death for id_, death in found.items() if where.fits(death.kind, death.reason, death.at)}
            return _Scanned(fit, MessageId(row, level, columns[-1].name.id))
    return _Scanned({}, None)


def _letters(deaths: dict[MessageId, Dead]) -> Steps[list[DeadLetter]]:
    """The dead letters, of one row, with their messages' content."""
    found = yield from contents(list(deaths))
    gone = Content.of(None)
    return [
        DeadLetter(
            id_,
            found.get(id_, gone),
            died=death.at,
            attempts=death.attempts,
            kind=death.kind,
            reason=death.reason,
            claim=death.claim,
        )
        for id_, death in deaths.items()
    ]


#: By message: the current and the new column of its key; None if another message has the key, or it cannot be read.
ReacquiredKeys = dict[Id, tuple[Column | None, Put] | None]


def reacquired_keys(row: str, dead: Sequence[MessageId]) -> Steps[ReacquiredKeys]:
    """The keys that these dead letters of one row take again; letters without a unique key are omitted."""
    found = yield from contents(dead)
    owners = {
        id_.id: KeyOwner(content.envelope.key, id_.priority, id_.id)
        for id_, content in found.items()
        if content.envelope and content.envelope.unique and content.envelope.key is not None
    }
    if not owners:
        return {}
    names = {key_name(owner.key) for owner in owners.values()}
    columns = yield from read_one(Named(row, tuple(names)), exact=True)
    try:
        states = yield from key_states(row, columns)
    except StoreCorrupt:
        states = yield from _readable_states(row, columns)
    return _first_come(owners, states, {column.name for column in columns} - states.keys())


def _readable_states(row: str, columns: Sequence[Column]) -> Steps[dict[Name, KeyState]]:
    """The states of the keys that can be read, with their schedules."""
    states: dict[Name, KeyState] = {}
    for column in columns:
        with suppress(StoreCorrupt):
            states |= yield from key_states(row, [column])
    return states


def _first_come(owners: dict[Id, KeyOwner], states: dict[Name, KeyState], unreadable: set[Name]) -> ReacquiredKeys:
    """Of several letters with one key, the first takes it."""
    keys: ReacquiredKeys = {}
    gone = set(unreadable)
    for id_, owner in owners.items():
        name = key_name(owner.key)
        state = states.get(name, FREE)
        keys[id_] = None if state.owner or name in gone else (state.column, Put(name, owner.encode()))
        gone.add(name)
    return keys
