"""Dead letters: showing them, putting them back, and removing them for good.

A redrive or a purge of many is a loop of its caller: a page of what is chosen, then one call for that page. So the caller
may stop between two pages, go slowly, or go on later from where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from astyqueue.ids import LEAST
from astyqueue.model.message import MessageId
from astyqueue.model.views import Content, DeadFilter, DeadLetter, RedriveReport
from astyqueue.protocol.browse import contents
from astyqueue.protocol.columns import Dead, Entry, State, Timer, Type, dead_name, decode_dead, message_name
from astyqueue.protocol.outcomes import with_value
from astyqueue.protocol.process import Process
from astyqueue.protocol.raising import MOST, Plan, Raising, Removal
from astyqueue.protocol.retaking import Retaken, retaken
from astyqueue.protocol.rows import is_home
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Column, Name, Named, Slice

#: Dead letters looked at for one page, and purged in one commit (each is two columns).
PAGE: Final = 100
#: Kinds of death that would follow again at once.
_HOPELESS: Final = frozenset({"undecodable", "expired"})
_ALL: Final = DeadFilter()


class DeadPage(NamedTuple):
    """Some dead letters; the next page begins behind `after`, and None means there is none. A page may be empty."""

    letters: list[DeadLetter]
    after: MessageId | None


class ChosenPage(NamedTuple):
    """As a `DeadPage`, but only which dead letters they are."""

    ids: list[MessageId]
    after: MessageId | None


class _Scanned(NamedTuple):
    """Deaths of one row and priority that fit, and the last that was looked at; None when there is no more."""

    deaths: dict[MessageId, Dead]
    last: MessageId | None


def dead_page(
    rows: Sequence[str], levels: int, *, after: MessageId | None = None, where: DeadFilter = _ALL, limit: int = PAGE
) -> Steps[DeadPage]:
    """The next dead letters that fit: row by row, the greatest priority first, then by when they were first due.

    At most `limit` are looked at, so fewer may come back, or none, although there are more.
    """
    scanned = yield from _scan(rows, levels, after=after, where=where, limit=limit)
    letters = yield from _letters(scanned.deaths)
    return DeadPage([letter for letter in letters if where.fits_content(letter)], scanned.last)


def chosen_page(
    rows: Sequence[str], levels: int, *, after: MessageId | None = None, where: DeadFilter = _ALL, limit: int = PAGE
) -> Steps[ChosenPage]:
    """As `dead_page`, for a redrive or a purge: messages are read only if the filter asks for what is in them."""
    if where.asks_content:
        page = yield from dead_page(rows, levels, after=after, where=where, limit=limit)
        return ChosenPage([letter.id for letter in page.letters], page.after)
    scanned = yield from _scan(rows, levels, after=after, where=where, limit=limit)
    return ChosenPage(list(scanned.deaths), scanned.last)


def dead_letter(message: MessageId) -> Steps[DeadLetter | None]:
    """One dead letter, with its body or its raw bytes."""
    columns = yield from read_one(Named(message.row, (dead_name(message.priority, message.id),)))
    if not columns:
        return None
    letters = yield from _letters({message: decode_dead(columns[0].value)})
    return letters[0]


def redrive(
    process: Process, chosen: Sequence[MessageId], *, force: bool = False, dry_run: bool = False, into: list[MessageId] | None = None
) -> Steps[RedriveReport]:
    """Put dead letters back: each may be claimed at once, and has all its attempts again.

    What is no dead letter (any more) is passed over. What is undecodable or expired would die again on the spot and is
    left; `force` puts it back all the same, as after an upgrade that can read it. A letter with a unique key takes that
    again, and is left if another message has it. What was put back is added to `into`.
    """
    back = [] if into is None else into
    report = RedriveReport(dry_run=dry_run)
    for row, part in _parts(chosen, MOST):
        redriving = _Redriving(process, part, force=force)
        if dry_run:
            dead = yield from redriving.fit(row)
            report += RedriveReport(len(dead), redriving.left)
            continue
        plan = yield from Raising(process, Sight(row, 1)).carry_out(redriving.plan)
        back += [MessageId(row, column.name.priority, column.name.id) for column in plan.dead] if plan else []
        report += RedriveReport(len(plan.dead) if plan else 0, redriving.left)
    return report


def purge(process: Process, chosen: Sequence[MessageId]) -> Steps[int]:
    """Remove dead letters for good, and say how many those were; what is no dead letter (any more) stays."""
    purged = 0
    for row, part in _parts(chosen, PAGE):
        plan = yield from Raising(process, Sight(row, 1)).carry_out(partial(_purging, part))
        purged += len(plan.dead) if plan else 0
    return purged


class _Redriving:
    """A redrive of letters of one row, in one commit."""

    def __init__(self, process: Process, chosen: Sequence[MessageId], *, force: bool) -> None:
        self.left = 0
        self.retaken: Retaken = {}
        self._process = process
        self._chosen = chosen
        self._force = force

    def fit(self, row: str) -> Steps[list[Column]]:
        """The dead columns of those to be put back, as they are now; counts those that are left."""
        dead = yield from _dead_columns(row, self._chosen)
        fit = [column for column in dead if self._force or decode_dead(column.value).kind not in _HOPELESS]
        if is_home(row):
            self.retaken = yield from retaken(row, [MessageId(row, column.name.priority, column.name.id) for column in fit])
            fit = [column for column in fit if self.retaken.get(column.name.id, ()) is not None]
        self.left = len(dead) - len(fit)
        return fit

    def plan(self, sight: Sight) -> Steps[Plan | None]:
        """List the messages in a timer that is due now, in the place of their dead columns."""
        dead = yield from self.fit(sight.row)
        if not dead:
            return None
        name = Name(Type.TIMER, 0, self._process.id_at(self._process.now()), State.SNOOZED)
        entries = tuple(Entry(column.name.id, column.name.priority, 0) for column in dead)
        timer = with_value(Timer(name, entries, self._process.nonce(), "", len(entries)))
        return Removal(dead=dead, listed=[timer], taken=[key for key in self.retaken.values() if key])


def _purging(chosen: Sequence[MessageId], sight: Sight) -> Steps[Plan | None]:
    dead = yield from _dead_columns(sight.row, chosen)
    return Removal([message_name(column.name.priority, column.name.id) for column in dead], dead) if dead else None


def _dead_columns(row: str, chosen: Sequence[MessageId]) -> Steps[list[Column]]:
    return (yield from read_one(Named(row, tuple(dead_name(one.priority, one.id) for one in chosen))))


def _parts(chosen: Sequence[MessageId], most: int) -> list[tuple[str, list[MessageId]]]:
    """The messages by row, at most so many together; half as many where they may have keys."""
    by_row: dict[str, list[MessageId]] = {}
    for message in dict.fromkeys(chosen):
        by_row.setdefault(message.row, []).append(message)
    return [
        (row, messages[at : at + size])
        for row, messages in by_row.items()
        for size in [most // 2 if is_home(row) else most]
        for at in range(0, len(messages), size)
    ]


def _scan(rows: Sequence[str], levels: int, *, after: MessageId | None, where: DeadFilter, limit: int) -> Steps[_Scanned]:
    """The next dead columns of the first place that has any behind `after`."""
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
    """The letters of these deaths, which are of one row, with their messages."""
    found = yield from contents(list(deaths))
    gone = Content.of(None)
    return [
        DeadLetter(id_, found.get(id_, gone), death.at, death.attempts, death.kind, death.reason, death.claim)
        for id_, death in deaths.items()
    ]
