"""Connections to nodes: their settings, which nodes come first, and a login that was refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from cassandra import AuthenticationFailed
from cassandra.cluster import Cluster, DefaultConnection
from cassandra.connection import ConnectionException, DefaultEndPoint
from cassandra.policies import ExponentialReconnectionPolicy, RoundRobinPolicy, SimpleConvictionPolicy
from cassandra.pool import Host

from astyqueue.clock import Stamps
from astyqueue.stores.cassandra import Address
from astyqueue.stores.cassandra.connection import authentication
from astyqueue.stores.cassandra.connection.cluster import SilentNodesLast, cluster_of
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


HOSTS = [Host(f"h{number}", SimpleConvictionPolicy) for number in range(3)]


def test_a_silent_node_comes_last_until_ten_seconds_have_passed(clock: TimeMachine) -> None:
    wary = SilentNodesLast(RoundRobinPolicy(), clock)
    wary.populate(None, HOSTS)
    assert {next(wary.make_query_plan()) for _ in HOSTS} == set(HOSTS)
    wary.was_silent(HOSTS[:1])
    plans = [list(wary.make_query_plan()) for _ in HOSTS]
    assert [plan[-1] for plan in plans] == [HOSTS[0]] * 3
    assert {plan[0] for plan in plans} == set(HOSTS[1:])
    clock.advance("10s")
    assert {next(wary.make_query_plan()) for _ in HOSTS} == set(HOSTS)


def test_it_goes_by_the_other_policy_for_everything_else(clock: TimeMachine) -> None:
    child = RoundRobinPolicy()
    wary = SilentNodesLast(child, clock)
    wary.populate(None, HOSTS[:1])
    wary.on_add(HOSTS[1])
    wary.on_up(HOSTS[2])
    assert set(wary.make_query_plan()) == set(HOSTS)
    wary.on_down(HOSTS[1])
    wary.on_remove(HOSTS[2])
    assert set(wary.make_query_plan()) == {HOSTS[0]}
    assert wary.distance(HOSTS[0]) == child.distance(HOSTS[0])


NODE, OTHER = DefaultEndPoint("127.0.0.1"), DefaultEndPoint("127.0.0.2")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[DefaultEndPoint]:
    """Where a login was tried; it is refused everywhere."""
    tried: list[DefaultEndPoint] = []

    def refuse(endpoint: DefaultEndPoint, *_: object, **__: object) -> None:
        tried.append(endpoint)
        message = "Bad credentials"
        raise AuthenticationFailed(message)

    monkeypatch.setattr(DefaultConnection, "factory", refuse)
    return tried


def test_it_is_an_error_after_which_the_driver_tries_again(tried: list[DefaultEndPoint]) -> None:
    with pytest.raises(ConnectionException, match="Bad credentials") as raised:
        authentication.of_one_cluster().factory(NODE, 5.0)
    assert not isinstance(raised.value, AuthenticationFailed)
    assert tried == [NODE]


def test_a_node_is_not_asked_to_check_the_password_again_at_once(tried: list[DefaultEndPoint]) -> None:
    here, elsewhere = authentication.of_one_cluster(), authentication.of_one_cluster()
    for connection, node in ((here, NODE), (here, NODE), (here, OTHER), (elsewhere, NODE), (here, NODE)):
        with pytest.raises(ConnectionException, match="Bad credentials"):
            connection.factory(node, 5.0)
    assert tried == [NODE, OTHER, NODE]
