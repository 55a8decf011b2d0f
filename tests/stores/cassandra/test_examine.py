"""What an examination finds out about a cluster of which too few nodes answer: each node, and why no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, Unauthorized, Unavailable

from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.findings import Severity
from astyqueue.stores.cassandra.admin import KeyspaceAdministration
from astyqueue.stores.cassandra.schema.files import VERSIONS
from astyqueue.stores.cassandra.schema.keyspace import Keyspace
from astyqueue.stores.cassandra.schema.migrations import agree
from astyqueue.stores.cassandra.schema.system_schema import Inquiry
from astyqueue.units import SECOND

CLOCK = SystemClock()


class Table(NamedTuple):
    table_name: str


class OneNodeUp(Inquiry):
    """Stands for three nodes with a copy each, of which only n1 answers; this login may not read its settings."""

    def __init__(self) -> None:
        self.keyspace = "jobs"
        hosts = [SimpleNamespace(address=name, datacenter="dc1") for name in ("n1", "n2", "n3")]
        self.cluster = SimpleNamespace(
            metadata=SimpleNamespace(all_hosts=lambda: hosts),
            control_connection=SimpleNamespace(wait_for_schema_agreement=lambda wait_time: wait_time < 0),
        )

    def anyone(self, statement: str, *_: object) -> list[Any]:
        if "system_schema.keyspaces" in statement:
            kept = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3"}
            return [SimpleNamespace(replication=kept, durable_writes=True)]
        if "system_schema.tables" in statement:
            return [Table(VERSIONS)]
        return [] if "system_schema" in statement else [SimpleNamespace(data_center="dc1")]

    def one(self, host: Any, statement: str, *_: object) -> list[Any]:  # noqa: ANN401 - a host of the driver
        if host.address != "n1":
            raise OperationTimedOut
        if "system_views" in statement:
            message = "User app has no SELECT permission"
            raise Unauthorized(message)
        return [
            SimpleNamespace(
                data_center="dc1",
                schema_version="v",
                release_version="5.0.2",
                milliseconds=CLOCK.now() * 1_000 // SECOND,
            )
        ]

    def near(self, statement: str, *_: object) -> list[Any]:
        message = f"no majority for {statement}"
        raise Unavailable(message, ConsistencyLevel.LOCAL_QUORUM, 2, 1)


class Administered(KeyspaceAdministration):
    def _inquiry(self) -> Inquiry:
        return OneNodeUp()


def test_a_cluster_without_a_majority_is_examined_as_far_as_it_answers() -> None:
    looked_after = Administered(lambda: None, Keyspace("jobs"), clock=CLOCK)
    found = {finding.subject: finding for finding in looked_after.examine({})}
    silent = found["nodes of dc1"]
    assert (silent.severity, silent.fact.startswith("n2, n3 of 3 nodes do not answer")) == (Severity.PROBLEM, True)
    assert "GRANT SELECT ON KEYSPACE system_views" in found["paxos variant"].remedy
    last = found["tables"]
    assert (last.severity, last.remedy) == (
        Severity.PROBLEM,
        "resolve the findings on the nodes first, then run it again",
    )
    assert last.fact.startswith("could not be compared: ")
    assert not looked_after.ready()


def test_nodes_that_do_not_agree_on_the_tables_end_a_migration() -> None:
    with pytest.raises(StoreUnavailable, match=r"after 60 s the nodes still do not agree .*'nodetool describecluster'"):
        agree(OneNodeUp())
