"""What is done to a queue by those who look after it, as steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypedDict, get_args

from astyqueue.clock import SECOND, Clock
from astyqueue.errors import BadInput, NotFound, Undecodable
from astyqueue.instants import instant_of
from astyqueue.model.checks import check_count
from astyqueue.model.event import Event, kind_of
from astyqueue.model.explanation import Explanation
from astyqueue.model.message import MessageId, Receipt
from astyqueue.model.outgoing import check_key, range_of
from astyqueue.model.settings import Settings
from astyqueue.model.views import Counts, DeadFilter, DeadLetter, DeathKind, Found, Include, RedriveReport, RescanReport
from astyqueue.model.wording import did_you_mean
from astyqueue.protocol import browse, dead, explain, remove
from astyqueue.protocol.history import DAY, LONGEST
from astyqueue.protocol.outcomes import Settling
from astyqueue.protocol.process import Process
from astyqueue.protocol.recall import Asked, Recall
from astyqueue.protocol.rescan import RowRescan
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.steps import Steps
from astyqueue.queue.history import History
from astyqueue.queue.lives import with_history
from astyqueue.queue.orders import Orders
from astyqueue.wakeup import Rest, Wakeup

#: Dead letters put back in one commit, when no rate asks for fewer.
_PAGE: Final = 100


class Where(TypedDict, total=False):
    """Which dead letters are meant; what is left out fits all. `reason` is a part of it; instants are aware datetimes."""

    kind: DeathKind | None
    reason: str | None
    since: datetime | None
    until: datetime | None
    key: str | None
    task: str | None


def dead_filter(where: Where) -> DeadFilter:
    """The filter of what people ask for. An unknown name, or a value that can fit nothing or everything, raises BadInput."""
    if unknown := sorted(set(where) - set(Where.__annotations__)):
        hint = did_you_mean(unknown[0], Where.__annotations__)
        problem = f"dead letters are not chosen by {', '.join(map(repr, unknown))}, but by {', '.join(Where.__annotations__)}{hint}"
        raise BadInput(problem)
    kind, reason, key, task = where.get("kind"), where.get("reason"), where.get("key"), where.get("task")
    if kind is not None and kind not in get_args(DeathKind):
        problem = f"kind={kind!r:.80} is no kind of death: one of {', '.join(get_args(DeathKind))}"
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
    """The text of a filter. An empty one is refused: it mostly comes from a variable that was never set, and as a reason fits all."""
    if not isinstance(text, str) or not text:
        problem = f"{name}={text!r:.80} chooses nothing: give some text, or leave {name} out to mean all"
        raise BadInput(problem)
    return text


@dataclass(frozen=True, slots=True)
class Redriving:
    """How to go about a redrive.

    At most `rate` messages a second, in small commits; `dry_run` only counts; `force` also puts back what will die again;
    `only` names the letters that are meant, whatever a filter says. `progress` is told after every commit, and `cancelled`
    asked before every one.
    """

    rate: float | None = None
    dry_run: bool = False
    force: bool = False
    progress: Callable[[RedriveReport], None] | None = None
    cancelled: Callable[[], bool] = lambda: False
    only: Sequence[MessageId | str] = ()

    def __post_init__(self) -> None:
        """Refuse a rate that would never end."""
        if self.rate is not None and not (isinstance(self.rate, int | float) and self.rate > 0):
            message = f"a rate is messages per second and greater than zero, not {self.rate!r}; leave it out for no limit"
            raise BadInput(message)

    @property
    def page(self) -> int:
        """Messages in one commit: a tenth of a second's worth, so that a rate is even."""
        return _PAGE if self.rate is None else max(1, min(_PAGE, int(self.rate / 10)))


@dataclass(frozen=True, slots=True)
class Rescanning:
    """How far back a rescan goes (everything, if `since` is None). `progress` is told after every page, `cancelled` asked before."""

    since: datetime | None = None
    progress: Callable[[RescanReport], None] | None = None
    cancelled: Callable[[], bool] = lambda: False


class Operating:
    """Looking at a queue and mending it."""

    def __init__(
        self, process: Process, settings: Callable[[], Settings], *, clock: Clock, changed: Callable[[str], None], history: History
    ) -> None:
        """`changed` is told which rows were changed, so that takers here look at them."""
        self._orders = Orders(process, history)
        self._process = process
        self._settings = settings
        self._clock = clock
        self._changed = changed

    @property
    def _ring(self) -> Ring:
        settings = self._settings()
        return Ring(settings.name, settings.layout)

    @property
    def _rows(self) -> list[str]:
        return self._ring.rows()

    @property
    def _levels(self) -> int:
        return self._settings().layout.priorities

    def get(self, message: MessageId | str) -> Steps[Found]:
        """A message and where it stands; NotFound once it is gone."""
        id_ = self.own(message)
        found = yield from browse.get(self._process, id_)
        if found is None:
            missing = f"there is no message {id_} (any more): it was acked, deleted, or never sent"
            raise NotFound(missing)
        return found

    def explain(self, message: MessageId | str) -> Steps[Explanation]:
        """Why a message has not run yet, and what happened to it as far as the history is kept."""
        id_ = self.own(message)
        found = yield from explain.explain(self._process, id_, self._settings().behaviour)
        recall = self.recall(id_, key=None, since=None, until=None, kinds=())
        events: list[Event] = []
        while not recall.over:
            events += yield from recall.go_on()
        return with_history(found, events, self._settings().behaviour.history)

    def recall(
        self,
        message: MessageId | str | None,
        *,
        key: str | None,
        since: datetime | None,
        until: datetime | None,
        kinds: Iterable[str],
    ) -> Recall:
        """Where to read what happened; BadInput for what cannot be asked."""
        if message is not None and key is not None:
            problem = "history takes the id of a message, or a key, or neither for the whole queue: not both"
            raise BadInput(problem)
        if key is not None:
            check_key(key)
        now = self._process.now()
        begin, finish = range_of(since, until)
        end = min(now if finish is None else finish, now + DAY)
        start = max(end - self._settings().behaviour.history_kept_us if begin is None else begin, now - LONGEST)
        meant = None if message is None else self.own(message)
        return Recall(self._ring, Asked(start, end + (until is None), meant, key, frozenset(map(kind_of, kinds))))

    def peek(self, limit: int, include: str) -> Steps[list[Found]]:
        """Messages in the order in which they would be handed out; none is taken."""
        try:
            wanted = Include(include)
        except ValueError as error:
            message = f"include={include!r}: one of {', '.join(Include)}"
            raise BadInput(message) from error
        check_count(limit, "messages cannot be listed", least=0)
        return (yield from browse.peek(self._process, self._rows, levels=self._levels, limit=limit, include=wanted))

    def counts(self) -> Steps[Counts]:
        """How many messages stand where."""
        return (yield from browse.counts(self._process, self._rows, levels=self._levels))

    def delete(self, message: MessageId | str) -> Steps[bool]:
        """Remove a message in whatever state; whether it was there."""
        return (yield from self._orders.delete(self.own(message)))

    def clear(self) -> Steps[int]:
        """Remove all messages; how many those were."""
        removed = 0
        for row in self._rows:
            removed += yield from remove.clear(self._process, row, self._levels)
            self._changed(row)
        return removed

    def drop(self) -> Steps[int]:
        """Remove all messages and the queue itself; how many messages those were."""
        return (yield from remove.drop(self._process, self._settings()))

    def dead_letters(self, limit: int, where: Where) -> Steps[list[DeadLetter]]:
        """The first dead letters that fit."""
        wanted = dead_filter(where)
        check_count(limit, "dead letters cannot be listed", least=0)
        letters: list[DeadLetter] = []
        after: MessageId | None = None
        while len(letters) < limit:
            page = yield from dead.dead_page(self._rows, self._levels, after=after, where=wanted)
            letters += page.letters
            after = page.after
            if after is None:
                break
        return letters[:limit]

    def dead_letter(self, message: MessageId | str) -> Steps[DeadLetter]:
        """One dead letter; NotFound if the message is none."""
        id_ = self.own(message)
        letter = yield from dead.dead_letter(id_)
        if letter is None:
            missing = f"message {id_} is no dead letter (any more)"
            raise NotFound(missing)
        return letter

    def redrive(self, redriving: Redriving, where: Where) -> Steps[RedriveReport]:
        """Put dead letters back, page by page."""
        wanted = dead_filter(where)
        if redriving.only and any(value is not None for value in where.values()):
            problem = "redrive takes the ids of dead letters, or what they have in common: not both"
            raise BadInput(problem)
        if redriving.only:
            return (yield from self._redrive_only(redriving))
        report = RedriveReport(dry_run=redriving.dry_run)
        begun = self._clock.monotonic()
        after: MessageId | None = None
        while not redriving.cancelled():
            page = yield from dead.chosen_page(self._rows, self._levels, after=after, where=wanted, limit=redriving.page)
            report += yield from self._orders.redrive(page.ids, force=redriving.force, dry_run=redriving.dry_run)
            for row in {id_.row for id_ in page.ids}:
                self._changed(row)
            if redriving.progress:
                redriving.progress(report)
            after = page.after
            if after is None:
                break
            yield from self._keep_to(redriving, begun, report.redriven)
        return report

    def _redrive_only(self, redriving: Redriving) -> Steps[RedriveReport]:
        """Put back these letters, which somebody chose one by one; one that is none raises NotFound, and nothing is put back."""
        chosen = [self.own(message) for message in redriving.only]
        for id_ in chosen:
            yield from self.dead_letter(id_)
        report = yield from self._orders.redrive(chosen, force=redriving.force, dry_run=redriving.dry_run)
        for row in {id_.row for id_ in chosen}:
            self._changed(row)
        return report

    def _keep_to(self, redriving: Redriving, begun: int, redriven: int) -> Steps[None]:
        """Rest until so many messages are not too many for the rate."""
        if redriving.rate is None or redriving.dry_run:
            return
        until = begun + int(redriven / redriving.rate * SECOND)
        while self._clock.monotonic() < until and not redriving.cancelled():
            yield Rest(Wakeup(self._clock), min(until, self._clock.monotonic() + SECOND // 10))

    def rescan(self, rescanning: Rescanning) -> Steps[RescanReport]:
        """Have what landed behind all looks handed out, row by row."""
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
                self._changed(row)
        return report

    def purge(self, where: Where) -> Steps[int]:
        """Remove dead letters for good; how many those were."""
        wanted = dead_filter(where)
        purged = 0
        after: MessageId | None = None
        while True:
            page = yield from dead.chosen_page(self._rows, self._levels, after=after, where=wanted)
            purged += yield from dead.purge(self._process, page.ids)
            after = page.after
            if after is None:
                return purged

    def settle(self, receipt: Receipt | str, outcome: Callable[[Receipt], Settling]) -> Steps[None]:
        """Settle by receipt, from whatever process; LeaseLost if it is not current (any more)."""
        held = Receipt.parse(receipt) if isinstance(receipt, str) else receipt
        if not isinstance(held, Receipt):
            wrong = f"{receipt!r:.120} is no receipt: give a delivery's receipt, or its text"
            raise BadInput(wrong)
        row = self.own(held.message).row
        yield from self._orders.settle(held, outcome(held), self._levels)
        self._changed(row)

    def own(self, message: MessageId | str) -> MessageId:
        """The id of a message of this queue; another raises BadInput."""
        id_ = MessageId.parse(message) if isinstance(message, str) else message
        if not isinstance(id_, MessageId):
            wrong = f"{message!r:.120} is no id of a message: give a MessageId, or its text"
            raise BadInput(wrong)
        if not self._ring.contains(id_.row) or not 0 <= id_.priority < self._levels:
            wrong = f"message {id_} is not of queue {self._settings().name!r}"
            raise BadInput(wrong)
        return id_
