"""The settings of connections in docs/how-to/production.md are those of the driver and of an opened URL."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from cassandra.cluster import Cluster
from cassandra.policies import ExponentialReconnectionPolicy

from astyqueue.clock import Stamps
from astyqueue.stores.cassandra import Address
from astyqueue.stores.cassandra.connection.cluster import cluster_of
from astyqueue.testing import TimeMachine
from tests.unit.test_docs import DOCS, table_below


@pytest.fixture
def ours(clock: TimeMachine) -> Iterator[Cluster]:
    """The cluster of a URL, which connects to nothing yet."""
    cluster = cluster_of(Address(("127.0.0.1",), "jobs", dc="dc1"), Stamps(clock))
    yield cluster
    cluster.shutdown()


def settings(cluster: type[Cluster] | Cluster) -> dict[str, list[float | None]]:
    """What the page lists."""
    reconnecting = cluster.reconnection_policy
    assert isinstance(reconnecting, ExponentialReconnectionPolicy)
    timeouts = ("idle_heartbeat_interval", "idle_heartbeat_timeout", "control_connection_timeout")
    return {
        **{f"`{name}`": [float(getattr(cluster, name))] for name in timeouts},
        "first and last delay of `reconnection_policy`": [reconnecting.base_delay, reconnecting.max_delay],
        "attempts of `reconnection_policy`": [reconnecting.max_attempts],
    }


def numbers(cell: str) -> list[float | None]:
    return [float(found) for found in re.findall(r"[\d.]+", cell)] or [None]


def test_the_page_tells_the_settings_of_the_driver_and_ours(ours: Cluster) -> None:
    rows = table_below(DOCS / "how-to/production.md", "## Connections")
    assert {cells[0]: numbers(cells[1]) for cells in rows} == settings(Cluster)
    assert {cells[0]: numbers(cells[2]) for cells in rows} == settings(ours)
