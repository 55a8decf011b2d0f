"""A real Cassandra for tests, on this machine and without a container."""

from __future__ import annotations

from astyqueue.testing.cassandra.cluster import LocalCassandra
from astyqueue.testing.cassandra.errors import CannotRunHere, NodeNotReady, NodetoolFailed
from astyqueue.testing.cassandra.network import Contacts

__all__ = ["CannotRunHere", "Contacts", "LocalCassandra", "NodeNotReady", "NodetoolFailed"]
