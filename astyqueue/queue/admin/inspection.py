"""Operators' inspection and repair of a queue, as steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypedDict, get_args

from astyqueue.durations import instant_of
from astyqueue.errors import BadInput, NotFound, Undecodable
from astyqueue.model.compose import check_key, range_of
from astyqueue.model.event import Event, kind_of
from astyqueue.model.explanation import Explanation
from astyqueue.model.message import MessageId, Receipt
from astyqueue.model.settings_text import did_you_mean
from astyqueue.model.validation import check_count
from astyqueue.model.views import Counts, DeadFilter, DeadLetter, DeathKind, Found, Include, RedriveReport, RescanReport
from astyqueue.protocol.admin import browse, dead_letters, delete, explain
from astyqueue.protocol.history import DAY, LONGEST, HistoryCursor, HistoryFilter
from astyqueue.protocol.row.rescan import RowRescan
from astyqueue.protocol.settling.outcomes import Outcome
from astyqueue.protocol.steps import Steps
from astyqueue.queue.admin.commands import MessageCommands
from astyqueue.queue.explanation import with_history
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.units import SECOND
from astyqueue.waiting import Rest, Wakeup

#: The number of dead letters put back in one commit, unless a rate requires fewer.
_PAGE: Final = 100


class Where(TypedDict, total=False):
    """A filter of dead letters; a missing field matches all. `reason` is a part of it; instants are aware datetimes."""

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
    die again; `only` are the letters to redrive, in place of a filter. `progress` is called after every commit, and
    `cancelled` before each.
    """

    rate: float | None = None
    dry_run: bool = False
    force: bool = False
    progress: Callable[[RedriveReport], None] | None = None
    cancelled: Callable[[], bool] = lambda: False
    only: Sequence[MessageId | str] = ()

    def __post_init__(self) -> None:
        """Refuse a rate with which the redrive would never end."""
        if self.rate is not None and not (isinstance(self.rate, int | float) and self.rate > 0):
            message = f"a rate is messages per second and greater than zero, not {self.rate!r}; omit it for no limit"
            raise BadInput(message)

    @property
    def page(self) -> int:
        """Messages in one commit: a tenth of a second's worth, so that the rate is even."""
        return _PAGE if self.rate is None else max(1, min(_PAGE, int(self.rate / 10)))


@dataclass(frozen=True, slots=True)
class RescanOptions:
    """The start of a rescan (None: everything); `progress` is called after every page, and `cancelled` before each."""

    since: datetime | None = None
    progress: Callable[[RescanReport], None] | None = None
    cancelled: Callable[[], bool] = lambda: False


class QueueAdmin:
    """Inspects and repairs a queue."""

    def __init__(self, core: QueueRuntime) -> None:
        """`core` is the open queue."""
        self._core = core
        self._process = core.process
        self._orders = MessageCommands(core.process, core.claimer.history)

    @property
    def _rows(self) -> list[str]:
        return self._core.ring.rows()

    @property
    def _levels(self) -> int:
        return self._core.settings.layout.priorities

    def get(self, message: MessageId | str) -> Steps[Found]:
        """A message and its state; NotFound once it is gone."""
        id_ = self.own(message)
        found = yield from browse.get(self._process, id_)
        if found is None:
            missing = f"there is no message {id_}: it was acked, deleted, or never sent"
            raise NotFound(missing)
        return found

    def explain(self, message: MessageId | str) -> Steps[Explanation]:
        """Why a message has not run yet, and its events as far as the history is kept."""
        id_ = self.own(message)
        found = yield from explain.explain(self._process, id_, self._core.settings.behaviour)
        recall = self.recall(id_, key=None, since=None, until=None, kinds=())
        events: list[Event] = []
        while not recall.over:
            events += yield from recall.go_on()
        return with_history(found, events, self._core.settings.behaviour.history)

    def recall(
        self,
        message: MessageId | str | None,
        *,
        key: str | None,
        since: datetime | None,
        until: datetime | None,
        kinds: Iterable[str],
    ) -> HistoryCursor:
        """A cursor over the matching events of the history; BadInput for an invalid query."""
        if message is not None and key is not None:
            problem = "history takes the id of a message or a key, not both; give neither for the whole queue"
            raise BadInput(problem)
        if key is not None:
            check_key(key)
        now = self._process.now()
        begin, finish = range_of(since, until)
        end = min(now if finish is None else finish, now + DAY)
        start = max(end - self._core.settings.behaviour.history_kept_us if begin is None else begin, now - LONGEST)
        meant = None if message is None else self.own(message)
        return HistoryCursor(
            self._core.ring, HistoryFilter(start, end + (until is None), meant, key, frozenset(map(kind_of, kinds)))
        )

    def peek(self, limit: int, include: str) -> Steps[list[Found]]:
        """Messages in the order of their delivery; none is claimed."""
        try:
            wanted = Include(include)
        except ValueError as error:
            message = f"include={include!r}: one of {', '.join(Include)}"
            raise BadInput(message) from error
        check_count(limit, "messages cannot be listed", least=0)
        return (yield from browse.peek(self._process, self._rows, levels=self._levels, limit=limit, include=wanted))

    def counts(self) -> Steps[Counts]:
        """The number of messages in each state."""
        return (yield from browse.counts(self._process, self._rows, levels=self._levels))

    def delete(self, message: MessageId | str) -> Steps[bool]:
        """Remove a message in any state; True if it existed."""
        return (yield from self._orders.delete(self.own(message)))

    def clear(self) -> Steps[int]:
        """Remove all messages; return their number."""
        removed = 0
        for row in self._rows:
            removed += yield from delete.clear(self._process, row, self._levels)
            self._core.claimer.changed(row)
        return removed

    def drop(self) -> Steps[int]:
        """Remove all messages and the queue itself; return the number of messages."""
        return (yield from delete.drop(self._process, self._core.settings))

    def dead_letters(self, limit: int, where: Where) -> Steps[list[DeadLetter]]:
        """The first `limit` dead letters that match."""
        wanted = dead_filter(where)
        check_count(limit, "dead letters cannot be listed", least=0)
        letters: list[DeadLetter] = []
        after: MessageId | None = None
        while len(letters) < limit:
            page = yield from dead_letters.dead_page(self._rows, self._levels, after=after, where=wanted)
            letters += page.letters
            after = page.after
            if after is None:
                break
        return letters[:limit]

    def dead_letter(self, message: MessageId | str) -> Steps[DeadLetter]:
        """One dead letter; NotFound if the message is not a dead letter."""
        id_ = self.own(message)
        letter = yield from dead_letters.dead_letter(id_)
        if letter is None:
            missing = f"message {id_} is not a dead letter; it may have been redriven or removed"
            raise NotFound(missing)
        return letter

    def redrive(self, redriving: RedriveOptions, where: Where) -> Steps[RedriveReport]:
        """Put dead letters back, page by page."""
        wanted = dead_filter(where)
        if redriving.only and any(value is not None for value in where.values()):
            problem = "redrive takes the ids of dead letters or a filter, not both"
            raise BadInput(problem)
        if redriving.only:
            return (yield from self._redrive_only(redriving))
        report = RedriveReport(dry_run=redriving.dry_run)
        begun = self._core.clock.monotonic()
        after: MessageId | None = None
        while not redriving.cancelled():
            page = yield from dead_letters.matching_page(
                self._rows, self._levels, after=after, where=wanted, limit=redriving.page
            )
            report += yield from self._orders.redrive(page.ids, force=redriving.force, dry_run=redriving.dry_run)
            for row in {id_.row for id_ in page.ids}:
                self._core.claimer.changed(row)
            if redriving.progress:
                redriving.progress(report)
            after = page.after
            if after is None:
                break
            yield from self._keep_to(redriving, begun, report.redriven)
        return report

    def _redrive_only(self, redriving: RedriveOptions) -> Steps[RedriveReport]:
        """Put back the chosen letters; if one is not a dead letter, NotFound is raised and none is put back."""
        chosen = [self.own(message) for message in redriving.only]
        for id_ in chosen:
            yield from self.dead_letter(id_)
        report = yield from self._orders.redrive(chosen, force=redriving.force, dry_run=redriving.dry_run)
        for row in {id_.row for id_ in chosen}:
            self._core.claimer.changed(row)
        return report

    def _keep_to(self, redriving: RedriveOptions, begun: int, redriven: int) -> Steps[None]:
        """Rest until the number of redriven messages is within the rate."""
        if redriving.rate is None or redriving.dry_run:
            return
        until = begun + int(redriven / redriving.rate * SECOND)
        while self._core.clock.monotonic() < until and not redriving.cancelled():
            yield Rest(Wakeup(self._core.clock), min(until, self._core.clock.monotonic() + SECOND // 10))

    def rescan(self, rescanning: RescanOptions) -> Steps[RescanReport]:
        """Make messages that landed behind all scans deliverable, row by row."""
        report = RescanReport()
        since = None if rescanning.since is None else instant_of(rescanning.since)
        for row in self._rows:
            scan = RowRescan(self._process, row, self._levels, since)
            before = report
            while not scan.over and not rescanning.cancelled():
                try:
                    yield from scan.go_on()
                except Undecodable:
                    report = before + RescanReport(0, scan.looked, scan.listed, (row,))
                    break
                report = before + RescanReport(int(scan.over), scan.looked, scan.listed)
                if rescanning.progress:
                    rescanning.progress(report)
            if scan.listed:
                self._core.claimer.changed(row)
        return report

    def purge(self, where: Where) -> Steps[int]:
        """Remove the matching dead letters for good; return their number."""
        wanted = dead_filter(where)
        purged = 0
        after: MessageId | None = None
        while True:
            page = yield from dead_letters.matching_page(self._rows, self._levels, after=after, where=wanted)
            purged += yield from dead_letters.purge(self._process, page.ids)
            after = page.after
            if after is None:
                return purged

    def settle(self, receipt: Receipt | str, outcome: Callable[[Receipt], Outcome]) -> Steps[None]:
        """Settle by receipt, from any process; LeaseLost if the receipt is not current."""
        held = Receipt.parse(receipt) if isinstance(receipt, str) else receipt
        if not isinstance(held, Receipt):
            wrong = f"{receipt!r:.120} is not a receipt: give a delivery's receipt, or its text"
            raise BadInput(wrong)
        row = self.own(held.message).row
        yield from self._orders.settle(held, outcome(held), self._levels)
        self._core.claimer.changed(row)

    def own(self, message: MessageId | str) -> MessageId:
        """The id of a message of this queue; BadInput for an invalid id, or one of another queue."""
        id_ = MessageId.parse(message) if isinstance(message, str) else message
        if not isinstance(id_, MessageId):
            wrong = f"{message!r:.120} is not a message id: give a MessageId, or its text"
            raise BadInput(wrong)
        if not self._core.ring.contains(id_.row) or not 0 <= id_.priority < self._levels:
            wrong = f"message {id_} is not of queue {self._core.settings.name!r}"
            raise BadInput(wrong)
        return id_
