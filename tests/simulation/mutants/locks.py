"""Mutants of row locks: a lock that is trusted, one that blocks a row for ever, and one that is never released."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from unittest import mock

from astyqueue.protocol.coordination.row_lock import ColumnLock, LockHandle
from astyqueue.protocol.layout.columns import HEADER, State, Type, decode_header
from astyqueue.protocol.steps import Commit, Steps
from astyqueue.queue.row_sharing import external_lock as managed_lock
from astyqueue.queue.row_sharing import row_locks
from astyqueue.queue.row_sharing.row_locks import RowLocks
from astyqueue.queue.row_sharing.row_scheduler import RowVisit
from astyqueue.store import Name, Put
from tests.simulation.cassandra.cluster import OnAnswer
from tests.simulation.mutants.mutant import Forward, Mutant, Patches, StoreRequest, without

_UNGUARDED: Final = without(Type.LOCK)


def _trusting(request: StoreRequest, forward: Forward, on_answer: OnAnswer) -> None:
    """Claims under a lock leave no name in the header; they go without an expectation of it."""
    if isinstance(request, Commit) and _claims_under_a_lock(request):
        _UNGUARDED(request, forward, on_answer)
    else:
        forward(request, on_answer)


def _claims_under_a_lock(commit: Commit) -> bool:
    puts = commit.batch.puts
    takes = any(put.name.type == Type.TIMER and put.name.state == State.LEASED for put in puts)
    return takes and any(put.name == HEADER and not decode_header("", put.value).owner for put in puts)


def _going_round(decide: Callable[[bool], bool]) -> Callable[[], list[Patches]]:
    original = RowLocks._bypasses  # noqa: SLF001 - the mistake is made there

    def mutated(of: RowLocks, visit: RowVisit) -> bool:
        return decide(original(of, visit))

    return lambda: [mock.patch.object(RowLocks, "_bypasses", mutated)]


def _lasting() -> list[Patches]:
    original = ColumnLock._put  # noqa: SLF001 - the mistake is made there

    def mutated(of: ColumnLock, name: Name) -> Put:
        return original(of, name)._replace(ttl=None)

    return [mock.patch.object(ColumnLock, "_put", mutated)]


def _keeping(row: str, handle: LockHandle) -> Steps[None]:  # noqa: ARG001 - that is the mistake
    yield from ()


def _keeping_what_comes_late() -> list[Patches]:
    request = managed_lock._Acquire  # noqa: SLF001 - the mistake is made there
    original = request._answered  # noqa: SLF001

    def mutated(one: managed_lock._Acquire, *, yes: bool) -> bool:
        original(one, yes=yes)
        return True

    return [mock.patch.object(request, "_answered", mutated)]


LOCK_MUTANTS: Final = (
    Mutant("column locks trusted in place of the guard", 200, interceptor=_trusting, lock="columns"),
    Mutant("a lock manager trusted in place of the guard", 200, interceptor=_trusting, lock="manager"),
    Mutant("the lock of a dead process is never bypassed", 200, _going_round(lambda _: False), lock="manager"),
    Mutant("locks are bypassed at once", 60, _going_round(lambda _: True), lock="manager"),
    Mutant("lock columns last", 200, _lasting, lock="columns"),
    Mutant(
        "rows with nothing to claim stay locked",
        60,
        lambda: [mock.patch.object(row_locks, "_free", _keeping)],
        lock="columns",
    ),
    Mutant("a grant that comes too late is kept", 400, _keeping_what_comes_late, lock="manager"),
)
