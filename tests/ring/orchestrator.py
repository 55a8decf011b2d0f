"""Whoever makes the faults happen, one after the other, and notes when each began and was over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from astyqueue.testing import LocalCassandra
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.ring.journal import CLOCK
from tests.ring.operators import People
from tests.ring.proxies import CLIENTS, Doors, Way
from tests.ring.schedule import OF_WORKERS, Fault, Kind

#: So much longer than its lease a worker stands still at least.
_BEYOND: Final = 3 * SECOND


@dataclass(frozen=True, slots=True)
class Befallen:
    """A fault that happened, by the monotonic clock: from when to when it lasted, and until when nothing else happened.

    `victim` is the journal of a process that it happened to. `note` is what an operator did about it.
    """

    fault: Fault
    began: int
    ended: int
    until: int
    victim: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """All that faults can happen to."""

    ring: LocalCassandra
    doors: Doors
    people: People
    lease: int
    keyspace: str

    @property
    def everybody(self) -> list[Way]:
        """From clients to all nodes."""
        return [Way(CLIENTS, node) for node in self.ring.contact_points]

    def between(self, node: int, *, one_way: bool) -> list[Way]:
        """From all other nodes to this one, and back unless it is one way."""
        known = self.ring.contact_points[node - 1]
        others = [other for other in self.ring.contact_points if other != known]
        back = [] if one_way else [Way(known, other) for other in others]
        return [*(Way(other, known) for other in others), *back]


#: Makes a fault happen to a victim, until the block is left.
_Act = Callable[[Stage, int], AbstractContextManager[None]]


@contextmanager
def _worker_killed(stage: Stage, victim: int) -> Iterator[None]:
    stage.people.workers[victim - 1].freeze()
    stage.people.workers[victim - 1].kill()
    yield
    stage.people.replace_worker(victim - 1)


@contextmanager
def _producer_killed(stage: Stage, victim: int) -> Iterator[None]:
    stage.people.producers[victim - 1].kill()
    yield
    stage.people.replace_producer(victim - 1)


@contextmanager
def _worker_frozen(stage: Stage, victim: int) -> Iterator[None]:
    worker = stage.people.workers[victim - 1]
    worker.freeze()
    yield
    worker.thaw()


@contextmanager
def _node_frozen(stage: Stage, victim: int) -> Iterator[None]:
    stage.ring.stop(victim)
    yield
    stage.ring.cont(victim)


@contextmanager
def _node_killed(stage: Stage, victim: int) -> Iterator[None]:
    stage.ring.kill(victim)
    yield
    stage.ring.restart(victim)


@contextmanager
def _node_wiped(stage: Stage, victim: int) -> Iterator[None]:
    stage.ring.wipe(victim)
    yield
    stage.ring.restart(victim)


def _held(ways: Callable[[Stage, int], list[Way]]) -> _Act:
    """A fault in which nothing gets through on these ways."""

    @contextmanager
    def held(stage: Stage, victim: int) -> Iterator[None]:
        stage.doors.hold(ways(stage, victim))
        yield
        stage.doors.pass_on(ways(stage, victim))

    return held


@contextmanager
def _cut(stage: Stage, victim: int) -> Iterator[None]:
    del victim
    stage.doors.cut(stage.everybody)
    yield


_ACTS: Final[dict[Kind, _Act]] = {
    Kind.WORKER_KILLED: _worker_killed,
    Kind.WORKER_FROZEN: _worker_frozen,
    Kind.PRODUCER_KILLED: _producer_killed,
    Kind.NODE_FROZEN: _node_frozen,
    Kind.NODE_KILLED: _node_killed,
    Kind.NODE_WIPED: _node_wiped,
    Kind.NODE_APART: _held(lambda stage, victim: stage.between(victim, one_way=False)),
    Kind.NODE_DEAF: _held(lambda stage, victim: stage.between(victim, one_way=True)),
    Kind.NODE_UNREACHED: _held(lambda stage, victim: [Way(CLIENTS, stage.ring.contact_points[victim - 1])]),
    Kind.CONNECTIONS_CUT: _cut,
}


def befall(stage: Stage, fault: Fault) -> Befallen:
    """Let a fault happen, undo it, and let all rest for a while."""
    victim = _journal(stage, fault)
    lasts = max(fault.lasts, stage.lease + _BEYOND) if fault.kind is Kind.WORKER_FROZEN else fault.lasts
    began = CLOCK.monotonic()
    with _ACTS[fault.kind](stage, fault.victim):
        began = (
            CLOCK.monotonic() if fault.kind in OF_WORKERS else began
        )  # it took a moment to find one with its hands full
        _wait(lasts)
    ended = CLOCK.monotonic()
    stage.ring.settle()
    note = _repaired(stage, fault) if fault.kind is Kind.NODE_WIPED else ""
    _wait(fault.rest)
    return Befallen(fault, began, ended, CLOCK.monotonic(), victim, note)


def _journal(stage: Stage, fault: Fault) -> str:
    """The journal of the process that a fault happens to, if it is one."""
    if fault.kind in OF_WORKERS:
        return stage.people.workers[fault.victim - 1].journal.name
    return stage.people.producers[fault.victim - 1].journal.name if fault.kind is Kind.PRODUCER_KILLED else ""


def _repaired(stage: Stage, fault: Fault) -> str:
    """What an operator does after a lost disk: the node took each of its data from one other copy, which may have been behind."""
    began = CLOCK.monotonic()
    stage.ring.nodetool(fault.victim, "repair", "-full", stage.keyspace)
    return f"repaired in {(CLOCK.monotonic() - began) / SECOND:.0f} s"


def _wait(microseconds: int) -> None:
    Wakeup(CLOCK).wait(CLOCK.monotonic() + microseconds)
