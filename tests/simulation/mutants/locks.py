"""Mistakes about row locks: a lock that is trusted, one that stops a row for ever, and one that nobody lets go of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from unittest import mock

from astyqueue.protocol.coordination.column_lock import ColumnLock
from astyqueue.protocol.coordination.row_lock import LockHandle
from astyqueue.protocol.layout.columns import HEADER, State, Type, decode_header
from astyqueue.protocol.steps import Commit, Steps
from astyqueue.queue.rows import managed_lock, row_locks
from astyqueue.queue.rows.row_locks import RowLocks
from astyqueue.queue.rows.row_scheduler import RowVisit
from astyqueue.store import Name, Put
from tests.simulation.cassandra.cluster import Hear
from tests.simulation.mutants.mutant import Asked, Forward, Patches, Planted, without

_UNGUARDED: Final = without(Type.LOCK)


def _trusting(asked: Asked, forward: Forward, hear: Hear) -> None:
    """Claims under a lock leave no name in the header; they go without an expectation of it."""
    if isinstance(asked, Commit) and _claims_under_a_lock(asked):
        _UNGUARDED(asked, forward, hear)
    else:
        forward(asked, hear)


def _claims_under_a_lock(commit: Commit) -> bool:
    puts = commit.batch.puts
    takes = any(put.name.type == Type.TIMER and put.name.state == State.LEASED for put in puts)
    return takes and any(put.name == HEADER and not decode_header("", put.value).owner for put in puts)


def _going_round(decide: Callable[[bool], bool]) -> Callable[[], list[Patches]]:
    honest = RowLocks._bypasses  # noqa: SLF001 - the mistake is made there

    def careless(of: RowLocks, visit: RowVisit) -> bool:
        return decide(honest(of, visit))

    return lambda: [mock.patch.object(RowLocks, "_bypasses", careless)]


def _lasting() -> list[Patches]:
    honest = ColumnLock._put  # noqa: SLF001 - the mistake is made there

    def careless(of: ColumnLock, name: Name) -> Put:
        return honest(of, name)._replace(ttl=None)

    return [mock.patch.object(ColumnLock, "_put", careless)]


def _keeping(row: str, grip: LockHandle) -> Steps[None]:  # noqa: ARG001 - that is the mistake
    yield from ()


def _keeping_what_comes_late() -> list[Patches]:
    asked = managed_lock._Acquire  # noqa: SLF001 - the mistake is made there
    honest = asked._answered  # noqa: SLF001

    def careless(one: managed_lock._Acquire, *, yes: bool) -> bool:
        honest(one, yes=yes)
        return True

    return [mock.patch.object(asked, "_answered", careless)]


LOCKS: Final = (
    Planted("column locks trusted in place of the guard", 200, meddling=_trusting, lock="columns"),
    Planted("a lock manager trusted in place of the guard", 200, meddling=_trusting, lock="manager"),
    Planted("the lock of a dead process is never bypassed", 200, _going_round(lambda _: False), lock="manager"),
    Planted("locks are bypassed at once", 60, _going_round(lambda _: True), lock="manager"),
    Planted("lock columns last", 200, _lasting, lock="columns"),
    Planted(
        "rows with nothing to claim stay locked",
        60,
        lambda: [mock.patch.object(row_locks, "_free", _keeping)],
        lock="columns",
    ),
    Planted("a grant that comes too late is kept", 400, _keeping_what_comes_late, lock="manager"),
)
