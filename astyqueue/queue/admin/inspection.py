"""Reads the messages of a queue for operators, as steps; a rescan also lists for delivery what it finds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final

from astyqueue import ids
from astyqueue.durations import instant_of
from astyqueue.errors import BadInput, Closed, NotFound, Undecodable
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import kind_of
from astyqueue.model.explanation import Explanation, explained
from astyqueue.model.message import check_key, range_of
from astyqueue.model.validation import check_count
from astyqueue.model.views import Counts, Found, Include, QueuePermits, RescanReport
from astyqueue.protocol.admin import browse
from astyqueue.protocol.admin.browse import MessageBrowser
from astyqueue.protocol.admin.explain import message_facts
from astyqueue.protocol.coordination.permits import show_permits
from astyqueue.protocol.history import DAY, LONGEST, HistoryCursor, HistoryFilter
from astyqueue.protocol.row.rescan import RowRescan
from astyqueue.protocol.steps import Steps
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.units import SECOND
from astyqueue.waiting import Rest, Wakeup

#: How often a browser that follows looks for new messages.
_BROWSE_AGAIN: Final = SECOND // 2


def id_of(core: QueueRuntime, message: MessageId | str) -> MessageId:
    """The id of a message of this queue; BadInput for an invalid id, or one of another queue."""
    id_ = MessageId.parse(message) if isinstance(message, str) else message
    if not isinstance(id_, MessageId):
        given = f"an object of type {type(message).__name__}"
        wrong = (
            f"{given} is not a message id: give a MessageId, as `sent.id` and `delivery.message_id` are, or its text"
        )
        raise BadInput(wrong)
    if not core.ring.contains(id_.row) or not 0 <= id_.priority < core.settings.layout.priorities:
        wrong = f"message {id_} is not of queue {core.settings.name!r}"
        raise BadInput(wrong)
    return id_


def get(core: QueueRuntime, message: MessageId | str) -> Steps[Found]:
    """A message and its state; NotFound once it is gone."""
    id_ = id_of(core, message)
    found = yield from browse.get(core.process, id_)
    if found is None:
        missing = f"there is no message {id_}: it was acked, deleted, or never sent"
        raise NotFound(missing)
    return found


def explain(core: QueueRuntime, message: MessageId | str) -> Steps[Explanation]:
    """Why a message has not run yet, and its events as far as the history is kept."""
    facts = message_facts(core.process, core.ring, id_of(core, message), core.settings.behaviour)
    return explained((yield from facts))


def history(
    core: QueueRuntime,
    message: MessageId | str | None,
    *,
    key: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    kinds: Iterable[str] = (),
) -> HistoryCursor:
    """A cursor over the matching events of the history; BadInput for an invalid query."""
    if message is not None and key is not None:
        problem = "history takes the id of a message or a key, not both; give neither for the whole queue"
        raise BadInput(problem)
    if key is not None:
        check_key(key)
    now = core.process.now()
    begin, finish = range_of(since, until)
    end = min(now if finish is None else finish, now + DAY)
    start = max(end - core.settings.behaviour.history_kept_us if begin is None else begin, now - LONGEST)
    meant = None if message is None else id_of(core, message)
    return HistoryCursor(
        core.ring, HistoryFilter(start, end + (until is None), meant, key, frozenset(map(kind_of, kinds)))
    )


def peek(core: QueueRuntime, limit: int, include: str) -> Steps[list[Found]]:
    """Messages in the order of their delivery; none is claimed."""
    try:
        wanted = Include(include)
    except ValueError as error:
        message = f"include={include!r}: one of {', '.join(Include)}"
        raise BadInput(message) from error
    check_count(limit, "messages cannot be listed", least=0)
    levels = core.settings.layout.priorities
    return browse.peek(core.process, core.ring.rows(), levels=levels, limit=limit, include=wanted)


def open_browser(
    core: QueueRuntime, since: datetime | None, after: MessageId | str | None, *, follow: bool
) -> MessageBrowser:
    """A browser of the messages; BadInput if both `since` and `after` are given."""
    if since is not None and after is not None:
        problem = "browse takes a moment (since=) or a message (after=), not both"
        raise BadInput(problem)
    begin = ids.LEAST if since is None else ids.first_at(instant_of(since))
    return MessageBrowser(
        core.process, core.ring, begin=begin if after is None else id_of(core, after).id, follow=follow
    )


@contextlib.contextmanager
def until_closed(browser: MessageBrowser) -> Iterator[None]:
    """End the block of a browser that follows, without an error, when its queue or its store is closed.

    For another one Closed is raised: an end would say that it has had all messages.
    """
    try:
        yield
    except Closed:
        if not browser.follows:
            raise


def next_browsed(core: QueueRuntime, browser: MessageBrowser) -> Steps[list[Found]]:
    """The next messages of a browser, which may be none at its end; one that follows waits for some."""
    while True:
        found = yield from browser.go_on()
        if found or not browser.over or not browser.follows or core.closed:
            return found
        yield Rest(Wakeup(core.clock), core.clock.monotonic() + _BROWSE_AGAIN)


def counts(core: QueueRuntime) -> Steps[Counts]:
    """The number of messages in each state."""
    return browse.counts(core.process, core.ring.rows(), levels=core.settings.layout.priorities)


def permits(core: QueueRuntime) -> Steps[QueuePermits]:
    """Which processes may claim, and which stand by, if the queue limits their number."""
    return show_permits(core.settings.name, core.settings.behaviour.max_active_processes, core.process.now)


def find(core: QueueRuntime, key: str) -> Steps[list[Found]]:
    """The messages with this key, ordered by due time."""
    return browse.found_by_key(core.process, core.ring.home(core.ring.shard_of_key(check_key(key))), key)


def rescan(
    core: QueueRuntime,
    since: datetime | None,
    *,
    progress: Callable[[RescanReport], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Steps[RescanReport]:
    """Rescan row by row, from `since` on (None: everything).

    `progress` is called after every page, and `cancelled` before each.
    """
    report = RescanReport()
    begin = None if since is None else instant_of(since)
    for row in core.ring.rows():
        scan = RowRescan(core.process, row, core.settings.layout.priorities, begin)
        before = report
        while not scan.over and not cancelled():
            try:
                yield from scan.go_on()
            except Undecodable:
                report = before + RescanReport(0, scan.looked, scan.listed, (row,))
                break
            report = before + RescanReport(int(scan.over), scan.looked, scan.listed)
            if progress:
                progress(report)
        if scan.listed:
            yield from core.claimer.announce([(row, None)])
    return report
