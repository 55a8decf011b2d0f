"""The messages of one queue that this process claimed and that wait for a consumer.

They are filed in lanes: the messages of a lane may be taken by exactly the same consumers, in the order in which they
came. So a consumer with a selector looks at the heads of its lanes, and never again at messages that it may not take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from astyqueue.units import NEVER

T = TypeVar("T")

#: Lanes that are empty are kept up to this number: it is exceeded only by many selectors that are functions.
_KEPT_LANES: Final = 64
#: The most waiting messages whose rejections are remembered, and the most rejections of one message.
REJECTED_MESSAGES: Final = 64
REJECTIONS: Final = 16
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Ready(Generic[T]):
    """A claimed message. It waits in `lane`, or its `holder` has it; if it has neither, it is gone from the buffer.

    `rejected_by` are the numbers of consumers that are not offered it again.
    """

    __slots__ = ("expires", "headers", "holder", "lane", "message", "position", "rejected_by", "size", "task")

    def __init__(
        self,
        message: T,
        *,
        size: int = 0,
        task: str | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        expires: int = NEVER,
    ) -> None:
        """`size` in bytes, `expires` in microseconds of the manager's clock."""
        self.message = message
        self.size = size
        self.task = task
        self.headers = headers
        self.expires = expires
        self.position = 0
        self.lane: Lane[T] | None = None
        self.holder: object = None
        self.rejected_by: tuple[int, ...] = ()

    def __repr__(self) -> str:
        """The message and where it is."""
        return f"<Ready {self.message!r}: {'waiting' if self.lane else 'taken' if self.holder else 'gone'}>"


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """Which messages a consumer may take: of these tasks (None: of all), and those that `accepts` returns True for.

    `accepts` gets the task and the headers. It is called under the manager's lock, once for each message: it must be
    quick, depend on its arguments alone, and call no manager. A message for which it raises is not accepted.
    """

    tasks: frozenset[str] | None = None
    accepts: Callable[[str | None, Mapping[str, str]], bool] | None = None

    def selects_as(self, other: Selector) -> bool:
        """Whether both select the same messages, by the same tasks and the same function."""
        return self.tasks == other.tasks and self.accepts == other.accepts

    def matches(self, ready: Ready[T]) -> bool:
        """Whether this message may be taken."""
        if self.tasks is not None and ready.task not in self.tasks:
            return False
        if self.accepts is None:
            return True
        try:
            return self.accepts(ready.task, ready.headers)
        except Exception:  # noqa: BLE001 - the user's function; its error must not lose the messages of a put
            return False


ALL: Final = Selector()


class Lane(Generic[T]):
    """Waiting messages, in order, that match exactly these selectors, and that these consumers rejected.

    `coming` is the number of consumers that were woken for a message of this lane and have not pulled yet.
    """

    __slots__ = ("coming", "messages", "rejected_by", "selectors")

    def __init__(self, selectors: tuple[Selector, ...], rejected_by: tuple[int, ...] = ()) -> None:
        """Start empty."""
        self.selectors = selectors
        self.rejected_by = rejected_by
        self.messages: deque[Ready[T]] = deque()
        self.coming = 0

    def insert(self, ready: Ready[T]) -> None:
        """Add a message at its position; costs a step for each message before it."""
        ready.lane = self
        messages = self.messages
        if not messages or ready.position < messages[0].position:
            messages.appendleft(ready)
            return
        messages.insert(sum(other.position < ready.position for other in messages), ready)


class ReadyBuffer(Generic[T]):
    """The waiting messages of a queue, filed by who may take them. Not safe from several threads.

    `only` is the one lane there is, while no selector and no rejection separates messages.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        """`now` is read only for messages that expire. Those found expired are moved to `expired`."""
        self.expired: list[Ready[T]] = []
        self._now = now
        self._position = 0
        self._selectors: tuple[Selector, ...] = ()
        self._by_function = False
        self._lanes: dict[tuple[Selector, ...], Lane[T]] = {}
        self._rejected: dict[Ready[T], Lane[T]] = {}
        self._of: dict[Selector, list[Lane[T]]] = {}
        self._by_task: dict[str | None, Lane[T]] = {}
        self._of_other_tasks = self._lane(())
        self.only: Lane[T] | None = self._of_other_tasks

    @property
    def waiting(self) -> int:
        """The number of waiting messages."""
        only = self.only
        return sum(len(lane.messages) for lane in self.lanes) if only is None else len(only.messages)

    @property
    def lanes(self) -> list[Lane[T]]:
        """All lanes."""
        return [*self._lanes.values(), *self._rejected.values()]

    def lanes_of(self, selector: Selector) -> list[Lane[T]]:
        """The lanes whose messages match this selector of a consumer."""
        return self._of[selector]

    def select(self, selectors: Iterable[Selector]) -> None:
        """File all messages anew, for consumers with these selectors: all lanes are new."""
        self._selectors = tuple(selectors)
        self._file_again()

    def _file_again(self) -> None:
        """File the waiting messages into new lanes, in order: the selectors changed."""
        messages = self.in_order()
        self._by_function = any(selector.accepts for selector in self._selectors)
        self._by_task, self._lanes, self._rejected = {}, {}, {}
        self._of = {selector: [] for selector in self._selectors}
        self._of_other_tasks = self._lane(tuple(one for one in self._selectors if one.tasks is None))
        for task in {task for selector in self._selectors for task in selector.tasks or ()}:
            named = (one for one in self._selectors if one.tasks is None or task in one.tasks)
            self._by_task[task] = self._lane(tuple(named))
        for ready in messages:
            self._file(ready).insert(ready)
        self._find_only()

    def _find_only(self) -> None:
        plain = not (self._by_function or self._by_task or self._rejected)
        self.only = self._of_other_tasks if plain else None

    def _file(self, ready: Ready[T]) -> Lane[T]:
        """The lane that this message belongs to."""
        if ready.rejected_by:
            return self._lane_of_rejected(ready)
        if self._by_function:
            return self._lane(self._matching(ready))
        return self._by_task.get(ready.task, self._of_other_tasks)

    def _matching(self, ready: Ready[T]) -> tuple[Selector, ...]:
        return tuple(selector for selector in self._selectors if selector.matches(ready))

    def _lane(self, selectors: tuple[Selector, ...]) -> Lane[T]:
        if (lane := self._lanes.get(selectors)) is None:
            if self._by_function and len(self._lanes) >= _KEPT_LANES:
                self._forget_empty()
            lane = self._lanes[selectors] = self._listed(Lane(selectors))
        return lane

    def _listed(self, lane: Lane[T]) -> Lane[T]:
        for selector in lane.selectors:
            self._of[selector].append(lane)
        return lane

    def _unlist(self, lane: Lane[T]) -> None:
        for selector in lane.selectors:
            self._of[selector].remove(lane)

    def _forget_empty(self) -> None:
        for lane in [lane for lane in self._lanes.values() if not (lane.messages or lane.coming)]:
            self._unlist(lane)
            del self._lanes[lane.selectors]

    def _lane_of_rejected(self, ready: Ready[T]) -> Lane[T]:
        if len(self._rejected) >= REJECTED_MESSAGES:
            oldest = next(iter(self._rejected))
            self._unlist(self._rejected.pop(oldest))
            oldest.rejected_by = ()
            self._file(oldest).insert(oldest)
        lane = self._rejected[ready] = self._listed(Lane(self._matching(ready), ready.rejected_by))
        self.only = None
        return lane

    def _end_lane_of_rejected(self, ready: Ready[T]) -> None:
        self._unlist(self._rejected.pop(ready))
        self._find_only()

    def add(self, messages: list[Ready[T]]) -> Iterable[Lane[T]]:
        """Add new messages at the end; returns their lanes."""
        only = self.only
        lanes: dict[Lane[T], None] = {}
        for ready in messages:
            self._position = ready.position = self._position + 1
            ready.lane = lane = only or self._file(ready)
            lanes[lane] = None
            if only is None:
                lane.messages.append(ready)
        if only is not None:
            only.messages.extend(messages)
        return lanes

    def put_back(self, ready: Ready[T]) -> Lane[T] | None:
        """Add a message again, at its old position; None if it expired meanwhile."""
        ready.holder = None
        if self.is_expired(ready):
            self.expired.append(ready)
            return None
        lane = self._file(ready)
        lane.insert(ready)
        return lane

    def is_expired(self, ready: Ready[T]) -> bool:
        """Whether this message expired."""
        return ready.expires != NEVER and ready.expires <= self._now()

    def head(self, lane: Lane[T]) -> Ready[T] | None:
        """The first message of a lane that did not expire; expired ones before it are moved out."""
        messages = lane.messages
        while messages:
            ready = messages[0]
            if ready.expires == NEVER or ready.expires > self._now():
                return ready
            self.take(lane)
            self.expired.append(ready)
        return None

    def take(self, lane: Lane[T]) -> Ready[T]:
        """Remove the first message of this lane."""
        ready = lane.messages.popleft()
        ready.lane = None
        if lane.rejected_by:
            self._end_lane_of_rejected(ready)
        return ready

    def remove(self, ready: Ready[T]) -> bool:
        """Remove this message wherever it waits; False if it does not wait."""
        lane = ready.lane
        if lane is None:
            return False
        lane.messages.remove(ready)
        ready.lane = None
        if lane.rejected_by:
            self._end_lane_of_rejected(ready)
        return True

    def displace(self, bound: int) -> list[Ready[T]]:
        """Remove and return the oldest messages, until at most `bound` wait."""
        displaced: list[Ready[T]] = []
        while self.waiting > bound and (oldest := self.oldest()) is not None:
            self.remove(oldest)
            displaced.append(oldest)
        return displaced

    def oldest(self) -> Ready[T] | None:
        """The waiting message that came first, expired or not."""
        return min((lane.messages[0] for lane in self.lanes if lane.messages), key=_position, default=None)

    def in_order(self) -> list[Ready[T]]:
        """All waiting messages, in order."""
        return sorted((ready for lane in self.lanes for ready in lane.messages), key=_position)


def _position(ready: Ready[T]) -> int:
    return ready.position
