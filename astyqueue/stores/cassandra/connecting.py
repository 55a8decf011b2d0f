"""A session of the driver, set so that one node that freezes or dies costs seconds and not minutes."""

from __future__ import annotations

import socket
from typing import Final

from cassandra import DependencyException, ProtocolVersion
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import DCAwareRoundRobinPolicy, ExponentialReconnectionPolicy, TokenAwarePolicy

from astyqueue.clock import SECOND, Clock, SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.stores.cassandra.address import Address
from astyqueue.stores.cassandra.failures import FAILURES, told
from astyqueue.stores.cassandra.logins import login_of, of_one_cluster
from astyqueue.stores.cassandra.wary import Wary
from astyqueue.stores.stamps import Stamps

#: Seconds without a word, and then without an answer, after which a connection is given up.
_HEARTBEAT_SECONDS: Final = 3
_CONNECT_SECONDS: Final = 5.0
#: How soon a node that was lost is asked again: at first, and at most.
_FIRST_RECONNECT_SECONDS: Final = 0.25
_LAST_RECONNECT_SECONDS: Final = 2.0
#: The driver writes a request in pieces; without this the last one waits up to 40 ms for the server's acknowledgement.
_AT_ONCE: Final = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]


def connect(address: Address, clock: Clock) -> Session:
    """A session whose plain puts without a stamp are stamped by `clock`; StoreUnavailable names whom it asked, and for how long."""
    watch = SystemClock()
    began = watch.monotonic()
    try:
        return _connected(address, Stamps(clock))
    except (*FAILURES, DependencyException, OSError) as error:
        tried = (watch.monotonic() - began) / SECOND
        message = (
            f"{address.shown}: not connected after {tried:.1f} s: {told(error)}. See that these nodes run and can be reached from here"
            f"{', that the login is right' if address.user else ''}{', that the data centre is theirs' if address.dc else ''}"
        )
        raise StoreUnavailable(message) from error


def reconnecting() -> ExponentialReconnectionPolicy:
    """When a node that was lost is asked again: without end, where the driver's own would give up for good after 64 times."""
    return ExponentialReconnectionPolicy(_FIRST_RECONNECT_SECONDS, _LAST_RECONNECT_SECONDS, max_attempts=None)


def _connected(address: Address, stamps: Stamps) -> Session:
    cluster = _cluster(address, stamps)
    try:
        return cluster.connect()
    except BaseException:
        cluster.shutdown()
        raise


def _cluster(address: Address, stamps: Stamps) -> Cluster:
    near = Wary(TokenAwarePolicy(DCAwareRoundRobinPolicy(address.dc)), SystemClock())
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
