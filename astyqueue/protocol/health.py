"""Whether the work of a queue gets done: reads its rows, changes nothing, and says what is odd about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.clock import SECOND
from astyqueue.errors import BadInput, Undecodable, UnknownTrigger
from astyqueue.findings import Finding, Severity, note, ok
from astyqueue.ids import LEAST, Id
from astyqueue.model.moments import told_at, told_length
from astyqueue.model.settings import Settings
from astyqueue.protocol.columns import HEADER, Dead, State, Timer, Type, decode_dead, decode_header
from astyqueue.protocol.explain import STILL
from astyqueue.protocol.pages import PAGE, glimpse, looked_past, unlisted
from astyqueue.protocol.process import Process
from astyqueue.protocol.rescan import RowRescan
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.schedules import list_schedules
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Steps, read, read_column, read_one
from astyqueue.protocol.together import together
from astyqueue.protocol.workers import Stuck, reports
from astyqueue.store import Column, Named, Slice
from astyqueue.triggers import Triggers

#: Dead letters of so long ago or less mean that there are more and more of them.
LATELY: Final = 3600 * SECOND
#: More messages than this of unknown tasks are more than a deployment explains.
MANY_PARKED: Final = 1_000
#: Different reasons of dead letters that are counted in a row.
_REASONS: Final = 1_000
#: More bytes than this in one row make a partition of Cassandra that is slow to read, repair and compact; and what a message has, about.
_ROW_BYTES: Final = 100_000_000
_MESSAGE_BYTES: Final = 1_000
#: Rows that are asked about together.
_AT_ONCE: Final = 40
#: Stretches of one row in which stranded messages are looked for: most rows are one, and an examination is to end.
_STRETCHES: Final = 20


@dataclass(slots=True)
class _Deaths:
    """Dead letters, counted as they are read, for there may be very many: by kind, and the reasons of those who died lately.

    Of reasons that all differ, as those with an id in them, the first so many tell enough.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    lately: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def count(self, dead: Dead, now: int) -> None:
        """One more."""
        self.kinds[dead.kind] += 1
        if dead.at >= now - LATELY:
            self.lately += 1
            if dead.reason in self.reasons or len(self.reasons) < _REASONS:
                self.reasons[dead.reason] += 1

    def add(self, more: _Deaths) -> None:
        """Those of another row."""
        self.kinds += more.kinds
        self.lately += more.lately
        self.reasons += more.reasons


@dataclass(slots=True)
class _Row:
    """What was read of one row; moments are microseconds."""

    name: str
    changed: int | None = None
    owner: str = ""
    broken: Undecodable | None = None
    waiting_since: int | None = None
    overdue: list[Timer] = field(default_factory=list)
    parked: list[Id] = field(default_factory=list)
    deaths: _Deaths = field(default_factory=_Deaths)
    stranded: _Stranded | None = None

    def waits(self, since: int) -> None:
        """Something has been due since then."""
        self.waiting_since = since if self.waiting_since is None else min(self.waiting_since, since)


class _Stranded(NamedTuple):
    """The messages of a row that landed behind what was read, by their moments; `all_seen` unless there was too much to read."""

    moments: list[int]
    all_seen: bool


class _Checked(NamedTuple):
    """A queue, its rows, and when they were read."""

    settings: Settings
    rows: Sequence[_Row]
    now: int
    stuck: Sequence[Stuck] = ()

    @property
    def subject(self) -> str:
        return f"queue {self.settings.name}"

    @property
    def deaths(self) -> _Deaths:
        """The dead letters of all rows."""
        deaths = _Deaths()
        for row in self.rows:
            deaths.add(row.deaths)
        return deaths

    def at(self, moment: int) -> str:
        """A moment in words."""
        return told_at(moment, self.now)


def rest(settings: Settings) -> int:
    """How long a row of a queue rests between two turns, in microseconds; nought if it never does."""
    return settings.layout.time_shard_us * (settings.layout.time_shards - 1)


def examine(process: Process, settings: Settings) -> Steps[list[Finding]]:
    """What there is to say of a queue.

    Costs its timers, its dead letters, the first message of each row and priority, and the ids of what is alive behind the
    heads of its rows, as far as that is found in a few stretches.
    """
    now = process.now()
    names, levels = Ring(settings.name, settings.layout).rows(), settings.layout.priorities
    rows = {name: _Row(name) for name in names}
    for first in range(0, len(names), _AT_ONCE):
        for name in (yield from _with_anything(names[first : first + _AT_ONCE], levels)):
            rows[name] = yield from _read(name, levels, now)
    for name, stranded in zip(names, (yield from together(_stranded(process, name, levels) for name in names)), strict=True):
        rows[name].stranded = stranded
    stuck = yield from reports(settings.name)
    checked = _Checked(settings, list(rows.values()), now, stuck)
    unfit = yield from _unfit_schedules(Ring(settings.name, settings.layout))
    found = [*_broken(checked), _work(checked), _late(checked), *_leases(checked), *_parked(checked), *_stuck(checked)]
    return [*found, _dead_letters(checked), *_undecodable(checked), *unfit, *_room(checked)]


def _with_anything(names: Sequence[str], levels: int) -> Steps[list[str]]:
    """Those of the rows that hold anything but a header; of a large ring most do not."""
    headers = yield from read(*(Named(name, (HEADER,)) for name in names))
    first = {name: _first_columns(name, levels, found[0] if found else None) for name, found in zip(names, headers, strict=True)}
    found = yield from read(*(wanted for slices in first.values() for wanted in slices))
    return list(dict.fromkeys(wanted.row for wanted, columns in zip(chain(*first.values()), found, strict=True) if columns))


def _first_columns(name: str, levels: int, found: Column | None) -> list[Slice]:
    """The first column of each kind that a row may hold; below where every look has passed nothing is alive unlisted."""
    try:
        header = decode_header(name, found.value) if found else None
    except Undecodable:
        return [Slice(name, Type.LOCK, limit=1, values=False)]
    passed = [cursors[-1] for cursors in header.cursors] if header else []
    return [
        Slice(name, Type.TIMER, 0, after=ids.first_at(header.floor if header else 0), limit=1, values=False),
        *(Slice(name, Type.DEAD, level, limit=1, values=False) for level in range(levels)),
        *(
            Slice(name, Type.MESSAGE, level, after=after, limit=1, values=False)
            for level, after in zip(range(levels), chain(passed, repeat(LEAST)), strict=False)
        ),
    ]


def _read(name: str, levels: int, now: int) -> Steps[_Row]:
    row = _Row(name)
    header = yield from read_column(name, HEADER)
    try:
        if header is not None:
            row.changed, row.owner = header.written, decode_header(name, header.value).owner
        sight = yield from glimpse(name, levels, now)
    except Undecodable as error:
        row.broken = error
        return row
    _note_timers(row, sight, now)
    for level in range(levels):
        first = yield from _first_due(sight, level, now)
        if first is not None:
            row.waits(ids.moment(first))
        yield from _count_dead(row, level, now)
    return row


def _note_timers(row: _Row, sight: Sight, now: int) -> None:
    for timer in (sight.timers or {}).values():
        if timer.due <= now and timer.state != State.NEXT_SLOT:
            row.waits(timer.due)
        if timer.state == State.LEASED and timer.due < now - STILL:
            row.overdue.append(timer)
        if timer.state == State.PARKED:
            row.parked += [entry.id for entry in timer.entries]


def _first_due(sight: Sight, level: int, now: int) -> Steps[Id | None]:
    """The first message of a priority that is due and stands nowhere else."""
    after: Id | None = looked_past(sight, level)
    while after is not None:
        page = yield from unlisted(sight, level, after, until=ids.first_at(now + 1))
        if page.ids:
            return page.ids[0]
        after = page.last
    return None


def _count_dead(row: _Row, level: int, now: int) -> Steps[None]:
    after = LEAST
    while True:
        page = yield from read_one(Slice(row.name, Type.DEAD, level, after=after, beyond=True, limit=PAGE))
        for column in page:
            row.deaths.count(decode_dead(column.value), now)
        if len(page) < PAGE:
            return
        after = page[-1].name.id


def _stranded(process: Process, row: str, levels: int) -> Steps[_Stranded | None]:
    """What a rescan of a row would find; None if its header or a timer cannot be read."""
    rescan = RowRescan(process, row, levels)
    found: list[int] = []
    for _ in range(_STRETCHES):
        if rescan.over:
            break
        try:
            found += [ids.moment(name.id) for name in (yield from rescan.page())]
        except Undecodable:
            return None
    return _Stranded(found, rescan.over)


def _broken(checked: _Checked) -> Iterator[Finding]:
    for row in checked.rows:
        if row.broken:
            fact = f"{row.broken.column} cannot be read ({row.broken.why})"
            reason = "nothing is claimed from this row until it can; what is sent to it waits"
            remedy = "if a newer astyqueue wrote it, upgrade the workers; if it is damaged, restore it from a backup"
            yield Finding(f"row {row.name}", Severity.PROBLEM, fact, reason, remedy)


def _unfit_schedules(ring: Ring) -> Steps[list[Finding]]:
    """Schedules that do not fire because they, or their triggers, cannot be read here."""
    listed = yield from list_schedules([ring.home(shard) for shard in range(ring.layout.concurrency_shards)])
    found = [_unfit(f"a schedule of queue {ring.queue} (row {error.row})", error.why) for error in listed.unreadable]
    for schedule in listed.schedules:
        try:
            Triggers().read(schedule.anchored)
        except UnknownTrigger:  # whether anybody registers it is for the workers to know
            continue
        except BadInput as error:
            found.append(_unfit(f"schedule {schedule.name} of queue {ring.queue}", str(error)))
    return found


def _unfit(subject: str, why: str) -> Finding:
    reason = "it does not fire where it cannot be read; the messages and the other schedules of its row are not concerned"
    remedy = "have the time zones (tzdata) and the astyqueue here that were there when it was made, or delete it and add it again"
    return Finding(subject, Severity.WARNING, f"cannot be read: {why}", reason, remedy)


def _work(checked: _Checked) -> Finding:
    """Whether what is due is taken."""
    late = [row for row in checked.rows if row.waiting_since is not None and row.waiting_since < checked.now - STILL]
    oldest = min((row.waiting_since or 0, row.name) for row in late) if late else (0, "")
    told = f"the oldest message that is due waits since {checked.at(oldest[0])} (row {oldest[1]})"
    if checked.settings.behaviour.paused:
        return _paused(checked, told if late else "")
    if not late:
        return ok(checked.subject, f"nothing has been due for more than {told_length(STILL)}")
    left = [row for row in late if row.changed is None or row.changed < checked.now - STILL]
    if not left:
        reason = "workers take from it all the time, and do not keep up"
        return note(checked.subject, told, reason, remedy="more workers, or more threads (-c) in each; if it stays so, fewer messages")
    owners = ", ".join(sorted({row.owner for row in left if row.owner}))
    fact = f"{told}, and nobody takes from {_counted(len(left), 'row')} of {len(checked.rows)}"
    reason = f"nobody has changed them for {told_length(STILL)} or more" + (f"; the last who did: {owners}" if owners else "")
    remedy = f"start a worker or a consumer on {checked.settings.name}; if one runs, look into its log for errors"
    return Finding(checked.subject, Severity.WARNING, fact, reason, remedy)


def _late(checked: _Checked) -> Finding:
    """Whether anything landed behind what was read, where no look reaches it."""
    subject, queue = f"late messages of {checked.subject}", checked.settings.name
    rows = [(row.name, row.stranded) for row in checked.rows if row.stranded]
    moments = sorted((moment, name) for name, stranded in rows for moment in stranded.moments)
    parts = _counted(sum(not stranded.all_seen for _, stranded in rows), "row")
    all_seen = all(stranded.all_seen for _, stranded in rows)
    if moments:
        oldest, row = moments[0]
        least = "" if all_seen else "at least "
        fact = f"{least}{_counted(len(moments), 'message')} that no worker looks for, the oldest of {checked.at(oldest)} (row {row})"
        reason = "they were stored long after their time, behind what had been read: after an outage, a repair, or a restored backup"
        remedy = f"astyqueue rescan {queue} hands them out at once; workers find what is at most half a day late within half a day"
        return Finding(subject, Severity.WARNING, fact, reason, remedy, see="docs/explanation/reading-a-row.md#rescans")
    if not all_seen:
        return note(subject, f"none as far as was looked; there is too much in {parts}", f"astyqueue rescan {queue} looks at all of it")
    return ok(subject, "none")


def _paused(checked: _Checked, waiting: str) -> Finding:
    remedy = f"astyqueue queues set {checked.settings.name} paused=no"
    if not waiting:
        return note(checked.subject, "is paused", "nothing is handed out until somebody resumes it", remedy=remedy)
    return Finding(
        checked.subject, Severity.WARNING, f"is paused, and {waiting}", "nothing is handed out until somebody resumes it", remedy
    )


def _leases(checked: _Checked) -> Iterator[Finding]:
    """Leases that ran out long ago: those who had them fell silent, and nobody else took over."""
    overdue = [timer for row in checked.rows for timer in row.overdue]
    if not overdue:
        return
    first = min(overdue, key=lambda timer: timer.due)
    count = sum(len(timer.entries) for timer in overdue)
    fact = f"{_counted(count, 'message')} under leases that ran out, the first {checked.at(first.due)}, held by {first.holder}"
    reason = "whoever held them died or fell silent, and no other taker came by since"
    remedy = f"start a worker or a consumer on {checked.settings.name}; it takes them again at once"
    yield Finding(f"leases of {checked.subject}", Severity.WARNING, fact, reason, remedy)


def _parked(checked: _Checked) -> Iterator[Finding]:
    """Messages whose task no worker knew that had them: a few for a while are a deployment, many or old ones a mistake."""
    parked = [id_ for row in checked.rows for id_ in row.parked]
    if not parked:
        return
    oldest = min(map(ids.moment, parked))
    fact = f"{_counted(len(parked), 'message')} of tasks that the workers which had them do not know, the oldest due {checked.at(oldest)}"
    reason = "they are tried again after up to an hour each time, and cost attempts once they are a week old"
    name = checked.settings.name
    remedy = f"deploy workers that have these tasks; astyqueue peek {name} --include all shows them; delete what nobody should have sent"
    bad = len(parked) > MANY_PARKED or oldest < checked.now - LATELY
    yield Finding(f"parked messages of {checked.subject}", Severity.WARNING if bad else Severity.NOTE, fact, reason, remedy)


def _stuck(checked: _Checked) -> Iterator[Finding]:
    """Workers that have handlers which ran on past their timeout."""
    for one in checked.stuck:
        fact = f"{one.stuck} of {one.threads} threads are held by tasks that ran on past their timeout: {', '.join(one.tasks)}"
        reason = f"the first began {checked.at(one.since)}; these threads handle nothing else until it ends"
        remedy = "start the worker anew; give what these tasks wait for a timeout of its own; --max-stalled has a worker end by itself"
        severity = Severity.PROBLEM if one.stuck >= one.threads else Severity.WARNING
        yield Finding(f"worker {one.worker} of {checked.subject}", severity, fact, reason, remedy)


def _dead_letters(checked: _Checked) -> Finding:
    deaths, subject = checked.deaths, f"dead letters of {checked.subject}"
    if not deaths.kinds:
        return ok(subject, "none")
    count = deaths.kinds.total()
    kinds = ", ".join(f"{number} {kind}" for kind, number in deaths.kinds.most_common())
    remedy = f"astyqueue dead list {checked.settings.name}; then redrive what was mended, and purge the rest"
    if not deaths.lately:
        return note(subject, f"{count} ({kinds}), none within {told_length(LATELY)}", "they are kept until you decide", remedy=remedy)
    (reason, times), *_ = deaths.reasons.most_common(1)
    fact = f"{count} ({kinds}), {deaths.lately} of them within {told_length(LATELY)}"
    return Finding(subject, Severity.WARNING, fact, f"they grow more; most often ({times} times) because of: {reason}", remedy)


def _undecodable(checked: _Checked) -> Iterator[Finding]:
    if count := checked.deaths.kinds["undecodable"]:
        fact = f"{_counted(count, 'message')} could not be read and became dead letters"
        reason = "a newer astyqueue sent them to workers that are older, or something else wrote into the store"
        remedy = f"upgrade the workers; then astyqueue dead redrive {checked.settings.name} --kind undecodable --force"
        yield Finding(f"messages of {checked.subject}", Severity.WARNING, fact, reason, remedy)


def _room(checked: _Checked) -> Iterator[Finding]:
    """How much may be sent to the rows of a ring before a backlog makes one of them too large."""
    layout = checked.settings.layout
    if layout.time_shards > 1:
        lasts = layout.time_shard_us / SECOND
        rate = _ROW_BYTES * layout.concurrency_shards / (lasts * _MESSAGE_BYTES)
        each = f"each takes what is sent in {told_length(layout.time_shard_us)} to one of {_counted(layout.concurrency_shards, 'shard')}"
        bound = f"{rate:.3g} messages of {_MESSAGE_BYTES} bytes a second may pile up there before one has {_ROW_BYTES // 1_000_000} MB"
        yield ok(f"size of the rows of {checked.subject}", f"{each}: {bound}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
