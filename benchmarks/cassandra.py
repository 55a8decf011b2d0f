"""A Cassandra to measure on: nodes of our own, set as `cassandra.yaml` has them, or one that runs already."""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cassandra.cluster import Session

from astyqueue.stores.cassandra import Address
from astyqueue.stores.cassandra.admin import KeyspaceAdministration
from astyqueue.stores.cassandra.connection.cluster import connect
from astyqueue.stores.cassandra.schema.keyspace import Keyspace, replication
from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra import Contacts
from benchmarks.target import CLOCK

#: The nodes of tests are small and start quickly; these have the memory and the commit log that `cassandra.yaml` gives
#: a node, and both of Java's compilers.
_SETTINGS: Final = {
    "commitlog_sync": "periodic",
    "commitlog_sync_period": "10s",
    "commitlog_segment_size": "32MiB",
    "commitlog_total_space": "2GiB",
    "memtable_heap_space": "512MiB",
    "memtable_offheap_space": "512MiB",
    "file_cache_size": "256MiB",
}
_HEAP: Final = "2g"
_JAVA: Final = ("-XX:TieredStopAtLevel=4",)
_PATIENCE_SECONDS: Final = 120
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class OnCassandra:
    """A keyspace that is emptied for each measurement; `nodes` are ours, if any are."""

    session: Session
    contacts: Contacts
    keyspace: str
    nodes: LocalCassandra | None = None
    copies: int = 1
    store: str = "cassandra"
    shared: bool = True

    @property
    def conditions(self) -> dict[str, object]:
        """How many nodes of which version, ours or not."""
        version = self.session.execute("SELECT release_version FROM system.local").one()[0]
        return {"cassandra": version, "nodes": len(self.contacts.contact_points), "own_nodes": self.nodes is not None}

    @contextlib.contextmanager
    def fresh(self) -> Iterator[str]:
        """The same keyspace, emptied."""
        gc.collect()
        for table in ("entries", "history"):
            self.session.execute(f'TRUNCATE "{self.keyspace}"."{table}"', timeout=_PATIENCE_SECONDS)
        yield self.contacts.url(self.keyspace)

    @contextlib.contextmanager
    def beside(self) -> Iterator[str]:
        """Another keyspace on the same nodes, as new; it is gone afterwards."""
        with _keyspace(self.session, self.copies) as made:
            yield self.contacts.url(made)

    def store_cpu_s(self) -> float | None:
        """Of all nodes together."""
        return None if self.nodes is None else sum(map(cpu_s, _pids(self.nodes)))

    def flush(self) -> None:
        """Have the nodes write to their disks what they hold in memory; nothing is compacted for it."""
        if self.nodes is not None:
            for number, _ in enumerate(self.contacts.contact_points, 1):
                self.nodes.nodetool(number, "flush")


@contextlib.contextmanager
def on_cassandra(nodes: int, at: str | None) -> Iterator[OnCassandra]:
    """A keyspace for the length of a block, on `nodes` local nodes or on the Cassandra at the contact points `at`."""
    with contextlib.ExitStack() as held:
        local = None
        if at is None:
            local = held.enter_context(LocalCassandra(nodes, settings=_SETTINGS, heap=_HEAP, java_options=_JAVA))
        contacts = local.contacts if local else Contacts.parse(at or "")
        session = connect(Address(contacts.contact_points, "system", contacts.port), CLOCK)
        held.callback(session.cluster.shutdown)
        keyspace = held.enter_context(_keyspace(session, nodes))
        yield OnCassandra(session, contacts, keyspace, local, nodes)


@contextlib.contextmanager
def _keyspace(session: Session, copies: int) -> Iterator[str]:
    made = f"astyqueue_benchmark_{secrets.token_hex(4)}"
    KeyspaceAdministration(session, Keyspace(made, replication(str(copies))), clock=CLOCK).migrate()
    yield made
    session.execute(f'DROP KEYSPACE "{made}"', timeout=_PATIENCE_SECONDS)


def _pids(nodes: LocalCassandra) -> list[int]:
    numbered = [nodes.pid(number) for number, _ in enumerate(nodes.contact_points, 1)]
    return [pid for pid in numbered if pid is not None]


def cpu_s(pid: int) -> float:
    """Seconds of processor time of a process, its own and the kernel's for it."""
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / _TICKS
