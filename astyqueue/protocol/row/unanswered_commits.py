"""Commits without an answer that had changed nothing when they were read back, and may yet be carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from astyqueue.errors import OutcomeUnknown
from astyqueue.protocol.layout.columns import HEADER, Header
from astyqueue.protocol.row.snapshot import RowSnapshot, load_header
from astyqueue.protocol.steps import Steps, read_column

P = TypeVar("P")


class UnansweredCommits(Generic[P]):
    """Commits of one operation without an answer, which had changed nothing when they were read back.

    They expect the same header. Without it the store refuses them, so at most one of them is ever carried out. `error`
    is the error of the last; `late`: the plan of the one that turned out to be carried out.
    """

    __slots__ = ("_expects", "_tried", "error", "late")

    def __init__(self) -> None:
        """Start without commits."""
        self.error: OutcomeUnknown | None = None
        self.late: P | None = None
        self._expects: bytes | None = None
        self._tried: list[tuple[Header, P]] = []

    @property
    def plans(self) -> list[P]:
        """The plan of each."""
        return [plan for _, plan in self._tried]

    def read_back(
        self,
        row: str,
        plan: P,
        error: OutcomeUnknown,
        *,
        expects: bytes | None,
        header: Header,
        traces: Callable[[P], Steps[bool]],
    ) -> Steps[bool]:
        """Whether a commit without an answer was applied; it `expects` one header and writes another.

        If the row still has the first, it may be carried out later, and is recorded. If the row has the header of one
        recorded before, that one was applied: `carried_out` finds it. Otherwise the traces of the plan show it.
        """
        column = yield from read_column(row, HEADER, exact=True)
        present = column.value if column else None
        if present == expects:
            self._expects, self.error = expects, error
            self._tried.append((header, plan))
            return False
        if present == header.encode():
            return True
        if any(tried.encode() == present for tried, _ in self._tried):
            return False
        return (yield from traces(plan))

    def clear(self) -> None:
        """Forget them: another commit was applied, so none of them will be."""
        self.error = None
        self._tried = []

    def carried_out(self, present: bytes | None, traces: Callable[[P], Steps[bool]]) -> Steps[tuple[Header, P] | None]:
        """The header and plan of the commit that was carried out since; None if none was so far.

        The present header shows it, or else, if other processes have committed since, the traces of a plan.
        """
        if not self._tried or present == self._expects:
            return None
        late = [(header, plan) for header, plan in self._tried if header.encode() == present]
        if not late:
            for header, plan in self._tried:
                if (yield from traces(plan)):
                    late.append((header, plan))
                    break
        self.clear()
        if not late:
            return None
        self.late = late[0][1]
        return late[0]

    def carried_out_since(
        self, snapshot: RowSnapshot, now: int, traces: Callable[[P], Steps[bool]]
    ) -> Steps[tuple[Header, P] | None]:
        """As `carried_out`, by the header as it is now: a commit may be carried out while the next one is planned.

        Without a commit that has no answer, nothing is read.
        """
        if self.error is None:
            return None
        snapshot.forget()
        header = yield from load_header(snapshot, now)
        return (yield from self.carried_out(header.value, traces))
