"""Making the tables of a keyspace, one process at a time however many want to.

Two coordinators that make one table at the same moment give it two ids, which Cassandra cannot mend. So the first table
has an id that follows from its keyspace, and a lock in it lets one migration at a time make the others.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from astyqueue.clock import SECOND, SystemClock
from astyqueue.errors import OutcomeUnknown, StoreUnavailable, WrongSchema
from astyqueue.stores.cassandra.catalog import Catalog
from astyqueue.stores.cassandra.failures import FAILURES, failure_of_change, says_missing
from astyqueue.stores.cassandra.inquiry import PATIENCE_SECONDS, Inquiry
from astyqueue.stores.cassandra.schema import Part, parts
from astyqueue.stores.cassandra.schema.declared import declared
from astyqueue.wakeup import Wakeup

T = TypeVar("T")
#: The lock of a process that died in the middle is free again after so long. It is renewed before each statement, which may take
#: as long as a statement may, and as the nodes may need to agree on it.
_LOCK_SECONDS: Final = 2 * PATIENCE_SECONDS + 30
#: How long to wait before asking again, and up to twice that: those who meet must not meet again.
_ASK_AGAIN: Final = SECOND // 4

_LOCK: Final = "INSERT INTO schema_versions (part, version, owner) VALUES ('lock', 0, %s) IF NOT EXISTS USING TTL %s"
_KEEP: Final = "UPDATE schema_versions USING TTL %s SET owner = %s WHERE part = 'lock' AND version = 0 IF owner = %s"
_UNLOCK: Final = "DELETE FROM schema_versions WHERE part = 'lock' AND version = 0 IF owner = %s"
_RECORD: Final = "INSERT INTO schema_versions (part, version, file, made) VALUES ('schema', %s, %s, toTimestamp(now()))"


class Migration:
    """One keyspace that is there, on its way to the newest version."""

    def __init__(self, inquiry: Inquiry, *, settle_home: Callable[[], Iterator[str]]) -> None:
        """Work there; `settle_home` says where the home of the keyspace is, and what it did."""
        self._inquiry = inquiry
        self._settle_home = settle_home
        self._owner = secrets.token_hex(8)

    def carry_out(self) -> Iterator[str]:
        """Make what is missing; says what was made, as it is made."""
        first, *others = parts(self._inquiry.keyspace)
        for statement in first.statements:
            self._change(statement)
        with self._alone():
            for part in self._missing(others):
                self._make(part)
                yield f"made version {part.version} of the tables in keyspace {self._inquiry.keyspace} ({part.file})"
            yield from self._answered(lambda: list(self._settle_home()))

    def _make(self, part: Part) -> None:
        for statement in part.statements:
            self._keep_lock()
            self._change(statement)
        self._keep_lock()
        self._surely(_RECORD, part.version, part.file)

    def _missing(self, others: Sequence[Part]) -> list[Part]:
        """The files to be run: those not recorded, and those whose tables are not there."""
        catalog = Catalog(self._inquiry)
        recorded, tables = self._answered(catalog.versions), catalog.tables().keys()
        if recorded and max(recorded) > others[-1].version:
            message = (
                f"keyspace {self._inquiry.keyspace} {newer(max(recorded), others[-1].version)}; nothing was changed: upgrade this process"
            )
            raise WrongSchema(message)
        return [part for part in others if part.version not in recorded or not tables_of(part) <= tables]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock. One that cannot be given back goes by itself."""
        self._await(self._lock, "another migration is under way")
        try:
            yield
        finally:
            self._surely(_UNLOCK, self._owner)

    def _lock(self) -> bool:
        """Whether the lock is ours; one that was given while its answer was lost is known by its owner."""
        answer = self._surely(_LOCK, self._owner, _LOCK_SECONDS)
        return bool(answer) and (bool(answer[0].applied) or answer[0].owner == self._owner)

    def _keep_lock(self) -> None:
        (row,) = self._surely(_KEEP, _LOCK_SECONDS, self._owner, self._owner)
        if not row.applied:
            message = (
                f"keyspace {self._inquiry.keyspace}: this migration was so slow that another took over; run it again to see what is left"
            )
            raise StoreUnavailable(message)

    def _surely(self, statement: str, *values: object) -> list[Any]:
        """Ask until it is known what came of it: each of these may be asked again, and does nothing then that it had done."""
        return self._answered(lambda: self._inquiry.inside(statement, *values))

    def _answered(self, ask: Callable[[], T]) -> T:
        """Ask until there is an answer; a node that has just come up may not know yet of a table that the others know."""
        answers: list[T] = []

        def asked() -> bool:
            with self._passing_over():
                answers.append(ask())
            return bool(answers)

        self._await(asked, "its nodes do not come to an answer")
        return answers[0]

    @contextmanager
    def _passing_over(self) -> Iterator[None]:
        """Pass over a table not heard of yet, and an error after which nobody knows what was done, as when several ask at once."""
        try:
            yield
        except FAILURES as error:
            if not (says_missing(error) or isinstance(failure_of_change(error, ""), OutcomeUnknown)):
                raise

    def _await(self, is_so: Callable[[], bool], otherwise: str) -> None:
        """Try until it is so; StoreUnavailable if it takes longer than a dead migration holds the lock."""
        clock = SystemClock()
        until = clock.monotonic() + (PATIENCE_SECONDS + _LOCK_SECONDS) * SECOND
        while not is_so():
            if clock.monotonic() >= until:
                message = f"keyspace {self._inquiry.keyspace}: {otherwise}, for some minutes now; run it again later"
                raise StoreUnavailable(message)
            Wakeup(clock).wait(clock.monotonic() + _ASK_AGAIN + random.randrange(_ASK_AGAIN))

    def _change(self, statement: str) -> None:
        """Change the tables, and go on once all nodes that are up have heard of it."""
        self._inquiry.inside(statement)
        agree(self._inquiry)


def agree(inquiry: Inquiry) -> None:
    """Wait until all nodes that are up know the same tables; StoreUnavailable if they do not come to it."""
    if not inquiry.cluster.control_connection.wait_for_schema_agreement(wait_time=PATIENCE_SECONDS):
        message = (
            f"keyspace {inquiry.keyspace}: after {PATIENCE_SECONDS} s the nodes still do not agree on the tables; "
            "see that they reach each other ('nodetool describecluster'), and run it again"
        )
        raise StoreUnavailable(message)


def tables_of(part: Part) -> set[str]:
    """The tables that a file makes."""
    return {declared(statement).name for statement in part.statements if statement.startswith("CREATE TABLE")}


def newer(there: int, known: int) -> str:
    """Why tables of a later astyqueue are left alone."""
    return f"has version {there} of the tables, and this astyqueue knows version {known}"


def as_run(part: Part) -> list[str]:
    """What is run for a file, written out for somebody who runs it by hand."""
    if not part.version:
        return list(part.statements)
    return [*part.statements, _RECORD.replace("%s", "{}").format(part.version, f"'{part.file}'")]
