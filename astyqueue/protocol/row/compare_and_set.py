"""Changing one column by compare-and-set: read it, commit the new value if it is unchanged, and otherwise repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from astyqueue.errors import Closed, OutcomeUnknown, StoreError, StoreUnavailable
from astyqueue.observe.observers import UNOBSERVED, Observers
from astyqueue.protocol.row.header_commit import COMMIT_TRIES
from astyqueue.protocol.steps import Steps, commit, read_column, report_read_back
from astyqueue.store import Batch, Committed, Expectation, Name, Outcome, Put


class CellUpdate(NamedTuple):
    """The value of a column after an update, empty if it does not exist, and whether the update changed it."""

    value: bytes
    changed: bool


def update(
    row: str,
    name: Name,
    change: Callable[[bytes | None], bytes | None],
    *,
    ttl: int | None = None,
    beside: tuple[Put, ...] = (),
    observers: Observers = UNOBSERVED,
) -> Steps[CellUpdate]:
    """Replace the value of a column by `change` of it: the same value leaves the column as it is, None deletes it.

    `ttl`: seconds until the new value expires. The columns `beside` it are written by the same commit. `change` is
    called again when another process changed the column. After an unknown outcome the column is read: the update was
    applied if it has the new value, which `observers` are notified of. Raises StoreUnavailable after 50 attempts, but
    OutcomeUnknown if the outcome of one of them is unknown.
    """
    wanted: bytes | None = None
    unknown: OutcomeUnknown | None = None
    before: bytes | None = None
    answer: Outcome | OutcomeUnknown | None = None
    try:
        for _ in range(COMMIT_TRIES):
            column = yield from read_column(row, name, exact=True)
            known = column.value if column else None
            if isinstance(answer, OutcomeUnknown) and known in (before, wanted):
                report_read_back(observers, row, "change", applied=known == wanted)
            if unknown and known == wanted:
                return CellUpdate(known or b"", changed=True)
            before = known
            wanted = change(known)
            if wanted == known:
                return CellUpdate(known or b"", changed=False)
            batch = Batch(row, beside, (name,)) if wanted is None else Batch(row, (Put(name, wanted, ttl=ttl), *beside))
            answer = yield from _replace(batch, name, known)
            if isinstance(answer, Committed):
                return CellUpdate(wanted or b"", changed=True)
            unknown = answer if isinstance(answer, OutcomeUnknown) else unknown
        message = (
            f"row {row}: gave up after {COMMIT_TRIES} attempts to change it; retry later, or when the store answers"
        )
        raise StoreUnavailable(message)
    except (StoreError, Closed) as error:  # it does not prove that an earlier commit was not applied
        if unknown is None:
            raise
        raise unknown from error


def replace(batch: Batch, name: Name, known: bytes | None) -> Steps[bool]:
    """Commit a batch if a column has this value; returns whether it was applied, False if that is unknown."""
    return isinstance((yield from _replace(batch, name, known)), Committed)


def _replace(batch: Batch, name: Name, known: bytes | None) -> Steps[Outcome | OutcomeUnknown]:
    try:
        return (yield from commit(batch, (Expectation(name, known),)))
    except OutcomeUnknown as unknown:
        return unknown
