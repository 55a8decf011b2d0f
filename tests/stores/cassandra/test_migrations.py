"""The lock under which tables are made: it is renewed before each statement, and outlasts the slowest."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra import OperationTimedOut

from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.stores.cassandra.admin import KeyspaceAdministration
from astyqueue.stores.cassandra.schema.keyspace import Keyspace
from astyqueue.stores.cassandra.schema.migrations import Migration
from astyqueue.stores.cassandra.schema.system_schema import PATIENCE_SECONDS, Inquiry


class Locking(Inquiry):
    """Stands for a cluster without tables: grants the lock to the first `until` requests, and keeps all requests."""

    def __init__(self, *, until: int = 1_000) -> None:
        self.keyspace = "jobs"
        self.cluster = SimpleNamespace(control_connection=SimpleNamespace(wait_for_schema_agreement=self._agree))
        self.asked: list[str] = []
        self.times_to_live: set[object] = set()
        self._until = until

    def _agree(self, *, wait_time: float) -> bool:
        return wait_time > 0

    def inside(self, statement: str, *values: object) -> list[Any]:
        self.asked.append(statement)
        if "USING TTL" in statement:
            self.times_to_live |= {value for value in values if isinstance(value, int)}
        return [SimpleNamespace(applied=len(self.asked) <= self._until, owner=None)] if " IF " in statement[20:] else []

    def anyone(self, statement: str, *values: object) -> list[Any]:  # noqa: ARG002 - as a session has it
        return []

    def kinds(self) -> list[str]:
        return [statement.split()[0] for statement in self.asked]


def migrated(inquiry: Locking) -> list[str]:
    return list(Migration(inquiry, settle_home=lambda: iter(())).carry_out())


def test_the_lock_is_renewed_before_each_statement() -> None:
    inquiry = Locking()
    assert len(migrated(inquiry)) == 2
    kinds = inquiry.kinds()
    taken = kinds.index("INSERT")
    changes = [at for at, kind in enumerate(kinds) if at > taken and kind in ("CREATE", "INSERT")]
    assert len(changes) == 4
    assert all(kinds[at - 1] == "UPDATE" for at in changes)
    assert kinds[-1] == "DELETE"


def test_the_lock_outlasts_a_statement_and_the_agreement_of_the_nodes_on_it() -> None:
    inquiry = Locking()
    migrated(inquiry)
    [seconds] = inquiry.times_to_live
    assert isinstance(seconds, int)
    assert seconds > 2 * PATIENCE_SECONDS


def test_a_migration_that_lost_its_lock_changes_nothing_more() -> None:
    inquiry = Locking(until=5)
    with pytest.raises(StoreUnavailable, match="another took over"):
        migrated(inquiry)
    assert inquiry.kinds()[5:] == ["UPDATE", "DELETE"]


class Failing(Locking):
    """Such a cluster, on which the first table cannot be made, and which is silent from then on."""

    def inside(self, statement: str, *values: object) -> list[Any]:
        found = super().inside(statement, *values)
        if self.kinds().count("DELETE") > 1:
            pytest.fail("the lock expires: once is enough")
        if "entries" in statement:
            raise KeyboardInterrupt
        if statement.startswith("DELETE"):
            message = "silent"
            raise OperationTimedOut({}, message)
        return found


def test_a_migration_that_is_interrupted_tries_once_to_release_its_lock() -> None:
    inquiry = Failing()
    with pytest.raises(KeyboardInterrupt):
        migrated(inquiry)
    assert inquiry.kinds()[-1] == "DELETE"


class Administered(KeyspaceAdministration):
    """The administration of such a cluster, in which the keyspace has just been made."""

    def __init__(self, inquiry: Locking) -> None:
        super().__init__(lambda: None, Keyspace("jobs"), clock=SystemClock())
        self._locking = inquiry

    def _inquiry(self) -> Inquiry:
        return self._locking

    def _make_keyspace(self, inquiry: Inquiry) -> Iterator[str]:
        yield f"made keyspace {inquiry.keyspace}"


def test_a_migration_that_fails_half_way_says_what_it_made() -> None:
    with pytest.raises(StoreUnavailable) as raised:
        Administered(Locking(until=8)).migrate()
    assert "run it again to complete it. Before that it made keyspace jobs; made version 1 of the tables" in str(
        raised.value
    )
