"""The fault injector: injects faults one after the other, and records when each began and ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from astyqueue.testing import LocalCassandra
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.ring.fault_schedule import OF_WORKERS, Fault, Kind
from tests.ring.journal import CLOCK
from tests.ring.processes import Processes
from tests.support.proxy import CLIENTS, NodeProxies, Way

#: A frozen worker stands still for at least this much longer than its lease.
_LONGER: Final = 3 * SECOND


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that happened, with moments of the monotonic clock.

    It lasted from `began` to `ended`, and no other fault happened until `until`. `victim` is the journal of the process
    that it happened to, if it was one. `note` records what an operator did about it.
    """

    fault: Fault
    began: int
    ended: int
    until: int
    victim: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """What faults are injected into: the ring, its proxies and the processes that use it."""

    ring: LocalCassandra
    proxies: NodeProxies
    processes: Processes
    lease: int
    keyspace: str

    @property
    def from_clients(self) -> list[Way]:
        """The ways from clients to all nodes."""
        return [Way(CLIENTS, node) for node in self.ring.contact_points]

    def between(self, node: int, *, one_way: bool) -> list[Way]:
        """The ways from all other nodes to this one, and back unless `one_way`."""
        known = self.ring.contact_points[node - 1]
        others = [other for other in self.ring.contact_points if other != known]
        back = [] if one_way else [Way(known, other) for other in others]
        return [*(Way(other, known) for other in others), *back]


#: Injects a fault, and ends it when the block is left.
_Injector = Callable[[Environment, int], AbstractContextManager[None]]


@contextmanager
def _worker_killed(environment: Environment, victim: int) -> Iterator[None]:
    environment.processes.workers[victim - 1].freeze()
    environment.processes.workers[victim - 1].kill()
    yield
    environment.processes.replace_worker(victim - 1)


@contextmanager
def _producer_killed(environment: Environment, victim: int) -> Iterator[None]:
    environment.processes.producers[victim - 1].kill()
    yield
    environment.processes.replace_producer(victim - 1)


@contextmanager
def _worker_frozen(environment: Environment, victim: int) -> Iterator[None]:
    worker = environment.processes.workers[victim - 1]
    worker.freeze()
    yield
    worker.thaw()


@contextmanager
def _node_frozen(environment: Environment, victim: int) -> Iterator[None]:
    environment.ring.stop(victim)
    yield
    environment.ring.cont(victim)


@contextmanager
def _node_killed(environment: Environment, victim: int) -> Iterator[None]:
    environment.ring.kill(victim)
    yield
    environment.ring.restart(victim)


@contextmanager
def _node_wiped(environment: Environment, victim: int) -> Iterator[None]:
    environment.ring.wipe(victim)
    yield
    environment.ring.restart(victim)


def _held(ways: Callable[[Environment, int], list[Way]]) -> _Injector:
    """A fault during which nothing gets through on these ways."""

    @contextmanager
    def held(environment: Environment, victim: int) -> Iterator[None]:
        environment.proxies.hold(ways(environment, victim))
        yield
        environment.proxies.pass_on(ways(environment, victim))

    return held


@contextmanager
def _cut(environment: Environment, victim: int) -> Iterator[None]:
    del victim
    environment.proxies.cut(environment.from_clients)
    yield


_INJECTORS: Final[dict[Kind, _Injector]] = {
    Kind.WORKER_KILLED: _worker_killed,
    Kind.WORKER_FROZEN: _worker_frozen,
    Kind.PRODUCER_KILLED: _producer_killed,
    Kind.NODE_FROZEN: _node_frozen,
    Kind.NODE_KILLED: _node_killed,
    Kind.NODE_WIPED: _node_wiped,
    Kind.NODE_APART: _held(lambda environment, victim: environment.between(victim, one_way=False)),
    Kind.NODE_DEAF: _held(lambda environment, victim: environment.between(victim, one_way=True)),
    Kind.NODE_UNREACHED: _held(lambda environment, victim: [Way(CLIENTS, environment.ring.contact_points[victim - 1])]),
    Kind.CONNECTIONS_CUT: _cut,
}


def inject(environment: Environment, fault: Fault) -> InjectedFault:
    """Inject a fault, end it, and wait for its rest."""
    victim = _journal(environment, fault)
    lasts = max(fault.lasts, environment.lease + _LONGER) if fault.kind is Kind.WORKER_FROZEN else fault.lasts
    began = CLOCK.monotonic()
    with _INJECTORS[fault.kind](environment, fault.victim):
        if fault.kind in OF_WORKERS:
            began = CLOCK.monotonic()  # the worker was frozen only once it had a message in flight
        _wait(lasts)
    ended = CLOCK.monotonic()
    environment.ring.settle()
    note = _repaired(environment, fault) if fault.kind is Kind.NODE_WIPED else ""
    _wait(fault.rest)
    return InjectedFault(fault, int(began), int(ended), int(CLOCK.monotonic()), victim, note)


def _journal(environment: Environment, fault: Fault) -> str:
    """The journal of the process that a fault happens to; empty if it happens to the store."""
    if fault.kind in OF_WORKERS:
        return environment.processes.workers[fault.victim - 1].journal.name
    return environment.processes.producers[fault.victim - 1].journal.name if fault.kind is Kind.PRODUCER_KILLED else ""


def _repaired(environment: Environment, fault: Fault) -> str:
    """Repair a node as an operator does after a lost disk, and return a note about it.

    The node was rebuilt from one other copy of each range, which may have been behind.
    """
    began = CLOCK.monotonic()
    environment.ring.nodetool(fault.victim, "repair", "-full", environment.keyspace)
    return f"repaired in {(CLOCK.monotonic() - began) / SECOND:.0f} s"


def _wait(microseconds: int) -> None:
    Wakeup(CLOCK).wait(CLOCK.monotonic() + microseconds)
