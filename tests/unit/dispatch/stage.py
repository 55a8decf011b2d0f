"""Where dispatchers are tried: a queue whose claims and outcomes can be waited for."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable

from astyqueue.clock import Clock
from astyqueue.dispatch.builder import DispatcherBuilder
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.dispatch.handlers.handler import AsyncCall, Call
from astyqueue.errors import StoreUnavailable
from astyqueue.observe.observers import Observer
from astyqueue.protocol.steps import Commit, Request
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Waiter
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.hooks import Hook
from astyqueue.queue.metrics import QueueStats
from astyqueue.queue.queue import MessageQueue
from astyqueue.store import Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, Recording, TimeMachine

DEADLINE = 10


class Breaking(Faulty):
    """A store that cannot be reached while it is broken."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.broken = False
        self.refused = threading.Semaphore(0)

    def perform(self, request: Request) -> object:
        if self.broken:
            if threading.current_thread().name != "astyqueue:presence":  # its reports come at moments of their own
                self.refused.release()
            message = "the store is broken on purpose"
            raise StoreUnavailable(message)
        return super().perform(request)

    def when_refused(self) -> None:
        assert self.refused.acquire(timeout=DEADLINE)


class Heard(Hook):
    """Every outcome that was asked for, and every one that is in the store, by the body of its message."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.asked: list[tuple[object, str]] = []
        self.outcomes: list[tuple[object, str]] = []

    def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        with self.changed:
            self.asked.append((delivery.body, outcome))
            self.changed.notify_all()

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        with self.changed:
            self.outcomes.append((delivery.body, outcome))
            self.changed.notify_all()

    def count(self, outcome: str) -> int:
        return sum(each == outcome for _, each in self.outcomes)


class CountedOut(QueueStats):
    """Counters that signal their changes."""

    changed: threading.Condition

    def __init__(self, changed: threading.Condition) -> None:
        object.__setattr__(self, "changed", changed)
        super().__init__()

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        with self.changed:
            self.changed.notify_all()


class Stage:
    """A queue, a clock, and what can be waited for."""

    def __init__(
        self,
        clock: Clock,
        store: Store,
        *,
        hooks: Iterable[Hook] = (),
        observers: Iterable[Observer] = (),
        **options: object,
    ) -> None:
        self.heard = Heard()
        self.store = Recording(store)
        builder = MessageQueue.builder().store(self.store).clock(clock).name("emails")
        builder.hook(*hooks, self.heard).observer(*observers)
        self.queue = builder.options(**options).build()
        self.stats = CountedOut(self.heard.changed)
        claimer = self.queue.core.claimer
        claimer.stats = claimer._outcomes._recorder.stats = self.stats  # noqa: SLF001 - one set of counters, as before
        self.started: list[Dispatcher] = []

    def start(self, handler: Call | AsyncCall, **options: object) -> Dispatcher:
        builder = Dispatcher.builder().queue(self.queue).handler(handler, **options)  # type: ignore[arg-type]  # as the test says
        return self.begin(builder.build())

    def begin(self, dispatcher: Dispatcher) -> Dispatcher:
        self.started.append(dispatcher)
        return dispatcher.start()

    def when(self, true: Callable[[], bool]) -> None:
        """Wait until this is true of what was claimed and settled."""
        with self.heard.changed:
            assert self.heard.changed.wait_for(true, DEADLINE), (self.stats, self.heard.outcomes[-5:])

    def when_settled(self, count: int) -> Counter[str]:
        """Wait until there were this many outcomes; returns how many there are of each."""
        self.when(lambda: len(self.heard.outcomes) >= count)
        return Counter(outcome for _, outcome in self.heard.outcomes)

    def once(self, handler: Call, **options: object) -> None:
        """Have one message handled and its outcome recorded."""
        handled = threading.Event()

        def handle(delivery: Delivery) -> object:
            handled.set()
            return handler(delivery)

        dispatcher = self.start(handle, threads=1, **options)
        assert handled.wait(DEADLINE)
        dispatcher.drain(None)

    def look_around(self) -> None:
        """Let the claiming thread go once through everything there is to do."""
        claimer = self.queue.core.claimer
        self.queue.run(
            claimer.take(Waiter(lambda: 0, lambda _: None), lambda: False, until=self.queue.clock.monotonic())
        )

    @property
    def commits(self) -> int:
        return sum(isinstance(request, Commit) for request in tuple(self.store.requests))


class Gate:
    """A handler that signals that it was entered and waits to be let go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.bodies: list[object] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, delivery: Delivery) -> None:
        self.bodies.append(delivery.body)
        self.hold(delivery)

    def hold(self, _: object) -> None:
        """The same for what is no single delivery."""
        self.threads.add(threading.current_thread())
        self.entered.release()
        assert self.open.wait(DEADLINE)

    def when_entered(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=DEADLINE)


class Order:
    """A handler that notes the queue of each message, and signals each."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self.seen = threading.Semaphore(0)

    def of(self, name: str) -> Call:
        def handle(_: Delivery) -> None:
            self.note(name)

        return handle

    def note(self, name: str) -> None:
        self.queues.append(name)
        self.seen.release()

    def first(self, count: int) -> list[str]:
        """The queues of the first messages, once that number has been handled."""
        for _ in range(count):
            assert self.seen.acquire(timeout=DEADLINE)
        return self.queues[:count]


class Crew:
    """Queues in one store, and dispatchers that are stopped at the end."""

    def __init__(self, clock: TimeMachine) -> None:
        self.clock = clock
        self.store: Store = MemoryStore(clock)
        self.started: list[Dispatcher] = []

    def queue(self, name: str, *bodies: object, **options: object) -> MessageQueue:
        builder = MessageQueue.builder().store(self.store).clock(self.clock).name(name).options(**options)
        queue = builder.build()
        if bodies:
            queue.send_many(bodies)
        return queue

    def begin(self, builder: DispatcherBuilder[Dispatcher]) -> Dispatcher:
        self.started.append(builder.build())
        return self.started[-1].start()
