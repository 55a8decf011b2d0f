"""A commit of one row in the making."""

from __future__ import annotations

from astyqueue.protocol.columns import HEADER, Header, Timer
from astyqueue.protocol.steps import Steps, commit
from astyqueue.store import Batch, Expectation, Name, Outcome, Put


class Change:
    """Puts, deletes and expectations that go into one commit."""

    __slots__ = ("_deletes", "_expects", "_puts", "row")

    def __init__(self, row: str) -> None:
        """Begin an empty change of this row."""
        self.row = row
        self._puts: list[Put] = []
        self._deletes: list[Name] = []
        self._expects: list[Expectation] = []

    def __len__(self) -> int:
        """How many columns it changes."""
        return len(self._puts) + len(self._deletes)

    def put(self, name: Name, value: bytes) -> None:
        """Write a column."""
        self._puts.append(Put(name, value))

    def put_all(self, *puts: Put) -> None:
        """Write columns, some of which may go by themselves after a while."""
        self._puts.extend(puts)

    def put_timer(self, timer: Timer) -> None:
        """Write a timer, whose value is encoded already."""
        self._puts.append(Put(timer.name, timer.value))

    def delete(self, *names: Name) -> None:
        """Delete columns."""
        self._deletes.extend(names)

    def expect(self, name: Name, value: bytes | None) -> None:
        """Apply only if the column has this value, or is absent."""
        self._expects.append(Expectation(name, value))

    def replace(self, timer: Timer, successor: Timer | None) -> None:
        """Put `successor` in the place of a timer that must be as it was read; without one, delete it."""
        self.expect(timer.name, timer.value)
        if successor is None:
            self._deletes.append(timer.name)
            return
        if successor.name != timer.name:
            self._deletes.append(timer.name)
        self._puts.append(Put(successor.name, successor.value))

    def raise_header(self, known: bytes | None, header: Header) -> None:
        """Make it a raised commit: the header must be as known, and becomes this one."""
        self.expect(HEADER, known)
        self._puts.append(Put(HEADER, header.encode()))

    def commit(self) -> Steps[Outcome]:
        """Whether it was applied."""
        batch = Batch(self.row, tuple(self._puts), tuple(self._deletes))
        return (yield from commit(batch, tuple(self._expects)))
