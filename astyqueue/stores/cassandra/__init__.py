"""A store in a Cassandra keyspace, for many processes on many machines."""

from __future__ import annotations

from astyqueue.stores.cassandra.connection.settings import Address, Levels
from astyqueue.stores.cassandra.store import CassandraStore, lent, opened

__all__ = ["Address", "CassandraStore", "Levels", "lent", "opened"]
