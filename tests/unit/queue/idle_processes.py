"""Processes with idle queues, on a store that loses or delays notices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from astyqueue.errors import StoreUnavailable
from astyqueue.model.settings import Layout, Settings
from astyqueue.protocol.steps import Commit, Read, Request, Send
from astyqueue.queue.row_sharing.idle_queues import ActivityWatch
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.store import Batch, Store
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Faulty
from astyqueue.units import SECOND
from tests.unit.queue.stepped_workers import MILLISECOND, Worker

#: What the documentation states.
IDLE_LATENCY = 150 * MILLISECOND
#: The pause between two turns where none is to come.
FOREVER = 365 * 24 * 3_600 * SECOND
ONE_ROW = Layout()
RING = Layout(time_shards=30, concurrency_shards=8)


class Lossy(Faulty):
    """Loses or delays what is written to the activity log, or fails to read it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.loses = False
        self.keeps = False
        self.unreadable = False
        self.kept: list[Batch] = []
        self.notices = self.log_reads = 0

    def deliver(self) -> None:
        """Write the notices that were kept back."""
        for batch in self.kept:
            self._store.send(batch)
        self.kept.clear()

    def perform(self, request: Request) -> object:
        if isinstance(request, Read) and any(map(_is_log, (one.row for one in request.wanted))):
            self.log_reads += 1
            if self.unreadable:
                raise StoreUnavailable(request.wanted[0].row)
        if isinstance(request, Send) and (notices := [one for one in request.batches if _is_log(one.row)]):
            self.notices += len(notices)
            self.kept += notices if self.keeps else []
            others = [one for one in request.batches if not _is_log(one.row)]
            if self.loses or self.keeps:
                return super().perform(Send(others[0], tuple(others[1:]))) if others else None
        return super().perform(request)


def _is_log(row: str) -> bool:
    return row.startswith(":activity:")


class ShiftedClock(TimeMachine):
    """The clock of another machine."""

    def __init__(self, clock: TimeMachine, ahead: int) -> None:
        super().__init__(clock.now() + ahead)


@dataclass
class Process:
    """A process with several queues, one step after the other."""

    clock: TimeMachine
    store: Store
    names: Iterable[str] = ("mail",)
    layout: Layout = ONE_ROW
    paced: bool = False
    watch: ActivityWatch = field(init=False)
    queues: dict[str, Worker] = field(init=False)

    def __post_init__(self) -> None:
        self.watch = ActivityWatch(self.clock)
        self.queues = {}
        for name in self.names:
            self.consume(name)
        self.work()

    def consume(self, name: str) -> None:
        """Begin to consume one more queue."""
        runtime = QueueRuntime(Settings(name=name, layout=self.layout), self.clock, (), watch=self.watch)
        self.queues[name] = Worker(runtime, self.store, hands=1_000, listens=True, paced=self.paced)
        self.queues[name].start()

    @property
    def mail(self) -> Worker:
        return self.queues["mail"]

    def work(self) -> None:
        for worker in self.queues.values():
            if not worker.dead:
                worker.work()

    def pass_time(
        self, microseconds: int, step: int = 5 * MILLISECOND, each: Callable[[], None] = lambda: None
    ) -> None:
        for _ in range(microseconds // step):
            self.clock.advance(step / SECOND)
            each()
            self.work()

    def become_idle(self) -> None:
        """Let time pass until nothing has happened for more than a minute."""
        self.pass_time(70 * SECOND, SECOND // 8)
        assert all(worker.core.scheduler.activity.idle for worker in self.queues.values())

    def slices(self) -> int:
        """How many queries it made since the last call."""
        made = [request for worker in self.queues.values() for request in worker.requests]
        for worker in self.queues.values():
            worker.requests.clear()
        return sum(
            len(request.wanted)
            if isinstance(request, Read)
            else len(request.batches)
            if isinstance(request, Send)
            else isinstance(request, Commit)
            for request in made
        )


def sender(store: Store, clock: TimeMachine, name: str = "mail", layout: Layout = ONE_ROW) -> Worker:
    """A process that only sends."""
    return Worker(QueueRuntime(Settings(name=name, layout=layout), clock, ()), store)


def delay_of(process: Process, name: str, send: Callable[[], None], within: int = 10 * SECOND) -> int:
    """How long it takes until a message that is sent now is delivered."""
    worker = process.queues[name]
    before, sent = len(worker.got), process.clock.now()
    send()
    for _ in range(within // (5 * MILLISECOND)):
        process.pass_time(5 * MILLISECOND)
        if len(worker.got) > before:
            return worker.got[-1][0] - sent
    return within
