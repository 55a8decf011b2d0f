"""Creates the tables of a keyspace; a lock lets one process at a time do it.

Two coordinators that create one table at the same moment give it two ids, which Cassandra cannot repair. So the id of
the first table is derived from its keyspace, and a lock in that table lets one migration at a time create the others.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from astyqueue.clock import SystemClock
from astyqueue.errors import OutcomeUnknown, StoreUnavailable, WrongSchema
from astyqueue.stores.cassandra.connection.errors import FAILURES, failure_of_change, says_missing
from astyqueue.stores.cassandra.schema.files import declared, parts
from astyqueue.stores.cassandra.schema.system_schema import PATIENCE_SECONDS, Catalog, Inquiry
from astyqueue.stores.schema_files import Part
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

T = TypeVar("T")
#: The time to live of the lock, for a process that crashes with it. It is renewed before each statement, which may take
#: the timeout of a statement, and the nodes as long again to agree on the schema.
_LOCK_SECONDS: Final = 2 * PATIENCE_SECONDS + 30
#: The wait before a retry; the random part, up to as much again, separates processes that collided.
_ASK_AGAIN: Final = SECOND // 4

_LOCK: Final = "INSERT INTO schema_versions (part, version, owner) VALUES ('lock', 0, %s) IF NOT EXISTS USING TTL %s"
_KEEP: Final = "UPDATE schema_versions USING TTL %s SET owner = %s WHERE part = 'lock' AND version = 0 IF owner = %s"
_UNLOCK: Final = "DELETE FROM schema_versions WHERE part = 'lock' AND version = 0 IF owner = %s"
_RECORD: Final = "INSERT INTO schema_versions (part, version, file, made) VALUES ('schema', %s, %s, toTimestamp(now()))"


class Migration:
    """A migration of an existing keyspace to the newest version."""

    def __init__(self, inquiry: Inquiry, *, settle_home: Callable[[], Iterator[str]]) -> None:
        """Migrate the keyspace of `inquiry`; `settle_home` stores its home and returns a line for each change."""
        self._inquiry = inquiry
        self._settle_home = settle_home
        self._owner = secrets.token_hex(8)

    def carry_out(self) -> Iterator[str]:
        """Create what is missing; yields a line for each version as it is done."""
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
        """The files to run: those not recorded, and those whose tables do not exist."""
        catalog = Catalog(self._inquiry)
        recorded, tables = self._answered(catalog.versions), catalog.tables().keys()
        if recorded and max(recorded) > others[-1].version:
            reason = newer(max(recorded), others[-1].version)
            message = f"keyspace {self._inquiry.keyspace} {reason}; nothing was changed: upgrade this process"
            raise WrongSchema(message)
        return [part for part in others if part.version not in recorded or not tables_of(part) <= tables]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock. One that cannot be released expires, so after an error that is tried once only."""
        self._await(self._lock, "another migration is running")
        try:
            yield
        except BaseException:
            with suppress(*FAILURES):
                self._inquiry.inside(_UNLOCK, self._owner)
            raise
        self._surely(_UNLOCK, self._owner)

    def _lock(self) -> bool:
        """Whether this process has the lock; its owner shows that it was granted when the answer was lost."""
        answer = self._surely(_LOCK, self._owner, _LOCK_SECONDS)
        return bool(answer) and (bool(answer[0].applied) or answer[0].owner == self._owner)

    def _keep_lock(self) -> None:
        (row,) = self._surely(_KEEP, _LOCK_SECONDS, self._owner, self._owner)
        if not row.applied:
            message = (
                f"keyspace {self._inquiry.keyspace}: this migration outlasted its lock and another took over; "
                "run it again to complete it"
            )
            raise StoreUnavailable(message)

    def _surely(self, statement: str, *values: object) -> list[Any]:
        """Repeat a statement until its outcome is known; every one of them is idempotent."""
        return self._answered(lambda: self._inquiry.inside(statement, *values))

    def _answered(self, ask: Callable[[], T]) -> T:
        """Repeat a request until there is an answer; a node that has just started may not know a table yet."""
        answers: list[T] = []

        def has_answer() -> bool:
            with self._retryable():
                answers.append(ask())
            return bool(answers)

        self._await(has_answer, "its nodes do not answer")
        return answers[0]

    @contextmanager
    def _retryable(self) -> Iterator[None]:
        """Ignore a table that a node does not know yet, and an unknown outcome, as when several processes contend."""
        try:
            yield
        except FAILURES as error:
            if not (says_missing(error) or isinstance(failure_of_change(error, ""), OutcomeUnknown)):
                raise

    def _await(self, is_so: Callable[[], bool], otherwise: str) -> None:
        """Retry until `is_so`; StoreUnavailable if it takes longer than the lock of a crashed migration lasts."""
        clock = SystemClock()
        until = clock.monotonic() + (PATIENCE_SECONDS + _LOCK_SECONDS) * SECOND
        while not is_so():
            if clock.monotonic() >= until:
                message = f"keyspace {self._inquiry.keyspace}: {otherwise} for some minutes now; run it again later"
                raise StoreUnavailable(message)
            Wakeup(clock).wait(clock.monotonic() + _ASK_AGAIN + random.randrange(_ASK_AGAIN))

    def _change(self, statement: str) -> None:
        """Change the schema, and wait until all nodes that are up agree on it."""
        self._inquiry.inside(statement)
        agree(self._inquiry)


def agree(inquiry: Inquiry) -> None:
    """Wait until all nodes that are up agree on the schema; StoreUnavailable after `PATIENCE_SECONDS`."""
    if not inquiry.cluster.control_connection.wait_for_schema_agreement(wait_time=PATIENCE_SECONDS):
        message = (
            f"keyspace {inquiry.keyspace}: after {PATIENCE_SECONDS} s the nodes still do not agree on the tables; "
            "check that they reach each other ('nodetool describecluster'), and run it again"
        )
        raise StoreUnavailable(message)


def tables_of(part: Part) -> set[str]:
    """The tables that a file creates."""
    return {declared(statement).name for statement in part.statements if statement.startswith("CREATE TABLE")}


def newer(there: int, known: int) -> str:
    """Why tables of a later astyqueue are not changed."""
    return f"has version {there} of the tables, and this astyqueue knows version {known}"


def as_run(part: Part) -> list[str]:
    """The statements of a file, and the one that records it, for an operator who runs them by hand."""
    if not part.version:
        return list(part.statements)
    return [*part.statements, _RECORD.replace("%s", "{}").format(part.version, f"'{part.file}'")]
