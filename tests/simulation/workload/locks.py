"""Simulations whose consumers claim under row locks: columns of the row, or those of a manager.

Both are the locks that users choose, driven by the same code as in a real process. What each of them answered is noted,
and which process bypassed which lock.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from astyqueue.errors import StoreError
from astyqueue.model.envelope import FORMAT
from astyqueue.protocol.claiming.claim import ClaimResult
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.coordination.row_lock import LockHandle, LockState, RowLock
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.steps import Client, Request, Steps
from astyqueue.queue.options import DEFAULT_OPTIONS, ClientOptions, with_lock
from astyqueue.queue.row_sharing.external_lock import ManagedLock
from astyqueue.queue.row_sharing.paced_doorbell import PacedDoorbell
from astyqueue.queue.row_sharing.row_locks import RowLocks
from astyqueue.queue.row_sharing.row_scheduler import RowScheduler
from astyqueue.store import Name
from astyqueue.stores import column_name_codec
from astyqueue.units import SECOND
from tests.simulation.cassandra.cluster import Cluster
from tests.simulation.cassandra.storage import DELETED, Cell, merged
from tests.simulation.engine.client import Pause, SimulatedProcess
from tests.simulation.engine.event_loop import EventLoop
from tests.simulation.engine.rng import SeededRandom
from tests.simulation.workload.lock_manager import Manager, ManagerClient

GUARD: Final = "guard"
COLUMNS: Final = "columns"
MANAGER: Final = "manager"
_DRAWN: Final = (GUARD, GUARD, GUARD, GUARD, COLUMNS, MANAGER)
_TIMEOUTS: Final = (SECOND // 10, SECOND, 5 * SECOND)
#: Processes that have no lock, in a simulation that has some.
_WITHOUT: Final = 0.15
#: When the rows are drained at the end, a locked one is tried for this much longer than usual.
_PATIENT: Final = 20 * SECOND
#: A busy row is tried again at most this many times within the timeout.
_TRIES: Final = 20
#: Where the holder's name begins in the value of a lock column.
_HOLDER: Final = len(FORMAT) + 8


@dataclass(slots=True)
class LockWait:
    """A row that a process found locked, in true time: `since` when, last `last_refused`, and claimed from at `until`.

    `known` is when the process first found it locked after it last acquired the row.
    """

    client_name: str
    row: str
    known: int
    since: int
    last_refused: int
    until: int | None = None
    bypassed: bool = False


@dataclass(frozen=True, slots=True)
class LeftLock:
    """A lock column that no process deleted; `visible` if reads still return it."""

    row: str
    holder: str
    visible: bool


@dataclass(slots=True)
class LockNotes:
    """What the locks of one simulation did. `fault_free` are the processes that ran after all faults had ended."""

    kind: str
    timeout: int
    waits: list[LockWait] = field(default_factory=list)
    left: list[LeftLock] = field(default_factory=list)
    unreleased: list[str] = field(default_factory=list)
    fault_free: set[str] = field(default_factory=set)


class Locks:
    """The row locks of one simulation: most have none but the guard."""

    def __init__(self, rng: SeededRandom, event_loop: EventLoop, steps: Counter[str], kind: str | None = None) -> None:
        """Locks of this kind, or of one that is drawn."""
        drawn = rng.choice(_DRAWN)
        self.notes = LockNotes(kind or drawn, rng.choice(_TIMEOUTS))
        self._manager = Manager(event_loop, rng.derive("manager"), steps)
        self._rng = rng
        self._event_loop = event_loop
        self._steps = steps
        self._faults_ended = False
        self.rows: set[str] = set()
        self._open: dict[tuple[str, str], LockWait] = {}
        self._known: dict[tuple[str, str], int] = {}

    @property
    def kind(self) -> str:
        """The kind of the locks."""
        return self.notes.kind

    def options(self, client: SimulatedProcess) -> ClientOptions:
        """The options of one process, with its lock; some processes have none, as long as there are faults."""
        without = self._rng.derive(f"lock of {client.name}").random() < _WITHOUT
        if self.kind == GUARD or (without and not self._faults_ended):
            return DEFAULT_OPTIONS
        if self._faults_ended:
            self.notes.fault_free.add(client.name)
        chosen = with_lock(DEFAULT_OPTIONS, COLUMNS, self.notes.timeout / SECOND)
        if self.kind == MANAGER:
            chosen = replace(
                chosen, lock=lambda _, clock: ManagedLock(clock, ManagerClient(client, self._manager).submit)
            )
        return replace(
            chosen, lock=lambda process, clock: _RecordingLock(chosen.lock(process, clock), client.name, self)
        )

    def rows_of(self, client: SimulatedProcess, process: Client, ring: Ring) -> LockedRows | None:
        """The rows of a consumer that claims under a lock; None if it has none."""
        client_options = self.options(client)
        return (
            None
            if client_options is DEFAULT_OPTIONS
            else LockedRows(client, process, client_options, _scheduler(client, ring), locks=self)
        )

    def answered(self, client_name: str, row: str, *, yes: bool) -> None:
        """Note a lock's answer: whether this process may go first in a row."""
        now, key = self._event_loop.now, (client_name, row)
        self._steps[f"{'acquire' if yes else 'refused'} ({self.kind})"] += 1
        if yes:
            self._known.pop(key, None)
            if self._end_wait(key):
                self._steps[f"acquire after waiting ({self.kind})"] += 1
            return
        if key not in self._open:
            self._open[key] = LockWait(client_name, row, self._known.setdefault(key, now), now, now)
            self.notes.waits.append(self._open[key])
        self._open[key].last_refused = now

    def claims_now(self, client_name: str, row: str) -> None:
        """Note that a process claims from a row now; if it was refused just before, it bypasses the lock."""
        if stop := self._end_wait((client_name, row)):
            self._steps[f"bypassed ({self.kind})"] += 1
            stop.bypassed = True

    def _end_wait(self, key: tuple[str, str]) -> LockWait | None:
        stop = self._open.pop(key, None)
        if stop:
            stop.until = self._event_loop.now
        return stop

    def end_faults(self) -> None:
        """Note that the faults have ended; what is locked stays locked."""
        self._faults_ended = True
        self._manager.recover()

    def record_unreleased(self, clients: Iterable[SimulatedProcess]) -> None:
        """Note which idle processes still have a lock that a manager granted them."""
        self.notes.unreleased += [
            f"{client.name} has nothing to do and has not released row {row}"
            for client in clients
            for (client_name, row), times in self._manager.granted.items()
            if client_name == client.name and times > 0 and client.up and not client.busy
        ]

    def record_left_columns(self, cluster: Cluster) -> LockNotes:
        """Note which lock columns are left at the end, and return all notes."""
        self.notes.unreleased += self._manager.violations
        for row in sorted(self.rows):
            found = merged([replica.row(row).cells for replica in cluster.replicas])
            columns = [
                (column_name_codec.decode(encoded), cell) for encoded, cell in found.items() if encoded[0] == Type.LOCK
            ]
            self.notes.left += [self._left(row, cell) for name, cell in columns if _is_left(name, cell)]
        return self.notes

    def _left(self, row: str, cell: Cell) -> LeftLock:
        return LeftLock(row, cell.value[_HOLDER:].decode(), cell.is_live(self._event_loop.now))


def _is_left(name: Name, cell: Cell) -> bool:
    return name.state in tuple(LockState) and cell.kind != DELETED


def _scheduler(client: SimulatedProcess, ring: Ring) -> RowScheduler:
    """The scheduler of a process that uses the queue."""
    scheduler = RowScheduler(ring, client.clock, client.name, PacedDoorbell(ring, client.clock))
    scheduler.begin_round(client.clock.now(), working=True)
    return scheduler


class _RecordingLock:
    """A row lock of one process that notes its answers."""

    def __init__(self, lock: RowLock, client_name: str, locks: Locks) -> None:
        self._lock = lock
        self._who = client_name
        self._locks = locks

    @property
    def leases(self) -> bool:
        return self._lock.leases

    def acquire(self, row: str) -> Steps[LockHandle | None]:
        self._locks.rows.add(row)
        handle = yield from self._lock.acquire(row)
        self._locks.answered(self._who, row, yes=handle is not None)
        return handle


#: Carries out a claim.
Claiming = Callable[[ClaimRequest], Steps[ClaimResult]]


class LockedRows:
    """The rows of a queue for a consumer that claims under a lock; it polls their headers as a real process does."""

    def __init__(
        self,
        client: SimulatedProcess,
        process: Client,
        client_options: ClientOptions,
        scheduler: RowScheduler,
        *,
        locks: Locks,
    ) -> None:
        """Begin without knowledge of any row; `snapshots` holds what is learned."""
        self.snapshots = {name: row.snapshot for name, row in scheduler.rows.items()}
        self._who = client.name
        self._clock = client.clock
        self._process = process
        self._locks = locks
        self._scheduler = scheduler
        self._locking = RowLocks(client_options.lock(process, client.clock), client_options.lock_timeout, client.clock)
        self._pause = client_options.lock_timeout // _TRIES
        self._patience = (0, 0, client_options.lock_timeout // 2, 3 * client_options.lock_timeout)

    def claim(
        self, row: str, request: ClaimRequest, claiming: Claiming, rng: SeededRandom | None
    ) -> Generator[Request | Pause, Any, ClaimResult]:
        """Claim under the lock of a row.

        A busy row is tried again for a time drawn from `rng`; without `rng`, until its lock must have ended.
        """
        patience = rng.choice(self._patience) if rng else self._patience[-1] + _PATIENT
        until = self._clock.monotonic() + patience
        with contextlib.suppress(StoreError):
            while (
                claimed := (yield from self._try(row, request, claiming))
            ) is None and self._clock.monotonic() < until:
                yield Pause(max(self._scheduler.rows[row].not_before - self._process.now(), self._pause))
            return claimed or ClaimResult()
        return ClaimResult()

    def _try(self, row: str, request: ClaimRequest, claiming: Claiming) -> Steps[ClaimResult | None]:
        """Read what other processes did in the rows, and claim from this one; None if it is busy."""
        came: list[ClaimResult] = []

        def take(handle: LockHandle) -> Steps[ClaimResult]:
            self._locks.claims_now(self._who, row)
            under = replace(request, leases=self._locking.leases, yields=False, unlocks=handle.columns)
            came.append((yield from claiming(under)))
            return came[-1]

        yield from self._scheduler.poller.read_headers(self._process.now())
        with self._scheduler.visiting(self._scheduler.rows[row]) as visit:
            if not (yield from self._locking.under(visit, take)):
                return None
            visit.finished(more=came[0].more, refused=came[0].refused)
        return came[0]
