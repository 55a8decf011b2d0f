"""The consumers of one queue in one process, by state: not interested, interested, notified or removed."""

from __future__ import annotations

import functools
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from astyqueue.dispatch.consumers.credit import Credit
from astyqueue.dispatch.consumers.ready_buffer import ALL, Lane, Ready, Selector

T = TypeVar("T")
_NUMBERS: Final = itertools.count(1)
#: A browser that does not pull keeps this many messages and twice those that wait, before those gone are dropped.
_UNSEEN: Final = 64


class State(Enum):
    """What a consumer and its manager may expect of each other."""

    NOT_INTERESTED = "not interested"  # it gets nothing and is not woken
    INTERESTED = "interested"  # it had nothing to take at its last pull, and sleeps until it is woken
    NOTIFIED = "notified"  # it was woken or got a message, and will pull again
    REMOVED = "removed"


NOT_INTERESTED: Final = State.NOT_INTERESTED
INTERESTED: Final = State.INTERESTED
NOTIFIED: Final = State.NOTIFIED
REMOVED: Final = State.REMOVED


@dataclass(frozen=True, slots=True)
class Counters:
    """What happened to consumers: wake-ups, messages and bytes delivered, and pulls that got nothing."""

    wakeups: int = 0
    delivered: int = 0
    bytes_delivered: int = 0
    misses: int = 0

    @property
    def wakeups_per_delivery(self) -> float:
        """At most 1.0 when consumers have no selectors and do not withdraw."""
        return self.wakeups / self.delivered if self.delivered else 0.0

    def __add__(self, other: Counters | Consumer[Any]) -> Counters:
        """What happened to both."""
        return Counters(
            self.wakeups + other.wakeups,
            self.delivered + other.delivered,
            self.bytes_delivered + other.bytes_delivered,
            self.misses + other.misses,
        )


class Consumer(Generic[T]):
    """One consumer of one queue: what it may take, and what it got.

    Its owner pulls until it gets None, and then waits for `wake`. The manager's other fields are for the manager alone.
    """

    __slots__ = (
        "asked",
        "browser",
        "bytes_delivered",
        "credit",
        "delivered",
        "is_free",
        "kept",
        "level",
        "live",
        "misses",
        "number",
        "off_since",
        "on_credit",
        "priority",
        "selector",
        "state",
        "turn",
        "unlimited",
        "waiting_since",
        "wake",
        "wakeups",
        "woken_for",
    )

    def __init__(
        self,
        wake: Callable[[], None],
        *,
        credit: Credit | None = None,
        priority: int = 0,
        selector: Selector = ALL,
        browser: bool = False,
        is_free: Callable[[], bool] | None = None,
    ) -> None:
        """`wake` is called when there may be a message, from any thread and without a lock; it must not block.

        Higher priorities get messages first. A browser sees messages without taking them. Without `credit` it has
        credit while `is_free` returns True, by default always; its owner calls `refresh` if it was woken otherwise.
        """
        self.wake = wake
        self.is_free = is_free
        self.credit = credit
        self.priority = priority
        self.selector = selector
        self.number = next(_NUMBERS)
        self.state = NOT_INTERESTED
        self.delivered = 0
        self.bytes_delivered = 0
        self.wakeups = 0
        self.misses = 0
        self.live = False
        self.asked = False
        self.turn = 0
        self.level: Level[T] | None = None
        self.woken_for: Lane[T] | None = None
        self.kept: Ready[T] | None = None
        self.browser = browser
        self.unlimited = credit is None and not browser
        self.off_since: int | None = None
        self.waiting_since: int | None = None
        self.on_credit: Callable[[], None] | None = None

    def __repr__(self) -> str:
        """Its number, state and deliveries."""
        return f"<Consumer {self.number}: {self.state.value}, {self.delivered} delivered>"

    @property
    def has_credit(self) -> bool:
        """Whether it can accept a message now, of some size."""
        if self.credit is not None:
            return self.credit.interested
        return self.is_free is None or self.is_free()

    def is_suspended(self, since: int) -> bool:
        """Whether it was interested once, and has not been since that moment or longer."""
        return self.state is NOT_INTERESTED and self.off_since is not None and self.off_since <= since

    def follow_credit(self, refresh: Callable[[Consumer[T]], None]) -> None:
        """Call `refresh` with each reported change of its credit."""
        if self.credit is not None:
            self.on_credit = functools.partial(refresh, self)
            self.credit.listen(self.on_credit)

    def unfollow_credit(self) -> None:
        """Stop following the consumer's credit."""
        if self.credit is not None and self.on_credit is not None:
            self.credit.unlisten(self.on_credit)


class Level(Generic[T]):
    """The consumers with one selector and one priority, by state; `members` counts those of any state."""

    __slots__ = ("interested", "members", "notified")

    def __init__(self) -> None:
        """Start empty."""
        self.members = 0
        self.interested: OrderedDict[Consumer[T], None] = OrderedDict()
        self.notified: dict[Consumer[T], None] = {}

    def first_interested(self, rejected_by: tuple[int, ...]) -> Consumer[T] | None:
        """The one that waits longest, except those that rejected the message; at most one step more than these."""
        return next((one for one in self.interested if one.number not in rejected_by), None)

    def wants(self, rejected_by: tuple[int, ...]) -> bool:
        """Whether any of them, except those that rejected the message, is interested or notified."""
        if not rejected_by:
            return bool(self.interested or self.notified)
        return any(one.number not in rejected_by for one in itertools.chain(self.interested, self.notified))


class Consumers(Generic[T]):
    """The acquiring consumers of a queue. Each step costs O(1) in their number. Not safe from several threads."""

    def __init__(self) -> None:
        """Start empty. `asleep` is the number of interested ones; `priorities` are the present ones, highest first."""
        self.asleep = 0
        self.of_one_priority = True
        self.priorities: list[int] = []
        self._levels: dict[Selector, dict[int, Level[T]]] = {}
        self._turns = itertools.count(1)

    @property
    def selectors(self) -> list[Selector]:
        """The selectors of all members, without duplicates."""
        return [*self._levels]

    def add(self, consumer: Consumer[T]) -> bool:
        """Add a consumer, not interested; returns whether it is the first with its selector."""
        alike = (other for other in self._levels if other.selects_as(consumer.selector))
        consumer.selector = next(alike, consumer.selector)
        levels = self._levels.setdefault(consumer.selector, {})
        first = not levels
        consumer.level = levels.setdefault(consumer.priority, Level())
        consumer.level.members += 1
        if consumer.level.members == 1:
            self._list_priorities()
        return first

    def remove(self, consumer: Consumer[T]) -> bool:
        """Remove a consumer; returns whether it was the last with its selector."""
        self.move(consumer, REMOVED, NOT_INTERESTED, INTERESTED, NOTIFIED)
        return self._leave_level(consumer)

    def _leave_level(self, consumer: Consumer[T]) -> bool:
        level, levels = consumer.level, self._levels[consumer.selector]
        consumer.level = None
        if level is not None:
            level.members -= 1
            if not level.members:
                del levels[consumer.priority]
                self._list_priorities()
        if not levels:
            del self._levels[consumer.selector]
        return not levels

    def _list_priorities(self) -> None:
        self.priorities = sorted({one for levels in self._levels.values() for one in levels}, reverse=True)
        self.of_one_priority = len(self.priorities) <= 1

    def set_priority(self, consumer: Consumer[T], priority: int) -> None:
        """Move a consumer to another priority; there it comes last among those in its state."""
        state = consumer.state
        self.move(consumer, NOT_INTERESTED, INTERESTED, NOTIFIED)
        levels = self._levels[consumer.selector]
        level = levels.setdefault(priority, Level())
        level.members += 1
        self._leave_level(consumer)
        consumer.level, consumer.priority = level, priority
        self._list_priorities()
        self.move(consumer, state, NOT_INTERESTED)

    def move(self, consumer: Consumer[T], to: State, *sources: State) -> bool:
        """Move a consumer to the end of another state's list; False, and nothing done, if it is in none of `sources`.

        Of several threads that want to wake one consumer, one gets True.
        """
        state, level = consumer.state, consumer.level
        if state not in sources or level is None:
            return False
        if state is INTERESTED:
            del level.interested[consumer]
            self.asleep -= 1
        elif state is NOTIFIED:
            del level.notified[consumer]
        consumer.state = to
        if to is INTERESTED:
            consumer.turn = next(self._turns)
            level.interested[consumer] = None
            self.asleep += 1
        elif to is NOTIFIED:
            level.notified[consumer] = None
        return True

    def wanted_above(self, lane: Lane[T], priority: int) -> bool:
        """Whether a consumer of a higher priority is interested or notified, and may take the messages of this lane."""
        for higher in self.priorities:
            if higher <= priority:
                return False
            if any(level.wants(lane.rejected_by) for level in self._levels_of(lane, higher)):
                return True
        return False

    def next_asleep(self, lane: Lane[T]) -> Consumer[T] | None:
        """The consumer to wake for this lane: of the highest priority that wants it, the one that sleeps longest."""
        for priority in self.priorities:
            wanting = [level for level in self._levels_of(lane, priority) if level.wants(lane.rejected_by)]
            if wanting:
                return self._longest(wanting, lane)
        return None

    def longest_asleep(self, lane: Lane[T]) -> Consumer[T] | None:
        """The consumer that may take this lane and has waited longest for a message, whatever its priority."""
        asleep = [
            one
            for priority in self.priorities
            for level in self._levels_of(lane, priority)
            if (one := level.first_interested(lane.rejected_by))
        ]
        return min(asleep, key=_waiting_since, default=None)

    def _longest(self, levels: list[Level[T]], lane: Lane[T]) -> Consumer[T] | None:
        if len(levels) == 1:
            return levels[0].first_interested(lane.rejected_by)
        first = (level.first_interested(lane.rejected_by) for level in levels)
        return min(filter(None, first), key=_turn, default=None)

    def _levels_of(self, lane: Lane[T], priority: int) -> Iterator[Level[T]]:
        for selector in lane.selectors:
            level = self._levels[selector].get(priority)
            if level is not None:
                yield level


class Members(Generic[T]):
    """The acquiring consumers of a queue in the order in which they came, and which of them get messages."""

    def __init__(self, live: int | None) -> None:
        """Start empty. At most `live` consumers get messages, the first ones; the others stand by."""
        self._live = live
        self._present: dict[Consumer[T], None] = {}
        self._departed = Counters()

    def __contains__(self, consumer: Consumer[T]) -> bool:
        """Whether it is present."""
        return consumer in self._present

    def __iter__(self) -> Iterator[Consumer[T]]:
        """Those that are present."""
        return iter(self._present)

    def __len__(self) -> int:
        """How many are present."""
        return len(self._present)

    def add(self, consumer: Consumer[T]) -> None:
        """Add a consumer, which is live or stands by."""
        consumer.live = self._live is None or sum(one.live for one in self._present) < self._live
        self._present[consumer] = None

    def remove(self, consumer: Consumer[T]) -> None:
        """Remove a consumer, if it is present, and keep what happened to it."""
        self._present.pop(consumer, None)
        self._departed += consumer

    def promoted(self) -> list[Consumer[T]]:
        """Make consumers live that stood by, as many as may be; returns those of them that asked for messages."""
        if self._live is None:
            return []
        free = self._live - sum(one.live for one in self._present)
        promoted = [one for one in self._present if not one.live][:free]
        for one in promoted:
            one.live = True
        return [one for one in promoted if one.asked]

    def counters(self, others: Iterable[Consumer[T]]) -> Counters:
        """What happened to all of them, those that left, and these others."""
        total = self._departed
        for one in itertools.chain(self._present, others):
            total += one
        return total


class Browsers(Generic[T]):
    """Consumers that see messages without taking them.

    A browser sees each message that waits when it joins and each later one, exactly once.
    """

    def __init__(self, count_wakeup: Callable[[Consumer[T]], None]) -> None:
        """`count_wakeup` wakes a browser."""
        self._count_wakeup = count_wakeup
        self.unseen: dict[Consumer[T], deque[Ready[T]]] = {}

    def __iter__(self) -> Iterator[Consumer[T]]:
        """All browsers."""
        return iter(self.unseen)

    def __len__(self) -> int:
        """The number of browsers."""
        return len(self.unseen)

    def add(self, browser: Consumer[T], waiting: list[Ready[T]]) -> None:
        """Add a browser, not interested, which will see these messages first."""
        browser.live = True
        self.unseen[browser] = deque(one for one in waiting if browser.selector.matches(one))

    def remove(self, browser: Consumer[T]) -> None:
        """Remove a browser."""
        browser.state = REMOVED
        self.unseen.pop(browser, None)

    def show(self, messages: list[Ready[T]], waiting: int) -> None:
        """Have all browsers see these new messages; `waiting` is the number of messages that wait."""
        for browser, unseen in self.unseen.items():
            unseen.extend(one for one in messages if browser.selector.matches(one))
            if len(unseen) > _UNSEEN + 2 * waiting:
                left = [one for one in unseen if one.lane is not None]
                unseen.clear()
                unseen.extend(left)
            if browser.state is INTERESTED:
                self._wake(browser)

    def refresh(self, browser: Consumer[T], now: int, *, interested: bool) -> None:
        """Count a browser as interested, and wake it if it has not seen all messages; or as not interested."""
        if not interested:
            self._withdraw(browser, now)
        elif browser.state is NOT_INTERESTED:
            browser.state, browser.off_since = INTERESTED, None
            self._wake(browser)

    def _wake(self, browser: Consumer[T]) -> None:
        if browser.has_credit and self._next(browser) is not None:
            browser.state = NOTIFIED
            self._count_wakeup(browser)

    def _next(self, browser: Consumer[T]) -> Ready[T] | None:
        """The next message that still waits."""
        unseen = self.unseen[browser]
        while unseen and unseen[0].lane is None:
            unseen.popleft()
        return unseen[0] if unseen else None

    def _withdraw(self, browser: Consumer[T], now: int) -> None:
        if browser.state in {INTERESTED, NOTIFIED}:
            browser.state, browser.off_since = NOT_INTERESTED, now

    def pull(self, browser: Consumer[T], now: int) -> Ready[T] | None:
        """The next message that this browser has not seen, and that has not expired; None at the end."""
        while (ready := self._next(browser)) is not None and ready.expires <= now:
            self.unseen[browser].popleft()
        if ready is None and browser.has_credit:
            browser.state = INTERESTED
            browser.misses += 1
            return None
        if ready is None or (browser.credit is not None and not browser.credit.take(ready.size)):
            self._withdraw(browser, now)
            return None
        self.unseen[browser].popleft()
        browser.state = NOTIFIED
        browser.delivered += 1
        browser.bytes_delivered += ready.size
        return ready


def _turn(consumer: Consumer[T]) -> int:
    return consumer.turn


def _waiting_since(consumer: Consumer[T]) -> int:
    return consumer.waiting_since or 0
