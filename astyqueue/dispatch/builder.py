"""Saying who handles what, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Generic, Self, TypeVar

from astyqueue.dispatch.handlers import Call, Factory, Handler, Middleware, Roster, check, name_of
from astyqueue.dispatch.pace import Quota
from astyqueue.dispatch.subscription import Subscription
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadSetting
from astyqueue.queue.queue import MessageQueue

D = TypeVar("D")
#: Handlers at a time unless it is said.
THREADS: Final = 8
_THREADS_AT_MOST: Final = 1_024


@dataclass(slots=True)
class _Wanted:
    """What was said about one queue."""

    queue: MessageQueue
    roster: Roster = field(default_factory=Roster)
    threads: int | None = None
    backlog: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """When a dispatcher ends by itself: after so many messages, when so many handlers are stuck."""

    messages: int | None = None
    stalled: int | None = None


class DispatcherBuilder(Generic[D]):
    """Collects queues and their handlers; `build()` gives the dispatcher, `start()` or `run()` of which begins the work.

    What is said about handlers is about the queue named last. Its handlers share `threads` threads (8 unless said; of
    several wishes the greatest counts). `backlog` bounds how many deliveries wait for a free handler; left out, it follows
    how quick the handlers are.
    """

    def __init__(self, build: Callable[[tuple[Subscription, ...], Quota, int | None], D]) -> None:
        """`build` makes the dispatcher of what was collected."""
        self._build = build
        self._wanted: list[_Wanted] = []
        self._middleware: list[Middleware] = []
        self._limits = Limits()

    def queue(self, queue: MessageQueue, *, threads: int | None = None, backlog: int | None = None) -> Self:
        """Take messages from this queue."""
        if any(wanted.queue is queue for wanted in self._wanted):
            message = f"queue {queue.name!r} was given twice: give all its handlers after naming it once"
            raise BadSetting(message)
        self._wanted.append(_Wanted(queue))
        return self._sized(threads, backlog)

    def handler(
        self,
        call: Call,
        *,
        task: str | None = None,
        threads: int | None = None,
        timeout: Duration | None = None,
        max_attempts: int | None = None,
        backlog: int | None = None,
    ) -> Self:
        """Have this function run for the messages of a task (their header "task" names it), or for all that no other is for.

        It gets the delivery: returning acks it; raising counts a failed attempt, and after the last one (`max_attempts`
        beats the message's and the queue's) makes a dead letter; `Retry`, `Reject` and `Snooze` say something else. A
        handler that is not done after `timeout` has failed too; what it does later is ignored.
        """
        check(call)
        limit, allowed = _limits(timeout, max_attempts)
        self._last.roster.add(Handler(task or name_of(call), call, limit, allowed), task)
        return self._sized(threads, backlog)

    def handlers(
        self,
        factory: Factory,
        *,
        tasks: Iterable[str] = (),
        threads: int | None = None,
        timeout: Duration | None = None,
        max_attempts: int | None = None,
        backlog: int | None = None,
    ) -> Self:
        """Have handlers made by the name of a task; None means that it is not known here, and its message waits for a worker that knows it.

        `tasks` are the names that the log gives as handled here, as far as they are known before any message comes.
        """
        limit, allowed = _limits(timeout, max_attempts)
        self._last.roster.ask(factory, timeout=limit, max_attempts=allowed)
        self._last.roster.names.update(tasks)
        return self._sized(threads, backlog)

    def middleware(self, *middleware: Middleware) -> Self:
        """Wrap every handler of every queue in `fn(delivery, call_next)`; the first one given is the outermost."""
        for one in middleware:
            check(one)
        self._middleware.extend(middleware)
        return self

    def max_messages(self, most: int) -> Self:
        """Begin with so many messages in all, and drain when the last of them has ended; no more than that are claimed."""
        self._limits = replace(self._limits, messages=_count("max_messages", most, range(1, 1 << 62)))
        return self

    def max_stalled(self, most: int) -> Self:
        """Stop, with HandlersStuck, when so many handlers (or all threads) are past their `timeout` and still keep their threads."""
        self._limits = replace(self._limits, stalled=_count("max_stalled", most, range(1, _THREADS_AT_MOST + 1)))
        return self

    def build(self) -> D:
        """The dispatcher; nothing runs yet."""
        for wanted in self._wanted:
            if wanted.roster.empty:
                message = f"queue {wanted.queue.name!r} has no handler: .handler(function), for example"
                raise BadSetting(message)
            wanted.roster.wrap(self._middleware)
        if not self._wanted:
            message = "a dispatcher needs a queue: .queue(queue).handler(function), for example"
            raise BadSetting(message)
        quota = Quota(self._limits.messages)
        subscriptions = tuple(
            Subscription(wanted.queue, wanted.roster, threads=wanted.threads or THREADS, backlog=wanted.backlog, quota=quota)
            for wanted in self._wanted
        )
        return self._build(subscriptions, quota, self._limits.stalled)

    @property
    def _last(self) -> _Wanted:
        if not self._wanted:
            message = "name the queue first: .queue(queue).handler(function), for example"
            raise BadSetting(message)
        return self._wanted[-1]

    def _sized(self, threads: int | None, backlog: int | None) -> Self:
        wanted = self._last
        if threads is not None:
            wanted.threads = max(wanted.threads or 0, _count("threads", threads, range(1, _THREADS_AT_MOST + 1)))
        if backlog is not None:
            wanted.backlog = max(wanted.backlog or 0, _count("backlog", backlog, range(100_001)))
        return self


def _limits(timeout: Duration | None, max_attempts: int | None) -> tuple[int | None, int | None]:
    """The options of a handler, checked: its time in microseconds and its attempts."""
    limit = None if timeout is None else as_microseconds(timeout)
    if limit == 0:
        message = "a timeout of 0 leaves a handler no time: give a longer one, or none"
        raise BadSetting(message)
    return limit, None if max_attempts is None else _count("max_attempts", max_attempts, range(1, 10_001))


def _count(name: str, value: object, allowed: range) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
        message = f"{name} is {value!r}: give a whole number from {allowed.start} to {allowed.stop - 1}"
        raise BadSetting(message)
    return value
