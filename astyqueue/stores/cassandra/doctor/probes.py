"""Queries every node of a data centre for its state; `checks` makes findings of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from cassandra import Unauthorized
from cassandra.cluster import Host

from astyqueue.clock import Clock
from astyqueue.findings import Finding
from astyqueue.store import ENTRIES
from astyqueue.stores.cassandra.connection.errors import FAILURES, describe
from astyqueue.stores.cassandra.doctor import checks
from astyqueue.stores.cassandra.doctor.checks import GUARDRAILS, Node, Offset, Tombstones
from astyqueue.stores.cassandra.schema.system_schema import Catalog, Inquiry
from astyqueue.stores.column_name_codec import TABLES

_HERE: Final = "SELECT data_center, schema_version, release_version FROM system.local"
_TIME: Final = "SELECT toUnixTimestamp(now()) AS milliseconds FROM system.local"
_SETTINGS: Final = "SELECT name, value FROM system_views.settings"
_TOMBSTONES: Final = (
    "SELECT p99th, max FROM system_views.tombstones_per_read WHERE keyspace_name = %s AND table_name = %s"
)
#: The number of times to query a node's clock; the fastest answer has the least error.
_TRIES: Final = 5
_MILLISECOND: Final = 1_000
_WANTED: Final = {"paxos_variant", "tombstone_warn_threshold", *(guardrail.setting for guardrail in GUARDRAILS)}


class Examination:
    """The state of all nodes of this data centre, queried once."""

    def __init__(self, inquiry: Inquiry, *, clock: Clock) -> None:
        """Query all nodes; one that does not answer is recorded as such."""
        self._inquiry = inquiry
        self._clock = clock
        (here,) = inquiry.anyone(_HERE)
        self.dc = here.data_center
        hosts = sorted(inquiry.cluster.metadata.all_hosts(), key=lambda host: str(host.address))
        self._nodes = [self._node(host) for host in hosts if host.datacenter == self.dc]
        self._elsewhere = sum(host.datacenter != self.dc for host in hosts)

    def of_login(self, *, in_clear: bool) -> Iterator[Finding]:
        """The finding on the login, which goes to every node of this data centre; `in_clear`: without encryption."""
        return checks.login((node.name for node in self._nodes), in_clear=in_clear)

    def of_cluster(self) -> Iterator[Finding]:
        """The findings that do not depend on a keyspace."""
        up = [node for node in self._nodes if not node.silent]
        yield checks.paxos(up)
        yield from checks.releases(up)
        yield from checks.guardrails(up)
        yield checks.clock_here(up)
        yield checks.clocks_between(self._nodes)
        yield checks.agreement(up)

    def of_keyspace(self, rests: Mapping[str, int]) -> Iterator[Finding]:
        """The findings on the keyspace and its queues; none if it does not exist."""
        catalog = Catalog(self._inquiry)
        kept, tables = catalog.keyspace(), catalog.tables()
        if kept is None:
            return
        yield checks.nodes(self.dc, self._nodes, copies=kept.copies(self.dc), elsewhere=self._elsewhere)
        yield from checks.replication(self.dc, kept, nodes=len(self._nodes))
        yield from checks.tombstones(node for node in self._nodes if not node.silent)
        if ENTRIES in tables:
            yield from checks.rests(int(str(tables[ENTRIES].options["gc_grace_seconds"])), rests)

    def _node(self, host: Host) -> Node:
        name = str(host.address)
        try:
            (here,) = self._inquiry.one(host, _HERE)
            offset = min((self._offset(host) for _ in range(_TRIES)), key=lambda offset: offset.uncertain)
            known = Node(name, schema=str(here.schema_version), release=here.release_version, offset=offset)
        except FAILURES as error:
            return Node(name, silent=describe(error))
        try:
            tombstones = {table: self._tombstones(host, table) for table in sorted(TABLES)}
            return replace(known, settings=self._settings(host), tombstones=tombstones)
        except Unauthorized:
            return replace(known, forbidden=True)
        except FAILURES:  # releases before 4.0 have no system_views
            return known

    def _offset(self, host: Host) -> Offset:
        """How far a node's clock is ahead of this one, ± half the time of the request."""
        began = self._clock.monotonic()
        sent_at = self._clock.now()
        (row,) = self._inquiry.one(host, _TIME)
        took = self._clock.monotonic() - began
        return Offset(row.milliseconds * _MILLISECOND - sent_at - took // 2, took // 2 + _MILLISECOND)

    def _settings(self, host: Host) -> dict[str, str]:
        """The settings in `_WANTED` that have a value."""
        return {
            row.name: row.value
            for row in self._inquiry.one(host, _SETTINGS)
            if row.name in _WANTED and row.value is not None
        }

    def _tombstones(self, host: Host, table: str) -> Tombstones:
        found = self._inquiry.one(host, _TOMBSTONES, self._inquiry.keyspace, table)
        return Tombstones(int(found[0].p99th), int(found[0].max)) if found else Tombstones(0, 0)
