"""Driver sessions: timeouts, reconnection and load balancing under which a frozen or dead node costs only seconds."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from typing import Final

from cassandra import DependencyException, ProtocolVersion
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    LoadBalancingPolicy,
    TokenAwarePolicy,
)
from cassandra.pool import Host
from cassandra.query import Statement

from astyqueue.clock import Clock, Stamps, SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.stores.cassandra.connection.authentication import login_of, of_one_cluster
from astyqueue.stores.cassandra.connection.errors import FAILURES, describe
from astyqueue.stores.cassandra.connection.settings import Address
from astyqueue.units import SECOND, MonotonicUs

#: A heartbeat after this idle time, and the limit for its answer, after which the driver drops the connection.
_HEARTBEAT_SECONDS: Final = 3
_CONNECT_SECONDS: Final = 5.0
#: The first and the longest delay before the driver reconnects to a lost node.
_FIRST_RECONNECT_SECONDS: Final = 0.25
_LAST_RECONNECT_SECONDS: Final = 2.0
#: The driver writes a request in parts; without this the last part waits up to 40 ms for the server's acknowledgement.
_AT_ONCE: Final = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]


def connect(address: Address, clock: Clock) -> Session:
    """A session that stamps plain puts without a stamp by `clock`.

    StoreUnavailable names the nodes it tried, and for how long.
    """
    watch = SystemClock()
    began = watch.monotonic()
    try:
        return _connected(address, Stamps(clock))
    except (*FAILURES, DependencyException, OSError) as error:
        tried = (watch.monotonic() - began) / SECOND
        message = (
            f"{address.shown}: not connected after {tried:.1f} s: {describe(error)}. "
            "Check that these nodes run and are reachable from here"
            f"{', that the login is right' if address.user else ''}"
            f"{', that they are in this data centre' if address.dc else ''}"
        )
        raise StoreUnavailable(message) from error


def reconnecting() -> ExponentialReconnectionPolicy:
    """A policy that reconnects to a lost node without limit; the driver's default gives up after 64 attempts."""
    return ExponentialReconnectionPolicy(_FIRST_RECONNECT_SECONDS, _LAST_RECONNECT_SECONDS, max_attempts=None)


def _connected(address: Address, stamps: Stamps) -> Session:
    cluster = cluster_of(address, stamps)
    try:
        return cluster.connect()
    except BaseException:
        cluster.shutdown()
        raise


def cluster_of(address: Address, stamps: Stamps) -> Cluster:
    """The driver's cluster, with our settings and not connected yet."""
    near = SilentNodesLast(TokenAwarePolicy(DCAwareRoundRobinPolicy(address.dc)), SystemClock())
    return Cluster(
        list(address.contact_points),
        address.port,
        connection_class=of_one_cluster(),
        auth_provider=login_of(address),
        ssl_context=address.tls.context() if address.tls else None,
        execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(near)},
        reconnection_policy=reconnecting(),
        protocol_version=ProtocolVersion.V5,
        connect_timeout=_CONNECT_SECONDS,
        control_connection_timeout=_CONNECT_SECONDS,
        idle_heartbeat_interval=_HEARTBEAT_SECONDS,
        idle_heartbeat_timeout=_HEARTBEAT_SECONDS,
        timestamp_generator=stamps.next,
        sockopts=_AT_ONCE,
        application_name="astyqueue",
    )


#: For this long a node that has not answered is tried last; by then heartbeats have found its connections dead.
_SILENT_FOR: Final = 10 * SECOND


class SilentNodesLast(LoadBalancingPolicy):  # type: ignore[misc] # the driver has no types
    """The child policy's plan, with the nodes that let a request time out moved to its end for 10 s.

    A frozen node keeps its connections. Until heartbeats detect that, the driver would send it every third request of a
    ring of three, and each one that must not be repeated would wait for its whole timeout.
    """

    def __init__(self, child: LoadBalancingPolicy, clock: Clock) -> None:
        """Reorder the plans of `child`."""
        super().__init__()
        self._child = child
        self._clock = clock
        self._silent: dict[Host, MonotonicUs] = {}

    def was_silent(self, hosts: Iterable[Host]) -> None:
        """Try these nodes last from now on, for 10 s."""
        self._silent = self._silent | dict.fromkeys(
            hosts, self._clock.monotonic() + _SILENT_FOR
        )  # plans are made meanwhile

    def make_query_plan(self, working_keyspace: str | None = None, query: Statement | None = None) -> Iterator[Host]:
        """The nodes in the order in which to try them."""
        plan = self._child.make_query_plan(working_keyspace, query)
        known = self._silent
        if not known:
            yield from plan
            return
        now = self._clock.monotonic()
        silent = {host for host, until in known.items() if until > now}
        if not silent:
            self._silent = {}
        yield from sorted(plan, key=silent.__contains__)

    def populate(self, cluster: Cluster, hosts: list[Host]) -> None:
        """Delegate to the child policy."""
        self._child.populate(cluster, hosts)

    def distance(self, host: Host) -> int:
        """The distance by the child policy."""
        distance: int = self._child.distance(host)
        return distance

    def check_supported(self) -> None:
        """Delegate to the child policy."""
        self._child.check_supported()

    def on_up(self, host: Host) -> None:
        """Delegate to the child policy."""
        self._child.on_up(host)

    def on_down(self, host: Host) -> None:
        """Delegate to the child policy."""
        self._child.on_down(host)

    def on_add(self, host: Host) -> None:
        """Delegate to the child policy."""
        self._child.on_add(host)

    def on_remove(self, host: Host) -> None:
        """Delegate to the child policy."""
        self._child.on_remove(host)
