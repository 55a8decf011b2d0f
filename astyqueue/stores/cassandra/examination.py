"""Inquiry every node of a cluster how it is; what the answers mean is `judgement`'s to say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from cassandra import Unauthorized
from cassandra.cluster import Host

from astyqueue.clock import Clock
from astyqueue.findings import Finding
from astyqueue.store import ENTRIES
from astyqueue.stores.cassandra import judgement
from astyqueue.stores.cassandra.catalog import Catalog
from astyqueue.stores.cassandra.failures import FAILURES, told
from astyqueue.stores.cassandra.guardrails import GUARDRAILS
from astyqueue.stores.cassandra.inquiry import Inquiry
from astyqueue.stores.cassandra.judgement import Node, Offset, Tombstones
from astyqueue.stores.encoding import TABLES

_HERE: Final = "SELECT data_center, schema_version, release_version FROM system.local"
_TIME: Final = "SELECT toUnixTimestamp(now()) AS milliseconds FROM system.local"
_SETTINGS: Final = "SELECT name, value FROM system_views.settings"
_TOMBSTONES: Final = "SELECT p99th, max FROM system_views.tombstones_per_read WHERE keyspace_name = %s AND table_name = %s"
#: The clock of a node is asked for so often; the answer that came soonest tells the most.
_TRIES: Final = 5
_MILLISECOND: Final = 1_000
_WANTED: Final = {"paxos_variant", "tombstone_warn_threshold", *(guardrail.setting for guardrail in GUARDRAILS)}


class Examination:
    """One look at all nodes of this data centre."""

    def __init__(self, inquiry: Inquiry, *, clock: Clock) -> None:
        """Ask whoever is there."""
        self._inquiry = inquiry
        self._clock = clock
        (here,) = inquiry.anyone(_HERE)
        self.dc = here.data_center
        hosts = sorted(inquiry.cluster.metadata.all_hosts(), key=lambda host: str(host.address))
        self._nodes = [self._node(host) for host in hosts if host.datacenter == self.dc]
        self._elsewhere = sum(host.datacenter != self.dc for host in hosts)

    def of_cluster(self) -> Iterator[Finding]:
        """What is so whatever the keyspace."""
        up = [node for node in self._nodes if not node.silent]
        yield judgement.paxos(up)
        yield from judgement.releases(up)
        yield from judgement.guardrails(up)
        yield judgement.clock_here(up)
        yield judgement.clocks_between(up)
        yield judgement.agreement(up)

    def of_keyspace(self, rests: Mapping[str, int]) -> Iterator[Finding]:
        """What is so for the queues of the keyspace, which must be there."""
        catalog = Catalog(self._inquiry)
        kept, tables = catalog.keyspace(), catalog.tables()
        if kept is None:
            return
        yield judgement.nodes(self.dc, self._nodes, copies=kept.copies(self.dc), elsewhere=self._elsewhere)
        yield from judgement.replication(self.dc, kept, nodes=len(self._nodes))
        yield from judgement.tombstones(node for node in self._nodes if not node.silent)
        if ENTRIES in tables:
            yield from judgement.rests(int(str(tables[ENTRIES].options["gc_grace_seconds"])), rests)

    def _node(self, host: Host) -> Node:
        name = str(host.address)
        try:
            (here,) = self._inquiry.one(host, _HERE)
            offset = min((self._offset(host) for _ in range(_TRIES)), key=lambda offset: offset.uncertain)
            known = Node(name, schema=str(here.schema_version), release=here.release_version, offset=offset)
        except FAILURES as error:
            return Node(name, silent=told(error))
        try:
            tombstones = {table: self._tombstones(host, table) for table in sorted(TABLES)}
            return replace(known, settings=self._settings(host), tombstones=tombstones)
        except Unauthorized:
            return replace(known, forbidden=True)
        except FAILURES:  # a server too old to tell
            return known

    def _offset(self, host: Host) -> Offset:
        """How far a node is ahead of our clock, give or take half the time that asking took."""
        began = self._clock.monotonic()
        asked_at = self._clock.now()
        (row,) = self._inquiry.one(host, _TIME)
        took = self._clock.monotonic() - began
        return Offset(row.milliseconds * _MILLISECOND - asked_at - took // 2, took // 2 + _MILLISECOND)

    def _settings(self, host: Host) -> dict[str, str]:
        """Those we ask for; one that is not set has no value."""
        return {row.name: row.value for row in self._inquiry.one(host, _SETTINGS) if row.name in _WANTED and row.value is not None}

    def _tombstones(self, host: Host, table: str) -> Tombstones:
        found = self._inquiry.one(host, _TOMBSTONES, self._inquiry.keyspace, table)
        return Tombstones(int(found[0].p99th), int(found[0].max)) if found else Tombstones(0, 0)
