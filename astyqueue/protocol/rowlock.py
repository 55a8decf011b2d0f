"""Who goes first in a row: a lock that decides order and cost, never safety.

Every commit that claims is guarded by the header's bytes, whatever lock there is and whatever it says. So a lock that says
yes to everybody costs refused commits, one that says no delays, and processes with different locks may share a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from astyqueue.protocol.steps import Steps
from astyqueue.store import Name


def _nothing() -> None:
    """Nobody needs to hear that the row is free again."""


@dataclass(frozen=True, slots=True)
class Grip:
    """A row that is ours to claim from. Letting go is to delete `columns`, in the claim's own commit, and to call `let_go`."""

    columns: tuple[Name, ...] = ()
    let_go: Callable[[], None] = _nothing


class RowLock(Protocol):
    """The lock of the rows of one queue in one process."""

    @property
    def leases(self) -> bool:
        """Whether the owner in a row's header says who works there; otherwise claims leave that blank."""
        ...

    def acquire(self, row: str) -> Steps[Grip | None]:
        """Take a row, or None at once if somebody else has it."""
        ...


class VersionGuard:
    """No lock but the guard of every commit, and the row lease, which costs no request. It never says no."""

    leases = True

    def acquire(self, row: str) -> Steps[Grip | None]:
        """Go ahead."""
        del row
        yield from ()
        return Grip()
