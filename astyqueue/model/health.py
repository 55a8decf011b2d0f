"""The health of a queue: what its rows show, and the findings that follow from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from astyqueue.errors import Undecodable
from astyqueue.findings import Finding, Severity, note, ok
from astyqueue.model.explanation import STILL
from astyqueue.model.presence import Presence, WorkerState
from astyqueue.model.settings import Settings
from astyqueue.model.views import QueuePermits
from astyqueue.text import counted, instant_text, length_text
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
#: Running tasks of a stalled worker that its finding names, and quiet workers of a queue.
_TASKS: Final = 3
_RESUMED: Final = 10


@dataclass(slots=True)
class DeathCounts:
    """Counts of dead letters, by kind, and by reason for recent ones; counted page by page, as there may be very many.

    At most 1 000 different reasons are counted, because reasons with an id in them all differ.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    lately: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def count(self, kind: str, reason: str, died: int, now: int) -> None:
        """Count one dead letter; it died and is counted at these moments (microseconds since 1970)."""
        self.kinds[kind] += 1
        if died >= now - LATELY:
            self.lately += 1
            if reason in self.reasons or len(self.reasons) < _REASONS:
                self.reasons[reason] += 1

    def add(self, more: DeathCounts) -> None:
        """Add the counts of another row."""
        self.kinds += more.kinds
        self.lately += more.lately
        self.reasons += more.reasons


class OverdueLease(NamedTuple):
    """A lease that ran out long ago: when, how many messages it has, and its holder."""

    due: int
    messages: int
    holder: str


class Stranded(NamedTuple):
    """The moments of a row's stranded messages, which landed behind all cursors; `all_seen`: the whole row was read."""

    moments: list[int]
    all_seen: bool


@dataclass(slots=True)
class RowHealth:
    """What was read of one row; moments are microseconds.

    `changed` is when its header was last committed, `parked` has the moments of its parked messages. `broken` is set if
    its header or a timer cannot be read.
    """

    name: str
    changed: int | None = None
    owner: str = ""
    broken: Undecodable | None = None
    waiting_since: int | None = None
    overdue: list[OverdueLease] = field(default_factory=list)
    parked: list[int] = field(default_factory=list)
    deaths: DeathCounts = field(default_factory=DeathCounts)
    stranded: Stranded | None = None

    def left_since(self, moment: int) -> bool:
        """Whether messages have been due since before this moment, and no process changed the row after it."""
        waits = self.waiting_since is not None and self.waiting_since < moment
        return waits and (self.changed is None or self.changed < moment)

    def waits(self, since: int) -> None:
        """Record that a message has been due since this moment."""
        self.waiting_since = since if self.waiting_since is None else min(self.waiting_since, since)


class StuckReport(NamedTuple):
    """A worker whose handlers run past their timeout, the first `since` (microseconds).

    `stuck` of them occupy one of the `threads` threads each; `others` are coroutines, batches or in child processes.
    """

    worker: str
    stuck: int
    threads: int
    since: int
    tasks: Sequence[str]
    others: int = 0


class UnfitSchedule(NamedTuple):
    """A schedule that cannot be read where the examination runs; `name` is None if not even that can be read."""

    name: str | None
    row: str
    why: str


class QueueHealth(NamedTuple):
    """A queue, its rows, its workers' reports, its unfit schedules, and when they were read.

    `workers` are those that work on its store, and `permits` its active processes and stand-bys; None: they were not
    read.
    """

    settings: Settings
    rows: Sequence[RowHealth]
    now: int
    stuck: Sequence[StuckReport] = ()
    unfit: Sequence[UnfitSchedule] = ()
    workers: Sequence[Presence] | None = None
    permits: QueuePermits | None = None

    @property
    def subject(self) -> str:
        """The queue, as its findings name it."""
        return f"queue {self.settings.name}"

    @property
    def deaths(self) -> DeathCounts:
        """The dead letters of all rows."""
        deaths = DeathCounts()
        for row in self.rows:
            deaths.add(row.deaths)
        return deaths

    def at(self, moment: int) -> str:
        """A moment in words."""
        return instant_text(moment, self.now)


def rest_of(settings: Settings) -> int:
    """How long a row of a queue rests between two turns, in microseconds; zero if the queue's rows do not rotate."""
    return settings.layout.time_shard_us * (settings.layout.time_shards - 1)


def findings_of(health: QueueHealth) -> list[Finding]:
    """The findings about a queue, subject by subject."""
    found = [
        *_broken(health),
        _work(health),
        *_served(health),
        *_permits(health),
        _late(health),
        *_expired(health),
        *_leases(health),
        *_parked(health),
        *_stuck(health),
    ]
    return [*found, _dead_letters(health), *_undecodable(health), *_unfit(health), *_room(health)]


def findings_of_workers(workers: Sequence[Presence], now: int) -> Iterator[Finding]:
    """The findings about workers that have stalled, do not report any longer, or were made quiet."""
    for one in workers:
        subject = f"worker {one.name}"
        if one.stale(now):
            reason = "it was killed, is suspended, or cannot reach the store; its messages are handed out again"
            remedy = f"look whether process {one.pid} on {one.host} runs; its report expires by itself"
            last = f"has not reported since {instant_text(one.seen, now)}"
            yield Finding(subject, Severity.WARNING, last, reason, remedy)
        elif one.state == WorkerState.STALLED:
            fact = f"has stalled: work is due, and no task of it begins or ends ({one.load} slots busy)"
            tasks = ", ".join(f"{task.task} since {instant_text(task.since, now)}" for task in one.running[:_TASKS])
            reason = f"its log has the stacks of its threads{f'; it runs {tasks}' if tasks else ''}"
            remedy = "restart it, and set timeouts on the calls its tasks wait for; --on-stall=exit ends such a worker"
            yield Finding(subject, Severity.PROBLEM, fact, reason, remedy)
        elif one.state == WorkerState.QUIET:
            reason = "an operator had it stop claiming"
            yield note(subject, "claims nothing", reason, remedy=f"astyqueue workers resume {one.name}")


def _served(health: QueueHealth) -> Iterator[Finding]:
    """Whether any worker reports that it serves the queue."""
    if health.workers is None:
        return
    here = [one for one in health.workers if one.serves(health.settings.name) and not one.stale(health.now)]
    serving = [one for one in here if one.state not in {WorkerState.DRAINING, WorkerState.QUIET}]
    quiet = [one.name for one in here if one.state == WorkerState.QUIET]
    subject = f"workers of {health.subject}"
    if serving:
        yield ok(
            subject, f"{counted(len(serving), 'worker')} with {counted(sum(one.slots for one in serving), 'slot')}"
        )
        return
    since = min((row.waiting_since for row in health.rows if row.waiting_since is not None), default=health.now)
    if since < health.now - STILL and not health.settings.behaviour.paused:
        besides = f" ({len(quiet)} {'is' if len(quiet) == 1 else 'are'} quiet)" if quiet else ""
        fact = f"no worker serves this queue{besides}, and work is due since {health.at(since)}"
        reason = (
            "no worker or dispatcher with this queue has reported lately; consumers that call receive do not report"
        )
        resume = f"astyqueue workers resume {' '.join(quiet[:_RESUMED])}, or " if quiet else ""
        yield Finding(subject, Severity.WARNING, fact, reason, f"{resume}start a worker with -Q {health.settings.name}")


def _permits(health: QueueHealth) -> Iterator[Finding]:
    """Whether the processes that may claim from a limited queue do, and others that could are not kept from it."""
    permits = health.permits
    if permits is None or not permits.limit:
        return
    subject, name = f"permits of {health.subject}", health.settings.name
    counts = f"{len(permits.active)} of {permits.limit} taken, {counted(len(permits.standby), 'process')} standing by"
    untouched = [row for row in health.rows if row.left_since(health.now - STILL)]
    if not untouched or health.settings.behaviour.paused:
        yield ok(subject, counts)
        return
    since = health.at(min(row.waiting_since or 0 for row in untouched))
    shows = f"astyqueue queues permits {name} shows them"
    if len(permits.active) >= permits.limit:
        holders = ", ".join(one.process for one in permits.active)
        fact = f"{holders} may claim and does not, and work is due since {since}"
        reason = f"all slots of it are busy, or it hangs while it renews its permit; {counts}"
        remedy = f"look into it, with astyqueue workers stacks; if it ends, a stand-by takes over; {shows}"
    elif permits.standby:
        fact = (
            f"{counted(len(permits.standby), 'process')} standing by, a permit is free, and work is due since {since}"
        )
        reason = "they do not take it: they hang, cannot write to the store, or their clocks are far from its time"
        remedy = f"check their logs and clocks; restart one of them; {shows}"
    else:
        fact = f"no process has or wants a permit, and work is due since {since}"
        reason = "the last one that had it died or left, and its permit ran out"
        remedy = f"start a worker or a consumer on {name}"
    yield Finding(subject, Severity.WARNING, fact, reason, remedy, see="docs/how-to/single-active-process.md")


def _broken(health: QueueHealth) -> Iterator[Finding]:
    for row in health.rows:
        if row.broken:
            fact = f"{row.broken.column} cannot be read ({row.broken.why})"
            reason = "nothing is claimed from this row until it can be read; messages sent to it wait"
            remedy = "if a newer astyqueue wrote it, upgrade the workers; if it is damaged, restore it from a backup"
            yield Finding(f"row {row.name}", Severity.PROBLEM, fact, reason, remedy)


def _unfit(health: QueueHealth) -> Iterator[Finding]:
    """Schedules that do not fire because they, or their triggers, cannot be read."""
    reason = "it does not fire where it cannot be read; messages and other schedules of its row are not affected"
    remedy = "install the time zones (tzdata) and the astyqueue that it was made with, or delete it and add it again"
    for one in health.unfit:
        named = f"schedule {one.name} of {health.subject}"
        subject = f"a schedule of {health.subject} (row {one.row})" if one.name is None else named
        yield Finding(subject, Severity.WARNING, f"cannot be read: {one.why}", reason, remedy)


def _work(health: QueueHealth) -> Finding:
    """Whether due messages are claimed."""
    late = [row for row in health.rows if row.waiting_since is not None and row.waiting_since < health.now - STILL]
    oldest = min((row.waiting_since or 0, row.name) for row in late) if late else (0, "")
    waiting = f"the oldest message that is due waits since {health.at(oldest[0])} (row {oldest[1]})"
    if health.settings.behaviour.paused:
        return _paused(health, waiting if late else "")
    if not late:
        return ok(health.subject, f"nothing has been due for more than {length_text(STILL)}")
    left = [row for row in late if row.left_since(health.now - STILL)]
    if not left:
        reason = "workers claim continuously, but messages arrive faster"
        remedy = "more workers, or more threads (-c) in each; if it stays so, fewer messages"
        return note(health.subject, waiting, reason, remedy=remedy)
    owners = ", ".join(sorted({row.owner for row in left if row.owner}))
    fact = f"{waiting}, and no worker takes from {counted(len(left), 'row')} of {len(health.rows)}"
    last = f"; the last were: {owners}" if owners else ""
    reason = f"no process has changed them for {length_text(STILL)} or more{last}"
    remedy = f"start a worker or a consumer on {health.settings.name}; if one runs, check its log for errors"
    return Finding(health.subject, Severity.WARNING, fact, reason, remedy)


def _expired(health: QueueHealth) -> Iterator[Finding]:
    """Whether messages lie longer than the queue allows: no process sends to it or consumes from it."""
    cap = health.settings.behaviour.expires_cap_us
    oldest = min((row.waiting_since for row in health.rows if row.waiting_since is not None), default=health.now)
    if not cap or oldest + cap > health.now - STILL:
        return
    fact = f"expired messages have not become dead letters, the oldest due {health.at(oldest)}"
    reason = "processes that send or consume make dead letters of them within minutes, and none does"
    remedy = f"start a worker or a consumer on {health.settings.name}, or delete them: astyqueue clear"
    yield Finding(f"expired messages of {health.subject}", Severity.WARNING, fact, reason, remedy)


def _late(health: QueueHealth) -> Finding:
    """Whether messages are stranded: they landed behind all cursors, where no scan reaches them."""
    subject, queue = f"late messages of {health.subject}", health.settings.name
    rows = [(row.name, row.stranded) for row in health.rows if row.stranded]
    moments = sorted((moment, name) for name, stranded in rows for moment in stranded.moments)
    parts = counted(sum(not stranded.all_seen for _, stranded in rows), "row")
    all_seen = all(stranded.all_seen for _, stranded in rows)
    if moments:
        oldest, row = moments[0]
        least = "" if all_seen else "at least "
        count = counted(len(moments), "message")
        fact = f"{least}{count} that no worker looks for, the oldest of {health.at(oldest)} (row {row})"
        reason = "they were stored long after their time, behind all scans: after an outage, a repair or a restore"
        later = "workers find most of those that are less than 12 h late within 12 h"
        remedy = f"astyqueue rescan {queue} delivers them at once; {later}"
        return Finding(subject, Severity.WARNING, fact, reason, remedy, see="docs/explanation/reading-a-row.md#rescans")
    if not all_seen:
        return note(subject, f"none found; {parts} not read to the end", f"astyqueue rescan {queue} reads all of it")
    return ok(subject, "none")


def _paused(health: QueueHealth, waiting: str) -> Finding:
    remedy = f"astyqueue queues set {health.settings.name} paused=no"
    if not waiting:
        return note(health.subject, "is paused", "nothing is delivered until an operator resumes it", remedy=remedy)
    reason = "nothing is delivered until an operator resumes it"
    return Finding(health.subject, Severity.WARNING, f"is paused, and {waiting}", reason, remedy)


def _leases(health: QueueHealth) -> Iterator[Finding]:
    """Leases that expired long ago: their holders stopped responding, and no other consumer took over."""
    overdue = [lease for row in health.rows for lease in row.overdue]
    if not overdue:
        return
    first = min(overdue, key=lambda lease: lease.due)
    count = sum(lease.messages for lease in overdue)
    leased = f"{counted(count, 'message')} under leases that ran out"
    fact = f"{leased}, the first {health.at(first.due)}, held by {first.holder}"
    reason = "their consumers crashed or stopped responding, and no other one has claimed from the row since"
    remedy = f"start a worker or a consumer on {health.settings.name}; it claims them again at once"
    yield Finding(f"leases of {health.subject}", Severity.WARNING, fact, reason, remedy)


def _parked(health: QueueHealth) -> Iterator[Finding]:
    """Parked messages, whose task no worker knew: a few for a while mean a deployment, many or old ones a mistake."""
    parked = [moment for row in health.rows for moment in row.parked]
    if not parked:
        return
    oldest = min(parked)
    unknown = f"{counted(len(parked), 'message')} of tasks that the workers which had them do not know"
    fact = f"{unknown}, the oldest due {health.at(oldest)}"
    reason = "they are tried again after up to an hour each time, and cost attempts once they are a week old"
    name = health.settings.name
    shows = f"astyqueue peek {name} --include all shows them"
    remedy = f"deploy workers that have these tasks; {shows}; delete those sent by mistake"
    bad = len(parked) > MANY_PARKED or oldest < health.now - LATELY
    yield Finding(
        f"parked messages of {health.subject}", Severity.WARNING if bad else Severity.NOTE, fact, reason, remedy
    )


def _stuck(health: QueueHealth) -> Iterator[Finding]:
    """Workers with handlers that run past their timeout."""
    for one in health.stuck:
        threads = f"{one.stuck} of {one.threads} threads are occupied by tasks past their timeout"
        others = f"{counted(one.others, 'task')} without a thread run on past their timeout"
        fact = ", and ".join([threads] * bool(one.stuck or not one.others) + [others] * bool(one.others))
        fact = f"{fact}: {', '.join(one.tasks)}"
        reason = f"the first began {health.at(one.since)}; what runs it handles nothing else until it ends"
        remedy = "restart the worker; set timeouts on the calls its tasks wait for; --max-stuck ends such a worker"
        severity = Severity.PROBLEM if one.stuck >= one.threads else Severity.WARNING
        yield Finding(f"worker {one.worker} of {health.subject}", severity, fact, reason, remedy)


def _dead_letters(health: QueueHealth) -> Finding:
    deaths, subject = health.deaths, f"dead letters of {health.subject}"
    if not deaths.kinds:
        return ok(subject, "none")
    count = deaths.kinds.total()
    kinds = ", ".join(f"{number} {kind}" for kind, number in deaths.kinds.most_common())
    remedy = f"astyqueue dead list {health.settings.name}; then redrive what was fixed, and purge the rest"
    if not deaths.lately:
        return note(
            subject,
            f"{count} ({kinds}), none within {length_text(LATELY)}",
            "they are kept until you decide",
            remedy=remedy,
        )
    (reason, times), *_ = deaths.reasons.most_common(1)
    fact = f"{count} ({kinds}), {deaths.lately} of them within {length_text(LATELY)}"
    cause = f"they grow more; most often ({counted(times, 'time')}) because of: {reason}"
    return Finding(subject, Severity.WARNING, fact, cause, remedy)


def _undecodable(health: QueueHealth) -> Iterator[Finding]:
    if count := health.deaths.kinds["undecodable"]:
        fact = f"{counted(count, 'message')} could not be read and became dead letters"
        reason = "a newer astyqueue sent them to workers that are older, or something else wrote into the store"
        remedy = f"upgrade the workers; then astyqueue dead redrive {health.settings.name} --kind undecodable --force"
        yield Finding(f"messages of {health.subject}", Severity.WARNING, fact, reason, remedy)


def _room(health: QueueHealth) -> Iterator[Finding]:
    """The rate of messages that may pile up before a row of a ring becomes too large."""
    layout = health.settings.layout
    if layout.time_shards > 1:
        lasts = layout.time_shard_us / SECOND
        rate = _ROW_BYTES * layout.concurrency_shards / (lasts * _MESSAGE_BYTES)
        shards = counted(layout.concurrency_shards, "shard")
        each = f"each takes what is sent in {length_text(layout.time_shard_us)} to one of {shards}"
        bound = (
            f"{rate:.3g} messages of {_MESSAGE_BYTES} bytes a second may pile up there "
            f"before one has {_ROW_BYTES // 1_000_000} MB"
        )
        yield ok(f"size of the rows of {health.subject}", f"{each}: {bound}")
