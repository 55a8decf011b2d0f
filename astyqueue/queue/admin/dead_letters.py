"""Lists dead letters, puts them back and removes them, as steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, TypedDict, get_args

from astyqueue.errors import BadInput, NotFound, StoreError
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Event, Kind
from astyqueue.model.message import check_key, range_of
from astyqueue.model.settings import did_you_mean
from astyqueue.model.validation import check_count, check_several
from astyqueue.model.views import DeadFilter, DeadLetter, DeathKind, RedriveReport
from astyqueue.protocol.admin import dead_letters as stored
from astyqueue.protocol.steps import Steps
from astyqueue.queue.admin.inspection import id_of
from astyqueue.queue.hooks import call_after_delete
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.units import SECOND, MonotonicUs
from astyqueue.waiting import Rest, Wakeup

#: The number of dead letters put back in one commit, unless a rate requires fewer.
_PAGE: Final = 100
_IDS: Final = "give a MessageId or its text, or a list of them"


class Where(TypedDict, total=False):
    """A filter of dead letters; a missing field matches all.

    `kind`: "failed", "rejected", "attempts", "expired" or "undecodable". `reason`: a part of it, in any case. `since`,
    `until`: they died at or after, and before, an aware datetime. `key`, `task`: as they were sent.
    """

    kind: DeathKind | None
    reason: str | None
    since: datetime | None
    until: datetime | None
    key: str | None
    task: str | None


def dead_filter(where: Where) -> DeadFilter:
    """The filter for the given fields; BadInput for an unknown field, or a value that matches nothing or everything."""
    if unknown := sorted(set(where) - set(Where.__annotations__)):
        hint = did_you_mean(unknown[0], Where.__annotations__)
        names = ", ".join(map(repr, unknown))
        problem = f"dead letters are not chosen by {names}, but by {', '.join(Where.__annotations__)}{hint}"
        raise BadInput(problem)
    kind, reason, key, task = where.get("kind"), where.get("reason"), where.get("key"), where.get("task")
    if kind is not None and kind not in get_args(DeathKind):
        problem = f"invalid kind={kind!r:.80}: one of {', '.join(get_args(DeathKind))}"
        raise BadInput(problem)
    since, until = range_of(where.get("since"), where.get("until"))
    return DeadFilter(
        kind=kind,
        reason=None if reason is None else _some_text("reason", reason),
        since=since,
        until=until,
        key=None if key is None else check_key(key),
        headers={} if task is None else {"task": _some_text("task", task)},
    )


def _some_text(name: str, text: str) -> str:
    """The text of a filter. An empty one is refused: it mostly comes from an unset variable and matches all."""
    if not isinstance(text, str) or not text:
        problem = f"{name}={text!r:.80} chooses nothing: give some text, or leave {name} out to mean all"
        raise BadInput(problem)
    return text


@dataclass(frozen=True, slots=True)
class RedriveOptions:
    """The options of a redrive.

    At most `rate` messages a second, in small commits; `dry_run` only counts; `force` also puts back messages that will
    die again; `only` is the letter to redrive, or several (None: those that match a filter). `progress` is called after
    every commit, and `cancelled` before each.
    """

    rate: float | None = None
    dry_run: bool = False
    force: bool = False
    progress: Callable[[RedriveReport], None] | None = None
    cancelled: Callable[[], bool] = lambda: False
    only: MessageId | str | Iterable[MessageId | str] | None = None

    def __post_init__(self) -> None:
        """Refuse a rate with which the redrive would never end."""
        if self.rate is not None and not (isinstance(self.rate, int | float) and self.rate > 0):
            message = f"a rate is messages per second and greater than zero, not {self.rate!r}; omit it for no limit"
            raise BadInput(message)

    @property
    def page(self) -> int:
        """Messages in one commit: a tenth of a second's worth, so that the rate is even."""
        return _PAGE if self.rate is None else max(1, int(min(_PAGE, self.rate / 10)))


def dead_letters(core: QueueRuntime, limit: int, where: Where) -> Steps[list[DeadLetter]]:
    """The first `limit` dead letters that match."""
    wanted = dead_filter(where)
    check_count(limit, "dead letters cannot be listed", least=0)
    rows, levels = core.ring.rows(), core.settings.layout.priorities
    letters: list[DeadLetter] = []
    after: MessageId | None = None
    while len(letters) < limit:
        page = yield from stored.dead_page(rows, levels, after=after, where=wanted)
        letters += page.letters
        after = page.after
        if after is None:
            break
    return letters[:limit]


def dead_letter(core: QueueRuntime, message: MessageId | str) -> Steps[DeadLetter]:
    """One dead letter; NotFound if the message is not a dead letter."""
    id_ = id_of(core, message)
    letter = yield from stored.dead_letter(id_)
    if letter is None:
        missing = f"message {id_} is not a dead letter; it may have been redriven or removed"
        raise NotFound(missing)
    return letter


def redrive(core: QueueRuntime, redriving: RedriveOptions, where: Where) -> Steps[RedriveReport]:
    """Put dead letters back, page by page."""
    wanted = dead_filter(where)
    if redriving.only is not None and any(value is not None for value in where.values()):
        problem = "redrive takes the ids of dead letters or a filter, not both"
        raise BadInput(problem)
    if redriving.only is not None:
        return (yield from _redrive_only(core, redriving, redriving.only))
    rows, levels = core.ring.rows(), core.settings.layout.priorities
    report = RedriveReport(dry_run=redriving.dry_run)
    begun = core.clock.monotonic()
    after: MessageId | None = None
    while not redriving.cancelled():
        page = yield from stored.matching_page(rows, levels, after=after, where=wanted, limit=redriving.page)
        report = yield from _with_page(core, redriving, page.ids, report)
        after = page.after
        if after is None:
            break
        yield from _keep_to(core, redriving, begun, report.redriven)
    return report


def _with_page(
    core: QueueRuntime, redriving: RedriveOptions, letters: Sequence[MessageId], report: RedriveReport
) -> Steps[RedriveReport]:
    """The report of a redrive after one more page."""
    report += yield from redrive_page(core, letters, force=redriving.force, dry_run=redriving.dry_run)
    if redriving.progress:
        redriving.progress(report)
    return report


def redrive_page(
    core: QueueRuntime, letters: Sequence[MessageId], *, force: bool, dry_run: bool
) -> Steps[RedriveReport]:
    """Put dead letters back, or with `dry_run` only count them."""
    history, why = core.claimer.history, "forced" if force else ""
    events = [] if dry_run else (yield from history.of_command(Kind.REDRIVEN, letters, why=why))
    back: list[MessageId] = []
    try:
        report = yield from stored.redrive(core.process, letters, force=force, dry_run=dry_run, on_redriven=back.extend)
    except StoreError:
        yield from history.write_or_buffer(_events_of(back, events))  # other rows were done before this one failed
        raise
    yield from history.write_or_buffer(_events_of(back, events))
    if back:
        yield from core.claimer.announce([(row, None) for row in {id_.row for id_ in back}])
    return report


def _events_of(messages: list[MessageId], events: list[Event]) -> list[Event]:
    meant = set(messages)
    return [event for event in events if event.message in meant]


def _redrive_only(
    core: QueueRuntime, redriving: RedriveOptions, only: MessageId | str | Iterable[MessageId | str]
) -> Steps[RedriveReport]:
    """Put back the chosen letters, page by page; if one is not a dead letter, NotFound is raised and none is."""
    several = (only,) if isinstance(only, MessageId | str) else check_several(only, "redrive takes ids", _IDS)
    chosen = list(dict.fromkeys(id_of(core, message) for message in several))
    report = RedriveReport(dry_run=redriving.dry_run)
    for id_ in chosen:
        if redriving.cancelled():
            return report
        yield from dead_letter(core, id_)
    begun = core.clock.monotonic()
    for start in range(0, len(chosen), redriving.page):
        yield from _keep_to(core, redriving, begun, report.redriven)
        if redriving.cancelled():
            break
        report = yield from _with_page(core, redriving, chosen[start : start + redriving.page], report)
    return report


def _keep_to(core: QueueRuntime, redriving: RedriveOptions, begun: MonotonicUs, redriven: int) -> Steps[None]:
    """Rest until the number of redriven messages is within the rate."""
    if redriving.rate is None or redriving.dry_run:
        return
    until = begun + int(redriven / redriving.rate * SECOND)
    while core.clock.monotonic() < until and not redriving.cancelled():
        yield Rest(Wakeup(core.clock), min(until, core.clock.monotonic() + SECOND // 10))


def purge(core: QueueRuntime, where: Where) -> Steps[int]:
    """Remove the matching dead letters for good; return their number."""
    wanted, on_deleted = dead_filter(where), partial(call_after_delete, core.hooks, why="purged")
    rows, levels = core.ring.rows(), core.settings.layout.priorities
    purged = 0
    after: MessageId | None = None
    while True:
        page = yield from stored.matching_page(rows, levels, after=after, where=wanted)
        purged += yield from stored.purge(core.process, page.ids, on_deleted)
        after = page.after
        if after is None:
            return purged
