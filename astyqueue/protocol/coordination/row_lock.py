"""Row locks: which process claims from a row first. A lock decides order and cost, never safety.

Every claim's commit expects the header's bytes, with or without a lock. So a lock that every process acquires costs
refused commits, one that none acquires costs delay, and processes with different locks may share a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from astyqueue.protocol.steps import Steps
from astyqueue.store import Name


def _nothing() -> None:
    """Do nothing: the default of `let_go`."""


@dataclass(frozen=True, slots=True)
class LockHandle:
    """A lock that this process has. To release it, delete `columns` in the claim's commit and call `let_go`."""

    columns: tuple[Name, ...] = ()
    let_go: Callable[[], None] = _nothing


class RowLock(Protocol):
    """The lock of the rows of one queue in one process."""

    @property
    def leases(self) -> bool:
        """Whether the owner in a row's header names the process that works there; otherwise claims leave it empty."""
        ...

    def acquire(self, row: str) -> Steps[LockHandle | None]:
        """Lock a row; None, without waiting, if another process has it."""
        ...


class VersionGuard:
    """No lock: only the header that every commit expects, and the row lease, which needs no request of its own."""

    leases = True

    def acquire(self, row: str) -> Steps[LockHandle | None]:
        """Always succeed, without a request."""
        del row
        yield from ()
        return LockHandle()
