"""Several processes on one store and one clock, one step after the other: who gets what, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from astyqueue.model.message import Message
from astyqueue.model.settings import Behaviour, Layout, Settings
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.steps import Answer, Commit, Read, Request, Steps, carry_out, run
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Waiter
from astyqueue.queue.options import DEFAULT_OPTIONS, ClientOptions
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.store import Store
from astyqueue.testing import TimeMachine
from astyqueue.units import BEGINNING, SECOND, MonotonicUs
from astyqueue.waiting import Rest

MILLISECOND = SECOND // 1_000
BEHAVIOUR = Behaviour()
NOTHING = Answer()


@dataclass
class Worker:
    """A process that takes what it can, up to `hands` at a time, and acks after `busy_for` microseconds.

    What it calls in the middle of its work (a lock manager) answers, and no time passes until then, unless it is not
    `answered`. A `paced` one makes one request at a time, and others go on in between. One that `listens` goes on when
    it is woken during a rest.
    """

    core: QueueRuntime
    store: Store
    hands: int = 10
    busy_for: int = 0
    answered: bool = True
    paced: bool = False
    listens: bool = False
    got: list[tuple[int, BaseDelivery]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    dead: bool = False
    rests: int = 0
    _in_hand: list[tuple[int, BaseDelivery]] = field(default_factory=list)
    _resting: MonotonicUs | None = BEGINNING
    _steps: Steps[None] | None = None
    _seat: Waiter | None = None
    _answer: Answer = NOTHING

    def start(self) -> None:
        self._seat = Waiter(lambda: self.hands - len(self._in_hand), self._accept)
        self._steps, self._answer = self.core.claimer.serve(self._seat, lambda: False), NOTHING

    def _accept(self, deliveries: list[BaseDelivery]) -> None:
        now = self.core.clock.now()
        self.got += [(now, delivery) for delivery in deliveries]
        self._in_hand += [(now + self.busy_for, delivery) for delivery in deliveries]

    def work(self) -> None:
        """Settle what is done, and go on until there is nothing to do."""
        now = self.core.clock.now()
        done = [delivery for until, delivery in self._in_hand if until <= now]
        self._in_hand = [(until, delivery) for until, delivery in self._in_hand if until > now]
        for delivery in done:
            self.core.claimer.settle_later(delivery, ACK)
        if done or self._resting is None or self._resting <= self.core.clock.monotonic():
            self._go_on()

    def _go_on(self) -> None:
        assert self._steps is not None
        if self.listens and self._seat is not None and self._seat.wakeup is not None:
            self._seat.wakeup.end_wait(self._wake)
        while not isinstance(request := self._answer.into(self._steps), Rest) or self._waits_for_an_answer(request):
            self.requests.append(request)
            self._answer = carry_out(request, self.store)
            if self.paced:
                self._resting = BEGINNING
                return
        self._answer, self._resting = NOTHING, request.until
        self.rests += 1
        if self.listens and not request.wakeup.call_when_set(self._wake):
            self._resting = BEGINNING

    def _wake(self) -> None:
        self._resting = BEGINNING

    def _waits_for_an_answer(self, rest: Rest) -> bool:
        return self.answered and self._seat is not None and rest.wakeup is not self._seat.wakeup

    def send(self, count: int, **options: object) -> None:
        """Send messages, and learn of it at once."""
        run(self.core.send_many([None] * count, Message(None, **options)), self.store)  # type: ignore[arg-type]  # a message's options
        self._resting = None

    def count(self, kind: type[Read | Commit]) -> int:
        """How many requests of a kind it made."""
        return sum(isinstance(request, kind) for request in self.requests)


class Crew:
    """Workers that share a queue."""

    def __init__(self, store: Store, clock: TimeMachine, layout: Layout, behaviour: Behaviour = BEHAVIOUR) -> None:
        self.clock = clock
        self.workers: list[Worker] = []
        self._store = store
        self._settings = Settings(name="mail", layout=layout, behaviour=behaviour)

    def join(
        self,
        *,
        client_options: ClientOptions = DEFAULT_OPTIONS,
        clock: TimeMachine | None = None,
        store: Store | None = None,
        **options: object,
    ) -> Worker:
        """One more process, perhaps with a clock and a way to the store of its own; it is at work at once."""
        core = QueueRuntime(self._settings, clock or self.clock, (), client_options=client_options)
        worker = Worker(core, store or self._store, **options)  # type: ignore[arg-type]  # a worker's options
        self.workers.append(worker)
        worker.start()
        worker.work()
        return worker

    def outsider(self) -> Worker:
        """A process that only sends."""
        return Worker(QueueRuntime(self._settings, self.clock, ()), self._store)

    def pass_time(
        self, microseconds: int, *, each: Callable[[], None] = lambda: None, step: int = 5 * MILLISECOND
    ) -> None:
        """Let time pass, and let all threads work meanwhile; `each` is done at every step."""
        for _ in range(microseconds // step):
            self.clock.advance(step / SECOND)
            each()
            self._work()

    def _work(self) -> None:
        for worker in self.workers:
            if not worker.dead:
                worker.work()
