"""A ring of three nodes under load and faults, one fault after the other, until every message was handled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from astyqueue import MessageQueue
from astyqueue.errors import StoreUnavailable
from astyqueue.model.views import DeadLetter
from astyqueue.stores.admin import administer
from astyqueue.testing import LocalCassandra
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.ring.fault_schedule import Fault
from tests.ring.journal import CLOCK
from tests.ring.nemesis import Environment, InjectedFault, inject
from tests.ring.processes import Process, Processes, shares
from tests.ring.producer import BATCH
from tests.ring.rate_windows import Window, Windows
from tests.support.proxy import NodeProxies

KEYSPACE: Final = "chaos"
QUEUE: Final = "targets"
_NODES: Final = 3
_STORAGE_PORT: Final = 7000
_CLIENT_PORT: Final = 9042
#: More attempts than there are faults: nothing becomes a dead letter but what is rejected.
_ATTEMPTS: Final = 100
_POLL: Final = SECOND // 5
#: Messages are counted once no worker got one for this long.
_IDLE: Final = 3 * SECOND
#: How often the progress of the run is reported.
_REPORTS_EVERY: Final = 10 * SECOND
#: The last late scan of a row comes ten minutes after the first scan; what only it finds still has to be handled.
_PATIENCE: Final = 11 * 60 * SECOND
_DEAD_AT_MOST: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The load and the faults of a run, and when it ends.

    It ends after at least `messages` messages and `minutes` minutes, when each fault has happened once or more.
    Producers send at most `per_second` messages a second, and stop while `ahead` messages are not handled. `lease` is
    in microseconds, `every` is the length of a time shard, and `window` is the number of seconds for which the rate and
    the nodes' work are reported separately (0: not at all).
    """

    messages: int
    per_second: int
    ahead: int
    lease: int
    faults: tuple[Fault, ...]
    minutes: float = 0
    every: str = "1m"
    window: float = 0


@dataclass(frozen=True, slots=True)
class RunResult:
    """What happened in a run, and what was left at its end."""

    began: int
    ended: int
    faults: list[InjectedFault]
    journals: list[Path]
    dead: list[DeadLetter]
    left: int
    ended_badly: dict[str, int]
    windows: list[Window] = field(default_factory=list)


Progress = Callable[[str], None]


@contextmanager
def ring_with_proxies() -> Iterator[tuple[LocalCassandra, NodeProxies]]:
    """Three nodes with proxies in front of them, and a keyspace with three copies."""
    with ExitStack() as held:
        proxies = held.enter_context(NodeProxies(_STORAGE_PORT, client_port=_CLIENT_PORT))
        ring = held.enter_context(LocalCassandra(_NODES, known_as=proxies.open))
        with administer(ring.url(KEYSPACE), clock=CLOCK, replication=str(_NODES)) as administration:
            administration.migrate()
        yield ring, proxies


def run_plan(plan: Plan, directory: Path, report_progress: Progress) -> RunResult:
    """Run the plan on a ring of its own, with the journals in the directory; CannotRunHere if there can be no ring."""
    began = CLOCK.monotonic()
    with ExitStack() as held:
        ring, proxies = held.enter_context(ring_with_proxies())
        report_progress(
            f"three nodes up after {(CLOCK.monotonic() - began) / SECOND:.0f} s: {', '.join(ring.contact_points)}"
        )
        builder = MessageQueue.builder().store(ring.url(KEYSPACE)).name(QUEUE).time_shards(30, every=plan.every)
        queue = held.enter_context(builder.lease(plan.lease / SECOND).max_attempts(_ATTEMPTS).build())
        processes = held.enter_context(Processes(ring.url(KEYSPACE), QUEUE, directory))
        conductor = held.enter_context(ThreadPoolExecutor(1, thread_name_prefix="conductor"))
        return _Run(plan, queue, Environment(ring, proxies, processes, plan.lease, KEYSPACE), report_progress).run(
            conductor
        )


class _Run:
    """One run of a plan."""

    def __init__(self, plan: Plan, queue: MessageQueue, environment: Environment, report_progress: Progress) -> None:
        self._plan = plan
        self._queue = queue
        self._stage = environment
        self._processes = environment.processes
        self._report = report_progress
        self._began = CLOCK.monotonic()
        self._next_report = self._began
        self._faults: list[InjectedFault] = []
        self._windows = Windows(environment, int(plan.window * SECOND))

    def run(self, conductor: ThreadPoolExecutor) -> RunResult:
        """Run the load and the faults to their end."""
        self._load(self._plan.faults[0].rest if self._plan.faults else 0)
        while not self._enough():
            self._load(SECOND)
            for fault in self._plan.faults:
                self._report(f"{self._now():6.1f} s  {fault}")
                self._faults.append(self._loaded(conductor.submit(inject, self._stage, fault)))
        left = self._drained()
        ended = CLOCK.monotonic()
        dead = self._queue.dead_letters(_DEAD_AT_MOST)
        badly = self._processes.finish()
        journals = [process_of.journal for process_of in self._processes.all]
        return RunResult(
            int(self._began), int(ended), self._faults, journals, dead, left, badly, self._windows.finish()
        )

    def _enough(self) -> bool:
        happened = self._faults or not self._plan.faults
        return (
            bool(happened)
            and self._processes.count("sent") >= self._plan.messages
            and self._now() >= self._plan.minutes * 60
        )

    def _now(self) -> float:
        return (CLOCK.monotonic() - self._began) / SECOND

    def _load(self, microseconds: int) -> None:
        until = CLOCK.monotonic() + microseconds
        while CLOCK.monotonic() < until:
            self._beat()

    def _loaded(self, fault: Future[InjectedFault]) -> InjectedFault:
        while not fault.done():
            self._beat()
        return fault.result()

    def _beat(self) -> None:
        """Wait a moment, and grant producers more messages if they are due."""
        self._rest()
        due = int(self._plan.per_second * self._now())
        count = self._processes.count
        under_way = count("sending") - count("refused") - count("unknown") + self._processes.owed()
        allowed = min(due, count("delivered") + self._plan.ahead) - under_way
        for producer, share in shares(allowed, self._processes.producers, least=BATCH):
            self._grant(producer, share)

    def _grant(self, producer: Process, count: int) -> None:
        """Grant messages to a producer; a grant to one that was killed has no effect."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            producer.grant(count)

    def _rest(self) -> None:
        Wakeup(CLOCK).wait(CLOCK.monotonic() + _POLL)
        self._processes.follow()
        self._windows.end_if_due()
        if CLOCK.monotonic() >= self._next_report:
            self._next_report = CLOCK.monotonic() + _REPORTS_EVERY
            details = " ".join(
                f"{word} {self._processes.count(word)}"
                for word in ("sent", "unknown", "refused", "delivered", "failed")
            )
            self._report(f"{self._now():6.1f} s  {details}")

    def _drained(self) -> int:
        """Wait until every message is handled; returns how many are left if that takes too long."""
        until = CLOCK.monotonic() + _PATIENCE
        while self._processes.owed() and CLOCK.monotonic() < until:
            self._rest()
        while (left := self._left()) and CLOCK.monotonic() < until:
            self._rest()
        return left

    def _left(self) -> int:
        """How many messages are left once the workers are idle; counting them earlier costs too much."""
        delivered = -1
        while delivered != (delivered := self._processes.count("delivered")):
            self._wait(_IDLE)
        with contextlib.suppress(StoreUnavailable):
            counts = self._queue.counts()
            return counts.total - counts.dead
        return self._processes.count("sent")

    def _wait(self, microseconds: int) -> None:
        until = CLOCK.monotonic() + microseconds
        while CLOCK.monotonic() < until:
            self._rest()
