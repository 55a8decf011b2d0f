"""The builder of a dispatcher: its queues, handlers and limits, set before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Generic, Self, TypeVar

from astyqueue.dispatch.backlog_size import MessageQuota
from astyqueue.dispatch.forked_children import end_forked_children
from astyqueue.dispatch.handlers import Call, Factory, Handler, HandlerRegistry, Middleware, check_handler, handler_name
from astyqueue.dispatch.subscription import Subscription
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadSetting
from astyqueue.queue.queue import MessageQueue

D = TypeVar("D")
#: The default number of handler threads of a queue.
THREADS: Final = 8
_THREADS_AT_MOST: Final = 1_024


@dataclass(slots=True)
class _Wanted:
    """The options of one queue."""

    queue: MessageQueue
    roster: HandlerRegistry = field(default_factory=HandlerRegistry)
    threads: int | None = None
    backlog: int | None = None


@dataclass(frozen=True, slots=True)
class DispatcherLimits:
    """When a dispatcher ends by itself: after this number of messages, or with this number of stuck handlers."""

    messages: int | None = None
    stalled: int | None = None


class DispatcherBuilder(Generic[D]):
    """Collects queues and their handlers; `build()` returns the dispatcher, whose `start()` or `run()` begins the work.

    Handlers belong to the queue named last, and share its `threads` threads (Default: 8; the greatest number given
    counts). `backlog` bounds how many deliveries wait for a free handler (Default: adapted to how quick the handlers
    are).
    """

    def __init__(self, build: Callable[[tuple[Subscription, ...], MessageQuota, int | None], D]) -> None:
        """`build` makes the dispatcher from subscriptions, quota and the limit of stuck handlers."""
        self._build = build
        self._wanted: list[_Wanted] = []
        self._middleware: list[Middleware] = []
        self._limits = DispatcherLimits()

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
        """Run this function for the messages of a task (their header "task" names it), or for all without another one.

        It gets the delivery. Returning acks it; raising counts as a failed attempt, and after the last one
        (`max_attempts` overrides the message's and the queue's) makes a dead letter; `Retry`, `Reject` and `Snooze`
        choose other outcomes. A handler that runs longer than `timeout` has failed too, and its later result is
        ignored.
        """
        check_handler(call)
        limit, allowed = _limits(timeout, max_attempts)
        self._last.roster.add(Handler(task or handler_name(call), call, limit, allowed), task)
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
        """Call a factory with the name of a task to make its handler.

        If it returns None the task is unknown here, and its message waits for a worker that knows it. `tasks` are the
        names known in advance, which the log lists as handled here.
        """
        limit, allowed = _limits(timeout, max_attempts)
        self._last.roster.ask(factory, timeout=limit, max_attempts=allowed)
        self._last.roster.names.update(tasks)
        return self._sized(threads, backlog)

    def middleware(self, *middleware: Middleware) -> Self:
        """Wrap every handler of every queue in `fn(delivery, call_next)`; the first one given is the outermost."""
        for one in middleware:
            check_handler(one)
        self._middleware.extend(middleware)
        return self

    def max_messages(self, most: int) -> Self:
        """Handle at most `most` messages in total, claim no more, and drain when the last of them has ended."""
        self._limits = replace(self._limits, messages=_count("max_messages", most, range(1, 1 << 62)))
        return self

    def max_stalled(self, most: int) -> Self:
        """Stop, with HandlersStuck, when `most` handlers (or all threads) run on past their `timeout`."""
        self._limits = replace(self._limits, stalled=_count("max_stalled", most, range(1, _THREADS_AT_MOST + 1)))
        return self

    def build(self) -> D:
        """Make the dispatcher; nothing runs yet. BadSetting without a queue, or for one without a handler."""
        for wanted in self._wanted:
            if wanted.roster.empty:
                message = f"queue {wanted.queue.name!r} has no handler: .handler(function), for example"
                raise BadSetting(message)
            # Around the handler, so that no middleware goes on in its child; and around middleware, which may fork too.
            outermost = (end_forked_children,) if self._middleware else ()
            wanted.roster.wrap((*outermost, *self._middleware, end_forked_children))
        if not self._wanted:
            message = "a dispatcher needs a queue: .queue(queue).handler(function), for example"
            raise BadSetting(message)
        quota = MessageQuota(self._limits.messages)
        subscriptions = tuple(
            Subscription(
                wanted.queue, wanted.roster, threads=wanted.threads or THREADS, backlog=wanted.backlog, quota=quota
            )
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
    """Check the options of a handler; returns its timeout in microseconds and its attempts."""
    limit = None if timeout is None else as_microseconds(timeout)
    if limit == 0:
        message = "a timeout of 0 leaves a handler no time: give a longer one, or leave it out"
        raise BadSetting(message)
    return limit, None if max_attempts is None else _count("max_attempts", max_attempts, range(1, 10_001))


def _count(name: str, value: object, allowed: range) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
        message = f"{name} is {value!r}: give a whole number from {allowed.start} to {allowed.stop - 1}"
        raise BadSetting(message)
    return value
