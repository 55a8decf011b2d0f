"""The builder of a dispatcher: its queues, handlers and limits, set before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Generic, Self, TypeVar

from astyqueue.clock import Clock
from astyqueue.dispatch.execution.waiting_lines import QueueOptions
from astyqueue.dispatch.flow_control import MessageQuota
from astyqueue.dispatch.handlers.handler import (
    AsyncCall,
    Batch,
    BatchCall,
    Call,
    Factory,
    Handler,
    Kind,
    handler_name,
    refuse_no_time,
    wanted_kind,
)
from astyqueue.dispatch.handlers.handler_registry import GivenHandlers, HandlerRegistry
from astyqueue.dispatch.handlers.middleware import AnyMiddleware, HandlerWrapping, check_middleware
from astyqueue.dispatch.pools import BLOCKED_AFTER, CoroutineOptions, HandlerPools
from astyqueue.dispatch.processes.child_process import ProcessOptions
from astyqueue.dispatch.processes.children import ProcessChildren, available_processors
from astyqueue.dispatch.processes.stray_forks import ending_forked_children
from astyqueue.dispatch.queue_patterns import QueueDirectory, QueuePattern
from astyqueue.dispatch.subscription import QueueIdentity, Subscription
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadSetting
from astyqueue.model.envelope import ATTEMPTS_MOST
from astyqueue.queue.queue import MessageQueue
from astyqueue.text import duration_setting_text
from astyqueue.units import SECOND

D = TypeVar("D")
#: The number of handler threads for queues that are given none.
THREADS: Final = 8
#: With less (microseconds), a coroutine that merely waits would be logged.
_BLOCKED_AFTER_LEAST: Final = SECOND // 1_000
#: The whole numbers that each option takes.
_THREADS: Final = range(1, 1_025)
_PROCESSES: Final = range(1, 1_025)
_COROUTINES: Final = range(1, 1_000_001)
_WEIGHTS: Final = range(1, 1_001)
_MESSAGES_AT_A_TIME: Final = range(1, 1_000_001)
_BACKLOGS: Final = range(100_001)
_ATTEMPTS: Final = range(1, ATTEMPTS_MOST + 1)
#: As many handlers may be stuck as can run: coroutines are the most.
_STUCK: Final = _COROUTINES
#: For counts of messages and of bytes, which need no bound: more than any program reaches.
_ANY_NUMBER: Final = range(1, 1 << 62)


@dataclass(slots=True)
class _Wanted:
    """The options of one queue, or of those that a pattern matches."""

    queue: MessageQueue | None = None
    pattern: str = ""
    directory: QueueDirectory | None = None
    weight: int = 1
    handlers: GivenHandlers = field(default_factory=GivenHandlers)
    threads: int | None = None
    backlog: int | None = None
    limit: int | Callable[[str], int | None] | None = None

    @property
    def name(self) -> str:
        return self.queue.name if self.queue is not None else self.pattern

    @property
    def options(self) -> QueueOptions:
        limit = self.limit_of(self.name) if self.queue is not None else None
        return QueueOptions(self.weight, self.threads, self.backlog, limit, from_pattern=self.queue is None)

    def limit_of(self, queue: str) -> int | None:
        """The limit of a queue of this name."""
        return _limit(self.limit(queue) if callable(self.limit) else self.limit)


@dataclass(frozen=True, slots=True)
class HandlerOptions:
    """The task of a handler, what runs it, how long a batch is gathered, and its limits, as users give them."""

    task: str | None = None
    kind: str | None = None
    batch: tuple[int, Duration] | None = None
    timeout: Duration | None = None
    max_attempts: int | None = None

    def handler(self, call: Call | AsyncCall | BatchCall) -> Handler:
        """The handler that calls this function."""
        return Handler(
            self.task or handler_name(call),
            call,
            _timeout(self.timeout),
            _attempts(self.max_attempts),
            kind=wanted_kind(self.kind),
            batch=Batch.wanted(self.batch),
        )

    @property
    def of_one_function(self) -> list[str]:
        """Those that were given and that no handler of a factory takes from here."""
        options = {"task=": self.task, "kind=": self.kind, "batch=": self.batch}
        return [name for name, value in options.items() if value is not None]


@dataclass(frozen=True, slots=True)
class DispatcherLimits:
    """When a dispatcher ends by itself: after this number of messages, or with this number of stuck handlers."""

    messages: int | None = None
    stuck: int | None = None


@dataclass(frozen=True, slots=True)
class DispatcherPlan:
    """What a dispatcher is made of: the slots that its queues share, and its queues."""

    clock: Clock
    pools: HandlerPools
    quota: MessageQuota
    wrapping: HandlerWrapping
    max_stuck: int | None
    subscriptions: tuple[Subscription, ...] = ()
    patterns: tuple[QueuePattern, ...] = ()

    def registry_of(
        self,
        call: Call | AsyncCall | BatchCall | None,
        options: HandlerOptions,
        factory: Factory | None,
        tasks: Iterable[str],
    ) -> HandlerRegistry:
        """The handlers of one queue; BadSetting if there are none, or one cannot run."""
        given, names = GivenHandlers(), _names(tasks)
        if call is not None:
            given.add(options.handler(call), options.task)
        elif factory is None:
            message = "a queue needs a handler: give a function, or factory="
            raise BadSetting(message)
        elif alone := options.of_one_function:
            message = (
                f"no function was given for {', '.join(alone)}: give it, or have factory= return a Handler with that"
            )
            raise BadSetting(message)
        if factory is not None:
            timeout, attempts = _timeout(options.timeout), _attempts(options.max_attempts)
            given.set_factory(factory, timeout=timeout, max_attempts=attempts)
            given.names.update(names)
        elif names:
            message = "tasks= names what a factory makes: give factory=, or task= for the function"
            raise BadSetting(message)
        return HandlerRegistry(given, self.wrapping)

    def subscription(self, queue: MessageQueue, registry: HandlerRegistry, options: QueueOptions) -> Subscription:
        """A queue that shares the slots."""
        return Subscription(queue, registry, self.pools, options=options, quota=self.quota)


class DispatcherBuilder(Generic[D]):
    """Collects queues and their handlers; `build()` returns the dispatcher, whose `start()` or `run()` begins the work.

    All queues share the handler threads: `threads(16)` (Default: the sum of what the queues and handlers are given,
    and 8 more for all that are given nothing), and so they share `coroutines` and `processes`. While several queues
    have messages, each gets turns by its `weight`; threads that a queue does not need serve the others.

    Handlers belong to the queue named last. Its `threads` is the most of its handlers that run in threads at a time
    (Default: all threads; of several numbers the greatest counts). `backlog` bounds how many of its deliveries wait for
    a free thread (Default: adapted to how quick the handlers are); they are released when no thread took one for half a
    lease, and none wait then until a handler ends. `limit` bounds how many of its deliveries this process has, running
    or waiting, whatever runs their handlers.
    """

    def __init__(self, build: Callable[[DispatcherPlan], D]) -> None:
        """`build` makes the dispatcher."""
        self._build = build
        self._threads: int | None = None
        self._wanted: list[_Wanted] = []
        self._middleware: list[AnyMiddleware] = []
        self._coroutines = CoroutineOptions()
        self._processes: ProcessOptions | None = None
        self._limits = DispatcherLimits()

    def threads(self, total: int) -> Self:
        """Run handlers in this number of threads, which all queues share."""
        self._threads = _count("threads", total, _THREADS)
        return self

    def queue(
        self,
        queue: MessageQueue,
        *,
        weight: int = 1,
        threads: int | None = None,
        backlog: int | None = None,
        limit: int | None = None,
    ) -> Self:
        """Take messages from this queue; one of weight 3 gets three turns for each of weight 1 while both have some.

        At most `limit` of its messages are here at the same time, whatever the kinds of their handlers.
        """
        given = [QueueIdentity.of(wanted.queue) for wanted in self._wanted if wanted.queue is not None]
        if QueueIdentity.of(queue) in given:
            message = f"queue {queue.name!r} was given twice: give all its handlers after naming it once"
            raise BadSetting(message)
        self._wanted.append(_Wanted(queue, weight=_count("weight", weight, _WEIGHTS), limit=_limit(limit)))
        return self._sized(threads, backlog)

    def queues(
        self,
        pattern: str,
        directory: QueueDirectory,
        *,
        weight: int = 1,
        threads: int | None = None,
        backlog: int | None = None,
        limit: int | Callable[[str], int | None] | None = None,
    ) -> Self:
        """Take messages from all queues of a connection whose names match a shell-style pattern, such as "mail.*".

        Each has this weight, and these bounds for itself; a `limit` may also be found by its name. Queues that are
        created later join within five seconds and the time of a listing, those that are dropped leave. A queue that was
        named with `queue` is not looked for.
        """
        weight = _count("weight", weight, _WEIGHTS)
        found = limit if callable(limit) else _limit(limit)
        self._wanted.append(_Wanted(pattern=pattern, directory=directory, weight=weight, limit=found))
        return self._sized(threads, backlog)

    def coroutines(self, in_flight: int, *, blocked_after: Duration = BLOCKED_AFTER) -> Self:
        """Have at most `in_flight` `async def` handlers in flight (Default: 1000), on one event loop of this process.

        A handler that keeps the loop for longer than `blocked_after` (1 ms or more) is named in the log, with the
        stack.
        """
        most = _count("in_flight", in_flight, _COROUTINES)
        longest = as_microseconds(blocked_after)
        if longest < _BLOCKED_AFTER_LEAST:
            message = f"blocked_after is {duration_setting_text(longest)}: give at least 1ms"
            raise BadSetting(message)
        self._coroutines = CoroutineOptions(most, longest)
        return self

    def processes(
        self,
        count: int | None = None,
        *,
        max_tasks_per_child: int | None = None,
        max_rss: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Run handlers of kind "process" in `count` child processes (Default: one for each processor).

        A child is replaced after `max_tasks_per_child` messages, and when it has more than `max_rss` bytes in memory.
        `environment` has variables for the children, besides those of this process.
        """
        chosen = ProcessOptions(
            available_processors() if count is None else _count("processes", count, _PROCESSES),
            None if max_tasks_per_child is None else _count("max_tasks_per_child", max_tasks_per_child, _ANY_NUMBER),
            None if max_rss is None else _count("max_rss", max_rss, _ANY_NUMBER),
            dict(environment or {}),
        )
        self._processes = chosen
        return self

    def handler(
        self,
        call: Call | AsyncCall | BatchCall,
        *,
        task: str | None = None,
        kind: str | None = None,
        batch: tuple[int, Duration] | None = None,
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

        `kind` is what runs it: "thread"; "asyncio" for `async def` functions, whose delivery is an
        `astyqueue.aio.Delivery`; or "process". Default: found from the function, never "process". With
        `batch=(100, "500ms")` it gets a list of up to 100 deliveries, those that come within 500 ms after the first
        one; it may settle some of them, and returning or raising decides the others. It runs in a thread, or on the
        event loop if it is `async def`.
        """
        options = HandlerOptions(task, kind, batch, timeout=timeout, max_attempts=max_attempts)
        self._last.handlers.add(options.handler(call), task)
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
        given = self._last.handlers
        given.set_factory(factory, timeout=_timeout(timeout), max_attempts=_attempts(max_attempts))
        given.names.update(_names(tasks))
        return self._sized(threads, backlog)

    def middleware(self, *middleware: AnyMiddleware) -> Self:
        """Wrap every handler of every queue in `fn(delivery, call_next)`; the first one given is the outermost.

        `async def` middleware wraps `async def` handlers, and awaits the next call; other middleware wraps all others,
        and runs in this process. Handlers of batches are wrapped in `BatchMiddleware` only. BadSetting, from `build`,
        for a handler that none of the middleware can wrap.
        """
        check_middleware(middleware)
        self._middleware.extend(middleware)
        return self

    def max_messages(self, most: int) -> Self:
        """Handle at most `most` messages in total, claim no more, and drain when the last of them has ended.

        At-most-once messages that several queues claim beyond that at the same time are handled as well.
        """
        self._limits = replace(self._limits, messages=_count("max_messages", most, _ANY_NUMBER))
        return self

    def max_stuck(self, most: int) -> Self:
        """Stop, with HandlersStuck, when `most` handlers of any kind run on past their `timeout`, or all threads do."""
        self._limits = replace(self._limits, stuck=_count("max_stuck", most, _STUCK))
        return self

    def build(self) -> D:
        """Make a dispatcher, another one with each call; nothing runs yet.

        BadSetting without a queue, or for one without a handler.
        """
        if not self._wanted:
            message = "a dispatcher needs a queue: .queue(queue).handler(function), for example"
            raise BadSetting(message)
        clock = next(one.queue.clock if one.queue else one.directory.clock for one in self._wanted)  # type: ignore[union-attr]  # it has one or the other
        children = self._children(clock)
        pools = HandlerPools(self._number_of_threads(), clock, coroutines=self._coroutines, children=children)
        wrapping = HandlerWrapping(
            self._middleware, guard=ending_forked_children, children=children, cancel=pools.interrupt
        )
        for wanted in self._wanted:
            if wanted.handlers.empty:
                message = f"queue {wanted.name!r} has no handler: .handler(function), for example"
                raise BadSetting(message)
        registries = [(wanted, HandlerRegistry(wanted.handlers, wrapping)) for wanted in self._wanted]
        plan = DispatcherPlan(clock, pools, MessageQuota(self._limits.messages), wrapping, self._limits.stuck)
        return self._build(
            replace(
                plan,
                subscriptions=tuple(
                    plan.subscription(one.queue, registry, one.options) for one, registry in registries if one.queue
                ),
                patterns=tuple(
                    QueuePattern(one.pattern, one.directory, registry, one.options, one.limit_of)
                    for one, registry in registries
                    if one.directory
                ),
            )
        )

    def _children(self, clock: Clock) -> ProcessChildren | None:
        """The child processes, if they were asked for or a handler is for them."""
        wanted = any(Kind.PROCESS in one.handlers.kinds for one in self._wanted)
        if self._processes is None and not wanted:
            return None
        return ProcessChildren(clock, self._processes or ProcessOptions(available_processors()))

    def _number_of_threads(self) -> int:
        """The number that was given, or what the queues were given and 8 for those that were given nothing."""
        if self._threads is not None:
            return self._threads
        given = [one.threads for one in self._wanted]
        return sum(filter(None, given)) + (THREADS if None in given else 0)

    @property
    def _last(self) -> _Wanted:
        if not self._wanted:
            message = "name the queue first: .queue(queue).handler(function), for example"
            raise BadSetting(message)
        return self._wanted[-1]

    def _sized(self, threads: int | None, backlog: int | None) -> Self:
        wanted = self._last
        if threads is not None:
            wanted.threads = max(wanted.threads or 0, _count("threads", threads, _THREADS))
        if backlog is not None:
            wanted.backlog = max(wanted.backlog or 0, _count("backlog", backlog, _BACKLOGS))
        return self


def _timeout(timeout: Duration | None) -> int | None:
    """The timeout of a handler in microseconds; BadSetting if that leaves it no time."""
    limit = None if timeout is None else as_microseconds(timeout)
    refuse_no_time(limit)
    return limit


def _attempts(most: int | None) -> int | None:
    """Check a number of attempts."""
    return None if most is None else _count("max_attempts", most, _ATTEMPTS)


def _names(tasks: Iterable[str]) -> set[str]:
    """The names of several tasks; BadSetting for one text, whose characters would be names."""
    if isinstance(tasks, str):
        message = f"tasks={tasks!r} is one text: give several names, as tasks=[{tasks!r}]"
        raise BadSetting(message)
    return set(tasks)


def queue_options(weight: int, threads: int | None, backlog: int | None, limit: int | None) -> QueueOptions:
    """The options of a queue; BadSetting if one is out of bounds."""
    return QueueOptions(
        _count("weight", weight, _WEIGHTS),
        None if threads is None else _count("threads", threads, _THREADS),
        None if backlog is None else _count("backlog", backlog, _BACKLOGS),
        _limit(limit),
    )


def _limit(limit: int | None) -> int | None:
    """Check a limit of messages at the same time."""
    return None if limit is None else _count("limit", limit, _MESSAGES_AT_A_TIME)


def _count(name: str, value: object, allowed: range) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
        message = f"{name} is {value!r}: give a whole number from {allowed.start} to {allowed.stop - 1}"
        raise BadSetting(message)
    return value
