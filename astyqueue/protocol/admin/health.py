"""The health of a queue: reads its rows and reports problems; changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.diagnostics import Finding, Severity, note, ok
from astyqueue.errors import BadInput, Undecodable, UnknownTrigger
from astyqueue.ids import LEAST, Id
from astyqueue.model.moments import instant_text, length_text
from astyqueue.model.settings import Settings
from astyqueue.model.explanation import STILL
from astyqueue.protocol.client import Client
from astyqueue.protocol.coordination.workers import StuckReport, read_reports
from astyqueue.protocol.layout.columns import HEADER, Dead, State, Timer, Type, decode_dead, decode_header
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.parallel_reads import in_parallel
from astyqueue.protocol.row.paging import PAGE_SIZE, peek_snapshot, scanned_up_to, unlisted_page
from astyqueue.protocol.row.rescan import RowRescan
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.read import list_schedules
from astyqueue.protocol.steps import Steps, read, read_column, read_one
from astyqueue.store import Column, Named, Slice
from astyqueue.triggers import Triggers
from astyqueue.units import SECOND

#: A dead letter younger than this (microseconds) means that their number grows.
LATELY: Final = 3600 * SECOND
#: More parked messages than this are not explained by a deployment in progress.
MANY_PARKED: Final = 1_000
#: Different reasons of dead letters that are counted per row.
_REASONS: Final = 1_000
#: A larger row is a Cassandra partition that is slow to read, repair and compact; and the assumed size of a message.
_ROW_BYTES: Final = 100_000_000
_MESSAGE_BYTES: Final = 1_000
#: Rows that are read together.
_AT_ONCE: Final = 40
#: Parts of one row that are searched for stranded messages: most rows have one, and an examination must end.
_STRETCHES: Final = 20


@dataclass(slots=True)
class _Deaths:
    """Counts of dead letters, by kind, and by reason for recent ones; counted page by page, as there may be very many.

    At most 1 000 different reasons are counted, because reasons with an id in them all differ.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    lately: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def count(self, dead: Dead, now: int) -> None:
        """Count one dead letter."""
        self.kinds[dead.kind] += 1
        if dead.at >= now - LATELY:
            self.lately += 1
            if dead.reason in self.reasons or len(self.reasons) < _REASONS:
                self.reasons[dead.reason] += 1

    def add(self, more: _Deaths) -> None:
        """Add the counts of another row."""
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
        """Record that a message has been due since this moment."""
        self.waiting_since = since if self.waiting_since is None else min(self.waiting_since, since)


class _Stranded(NamedTuple):
    """The moments of a row's stranded messages, which landed behind all cursors; `all_seen`: the whole row was read."""

    moments: list[int]
    all_seen: bool


class _Checked(NamedTuple):
    """A queue, its rows, and when they were read."""

    settings: Settings
    rows: Sequence[_Row]
    now: int
    stuck: Sequence[StuckReport] = ()

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
        return instant_text(moment, self.now)


def rest_of(settings: Settings) -> int:
    """How long a row of a queue rests between two turns, in microseconds; zero if the queue's rows do not rotate."""
    return settings.layout.time_shard_us * (settings.layout.time_shards - 1)


def examine(process: Client, settings: Settings) -> Steps[list[Finding]]:
    """The findings about a queue.

    Reads its timers, its dead letters, the first message of each row and priority, and up to 20 parts of each row's
    message ids.
    """
    now = process.now()
    names, levels = Ring(settings.name, settings.layout).rows(), settings.layout.priorities
    rows = {name: _Row(name) for name in names}
    for first in range(0, len(names), _AT_ONCE):
        for name in (yield from _with_anything(names[first : first + _AT_ONCE], levels)):
            rows[name] = yield from _read(name, levels, now)
    for name, stranded in zip(
        names, (yield from in_parallel(_stranded(process, name, levels) for name in names)), strict=True
    ):
        rows[name].stranded = stranded
    stuck = yield from read_reports(settings.name)
    checked = _Checked(settings, list(rows.values()), now, stuck)
    unfit = yield from _unfit_schedules(Ring(settings.name, settings.layout))
    found = [*_broken(checked), _work(checked), _late(checked), *_leases(checked), *_parked(checked), *_stuck(checked)]
    return [*found, _dead_letters(checked), *_undecodable(checked), *unfit, *_room(checked)]


def _with_anything(names: Sequence[str], levels: int) -> Steps[list[str]]:
    """The rows that have more columns than a header; in a large ring most rows have not."""
    headers = yield from read(*(Named(name, (HEADER,)) for name in names))
    first = {
        name: _first_columns(name, levels, found[0] if found else None)
        for name, found in zip(names, headers, strict=True)
    }
    found = yield from read(*(wanted for slices in first.values() for wanted in slices))
    return list(
        dict.fromkeys(wanted.row for wanted, columns in zip(chain(*first.values()), found, strict=True) if columns)
    )


def _first_columns(name: str, levels: int, found: Column | None) -> list[Slice]:
    """The first column of each kind in a row; messages only behind the last scan's cursors: earlier ones are listed."""
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
        snapshot = yield from peek_snapshot(name, levels, now)
    except Undecodable as error:
        row.broken = error
        return row
    _note_timers(row, snapshot, now)
    for level in range(levels):
        first = yield from _first_due(snapshot, level, now)
        if first is not None:
            row.waits(ids.moment(first))
        yield from _count_dead(row, level, now)
    return row


def _note_timers(row: _Row, snapshot: RowSnapshot, now: int) -> None:
    for timer in (snapshot.timers or {}).values():
        if timer.due <= now and timer.state != State.NEXT_SLOT:
            row.waits(timer.due)
        if timer.state == State.LEASED and timer.due < now - STILL:
            row.overdue.append(timer)
        if timer.state == State.PARKED:
            row.parked += [entry.id for entry in timer.entries]


def _first_due(snapshot: RowSnapshot, level: int, now: int) -> Steps[Id | None]:
    """The first due message of a priority that no timer and no dead letter lists."""
    after: Id | None = scanned_up_to(snapshot, level)
    while after is not None:
        page = yield from unlisted_page(snapshot, level, after, until=ids.first_at(now + 1))
        if page.ids:
            return page.ids[0]
        after = page.last
    return None


def _count_dead(row: _Row, level: int, now: int) -> Steps[None]:
    after = LEAST
    while True:
        page = yield from read_one(Slice(row.name, Type.DEAD, level, after=after, beyond=True, limit=PAGE_SIZE))
        for column in page:
            row.deaths.count(decode_dead(column.value), now)
        if len(page) < PAGE_SIZE:
            return
        after = page[-1].name.id


def _stranded(process: Client, row: str, levels: int) -> Steps[_Stranded | None]:
    """The messages that a rescan of a row would find; None if its header or a timer cannot be read."""
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
            reason = "nothing is claimed from this row until it can; messages sent to it wait"
            remedy = "if a newer astyqueue wrote it, upgrade the workers; if it is damaged, restore it from a backup"
            yield Finding(f"row {row.name}", Severity.PROBLEM, fact, reason, remedy)


def _unfit_schedules(ring: Ring) -> Steps[list[Finding]]:
    """Schedules that do not fire because they, or their triggers, cannot be read here."""
    listed = yield from list_schedules(ring.homes())
    found = [_unfit(f"a schedule of queue {ring.queue} (row {error.row})", error.why) for error in listed.unreadable]
    for schedule in listed.schedules:
        try:
            Triggers().read(schedule.anchored)
        except UnknownTrigger:  # the workers may have it registered
            continue
        except BadInput as error:
            found.append(_unfit(f"schedule {schedule.name} of queue {ring.queue}", str(error)))
    return found


def _unfit(subject: str, why: str) -> Finding:
    reason = "it does not fire where it cannot be read; messages and other schedules of its row are not affected"
    remedy = "install the time zones (tzdata) and the astyqueue that it was made with, or delete it and add it again"
    return Finding(subject, Severity.WARNING, f"cannot be read: {why}", reason, remedy)


def _work(checked: _Checked) -> Finding:
    """Whether due messages are claimed."""
    late = [row for row in checked.rows if row.waiting_since is not None and row.waiting_since < checked.now - STILL]
    oldest = min((row.waiting_since or 0, row.name) for row in late) if late else (0, "")
    waiting = f"the oldest message that is due waits since {checked.at(oldest[0])} (row {oldest[1]})"
    if checked.settings.behaviour.paused:
        return _paused(checked, waiting if late else "")
    if not late:
        return ok(checked.subject, f"nothing has been due for more than {length_text(STILL)}")
    left = [row for row in late if row.changed is None or row.changed < checked.now - STILL]
    if not left:
        reason = "workers take from it all the time, and do not keep up"
        remedy = "more workers, or more threads (-c) in each; if it stays so, fewer messages"
        return note(checked.subject, waiting, reason, remedy=remedy)
    owners = ", ".join(sorted({row.owner for row in left if row.owner}))
    fact = f"{waiting}, and no worker takes from {_counted(len(left), 'row')} of {len(checked.rows)}"
    last = f"; the last were: {owners}" if owners else ""
    reason = f"no process has changed them for {length_text(STILL)} or more{last}"
    remedy = f"start a worker or a consumer on {checked.settings.name}; if one runs, check its log for errors"
    return Finding(checked.subject, Severity.WARNING, fact, reason, remedy)


def _late(checked: _Checked) -> Finding:
    """Whether messages are stranded: they landed behind all cursors, where no scan reaches them."""
    subject, queue = f"late messages of {checked.subject}", checked.settings.name
    rows = [(row.name, row.stranded) for row in checked.rows if row.stranded]
    moments = sorted((moment, name) for name, stranded in rows for moment in stranded.moments)
    parts = _counted(sum(not stranded.all_seen for _, stranded in rows), "row")
    all_seen = all(stranded.all_seen for _, stranded in rows)
    if moments:
        oldest, row = moments[0]
        least = "" if all_seen else "at least "
        count = _counted(len(moments), "message")
        fact = f"{least}{count} that no worker looks for, the oldest of {checked.at(oldest)} (row {row})"
        reason = "they were stored long after their time, behind all scans: after an outage, a repair or a restore"
        later = "workers find those at most half a day late within half a day"
        remedy = f"astyqueue rescan {queue} delivers them at once; {later}"
        return Finding(subject, Severity.WARNING, fact, reason, remedy, see="docs/explanation/reading-a-row.md#rescans")
    if not all_seen:
        return note(subject, f"none found; {parts} not read to the end", f"astyqueue rescan {queue} reads all of it")
    return ok(subject, "none")


def _paused(checked: _Checked, waiting: str) -> Finding:
    remedy = f"astyqueue queues set {checked.settings.name} paused=no"
    if not waiting:
        return note(checked.subject, "is paused", "nothing is delivered until an operator resumes it", remedy=remedy)
    reason = "nothing is delivered until an operator resumes it"
    return Finding(checked.subject, Severity.WARNING, f"is paused, and {waiting}", reason, remedy)


def _leases(checked: _Checked) -> Iterator[Finding]:
    """Leases that expired long ago: their holders stopped responding, and no other consumer took over."""
    overdue = [timer for row in checked.rows for timer in row.overdue]
    if not overdue:
        return
    first = min(overdue, key=lambda timer: timer.due)
    count = sum(len(timer.entries) for timer in overdue)
    leased = f"{_counted(count, 'message')} under leases that ran out"
    fact = f"{leased}, the first {checked.at(first.due)}, held by {first.holder}"
    reason = "their consumers crashed or stopped responding, and no other one has claimed from the row since"
    remedy = f"start a worker or a consumer on {checked.settings.name}; it claims them again at once"
    yield Finding(f"leases of {checked.subject}", Severity.WARNING, fact, reason, remedy)


def _parked(checked: _Checked) -> Iterator[Finding]:
    """Parked messages, whose task no worker knew: a few for a while mean a deployment, many or old ones a mistake."""
    parked = [id_ for row in checked.rows for id_ in row.parked]
    if not parked:
        return
    oldest = min(map(ids.moment, parked))
    unknown = f"{_counted(len(parked), 'message')} of tasks that the workers which had them do not know"
    fact = f"{unknown}, the oldest due {checked.at(oldest)}"
    reason = "they are tried again after up to an hour each time, and cost attempts once they are a week old"
    name = checked.settings.name
    shows = f"astyqueue peek {name} --include all shows them"
    remedy = f"deploy workers that have these tasks; {shows}; delete those sent by mistake"
    bad = len(parked) > MANY_PARKED or oldest < checked.now - LATELY
    yield Finding(
        f"parked messages of {checked.subject}", Severity.WARNING if bad else Severity.NOTE, fact, reason, remedy
    )


def _stuck(checked: _Checked) -> Iterator[Finding]:
    """Workers with handlers that run past their timeout."""
    for one in checked.stuck:
        fact = f"{one.stuck} of {one.threads} threads are occupied by tasks past their timeout: {', '.join(one.tasks)}"
        reason = f"the first began {checked.at(one.since)}; these threads handle nothing else until it ends"
        remedy = "restart the worker; set timeouts on the calls its tasks wait for; --max-stalled ends such a worker"
        severity = Severity.PROBLEM if one.stuck >= one.threads else Severity.WARNING
        yield Finding(f"worker {one.worker} of {checked.subject}", severity, fact, reason, remedy)


def _dead_letters(checked: _Checked) -> Finding:
    deaths, subject = checked.deaths, f"dead letters of {checked.subject}"
    if not deaths.kinds:
        return ok(subject, "none")
    count = deaths.kinds.total()
    kinds = ", ".join(f"{number} {kind}" for kind, number in deaths.kinds.most_common())
    remedy = f"astyqueue dead list {checked.settings.name}; then redrive what was fixed, and purge the rest"
    if not deaths.lately:
        return note(
            subject,
            f"{count} ({kinds}), none within {length_text(LATELY)}",
            "they are kept until you decide",
            remedy=remedy,
        )
    (reason, times), *_ = deaths.reasons.most_common(1)
    fact = f"{count} ({kinds}), {deaths.lately} of them within {length_text(LATELY)}"
    return Finding(
        subject, Severity.WARNING, fact, f"they grow more; most often ({times} times) because of: {reason}", remedy
    )


def _undecodable(checked: _Checked) -> Iterator[Finding]:
    if count := checked.deaths.kinds["undecodable"]:
        fact = f"{_counted(count, 'message')} could not be read and became dead letters"
        reason = "a newer astyqueue sent them to workers that are older, or something else wrote into the store"
        remedy = f"upgrade the workers; then astyqueue dead redrive {checked.settings.name} --kind undecodable --force"
        yield Finding(f"messages of {checked.subject}", Severity.WARNING, fact, reason, remedy)


def _room(checked: _Checked) -> Iterator[Finding]:
    """The rate of messages that may pile up before a row of a ring becomes too large."""
    layout = checked.settings.layout
    if layout.time_shards > 1:
        lasts = layout.time_shard_us / SECOND
        rate = _ROW_BYTES * layout.concurrency_shards / (lasts * _MESSAGE_BYTES)
        shards = _counted(layout.concurrency_shards, "shard")
        each = f"each takes what is sent in {length_text(layout.time_shard_us)} to one of {shards}"
        bound = (
            f"{rate:.3g} messages of {_MESSAGE_BYTES} bytes a second may pile up there "
            f"before one has {_ROW_BYTES // 1_000_000} MB"
        )
        yield ok(f"size of the rows of {checked.subject}", f"{each}: {bound}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
