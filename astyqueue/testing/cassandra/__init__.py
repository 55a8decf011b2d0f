"""A real Cassandra for tests, on this machine and without a container.

- `cluster`: `LocalCassandra`, one to three nodes, which a test can freeze, kill, wipe and restart. `node`,
  `node_config` and `child_process`: one of them, its settings, and that it ends with the tests.
- `artifacts`: Java 17, and the jars of one release, which Maven fetches once and whose checksums are known.
- `network`: addresses of the loopback network, reserved for the nodes.
- `provider`, `fixtures`: for pytest: a cluster that runs already, a local one or a container, and a keyspace per test.

`python -m astyqueue.testing.cassandra up` starts one by hand. docs/how-to/testing.md shows its use and
its requirements.
"""

from __future__ import annotations

from astyqueue.testing.cassandra.cluster import LocalCassandra
from astyqueue.testing.cassandra.errors import CannotRunHere, NodeNotReady, NodetoolFailed
from astyqueue.testing.cassandra.network import Contacts

__all__ = ["CannotRunHere", "Contacts", "LocalCassandra", "NodeNotReady", "NodetoolFailed"]
