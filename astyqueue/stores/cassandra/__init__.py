"""A store in a Cassandra keyspace, for many processes on many machines.

- `store`: `CassandraStore`, the four verbs of the port, in a session of the driver, also on both sides of a fork.
- `admin`: `migrate`, `verify` and `doctor` of a keyspace.
- `connection`: what a URL says, logins, sessions of the driver, and its errors in the terms of `astyqueue.errors`.
- `requests`: CQL statements, encoding, retries while no node has a connection, and speculative execution.
- `schema`: the tables as `schema/cassandra` declares them, creating them, reading them back, and the home data centre.
- `doctor`: queries to each node, and the findings from their answers.

A row is a partition: a commit is one conditional batch on it (a lightweight transaction), a send one unconditional
batch. docs/how-to/cassandra.md says how to run it, docs/explanation/layout.md what is in the tables.
"""

from __future__ import annotations

from astyqueue.stores.cassandra.connection.settings import Address, Levels
from astyqueue.stores.cassandra.store import CassandraStore, lent, opened

__all__ = ["Address", "CassandraStore", "Levels", "lent", "opened"]
