"""The work of the nodes of a local Cassandra between two moments, as nodetool shows it."""

from __future__ import annotations

import re
from typing import Final

from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra import NodetoolFailed

#: Figures of `nodetool tablestats`: their names there, and here.
_TABLE: Final = {
    "Local read count": "reads",
    "Local write count": "writes",
    "Speculative retries": "speculative_reads",
    "SSTable count": "sstables",
    "Average tombstones per slice (last five minutes)": "tombstones_per_read",
}
#: Those that show a state, not a total that grows.
_STATES: Final = frozenset(("sstables", "tombstones_per_read"))
#: Those that nodetool itself counts since its last call.
_SINCE: Final = frozenset(("gc_ms", "collections"))
#: Pools of `nodetool tpstats` whose completed work says what faults left behind.
_POOLS: Final = {"HintsDispatcher": "hints_dispatched", "CompactionExecutor": "compaction_tasks"}


class ServerLoad:
    """Totals of all nodes since `since_last` was last called; nodes that are down or just starting show nothing."""

    def __init__(self, nodes: LocalCassandra, table: str) -> None:
        """Watch this table (`keyspace.table`)."""
        self._nodes = nodes
        self._table = table
        self._before: dict[int, dict[str, float]] = {}

    def since_last(self) -> dict[str, float]:
        """Reads, writes, collections and compactions since then, added up over the nodes; states are their averages."""
        values = [each for number, _ in enumerate(self._nodes.contact_points, 1) if (each := self._since_last(number))]
        names = values[0] if values else ()
        return {name: sum(each[name] for each in values) / (len(values) if name in _STATES else 1) for name in names}

    def _since_last(self, node: int) -> dict[str, float]:
        """What one node did; one that was started again counts from zero."""
        try:
            now = {} if node in self._nodes.down else self._totals_of(node)
        except NodetoolFailed:
            now = {}
        before = self._before.get(node, {})
        self._before[node] = now or before
        return {name: _between(name, before.get(name, 0.0), total) for name, total in now.items()}

    def _totals_of(self, node: int) -> dict[str, float]:
        table = self._nodes.nodetool(node, "tablestats", self._table)
        values = {name: _after(table, words) for words, name in _TABLE.items()}
        pools = self._nodes.nodetool(node, "tpstats")
        values |= {name: float(_columns(pools, pool)[3]) for pool, name in _POOLS.items()}
        values["compacted_mb"] = (
            _after(self._nodes.nodetool(node, "compactionstats"), "data compacted", between=r"\s+") / 1e6
        )
        _, line = self._nodes.nodetool(node, "gcstats").strip().splitlines()[:2]
        _, _, milliseconds, _, _, count, *_ = line.split()
        return {**values, "gc_ms": float(milliseconds), "collections": float(count)}


def _between(name: str, before: float, now: float) -> float:
    """What was added between two totals."""
    return now if name in _STATES | _SINCE or now < before else now - before


def _after(text: str, words: str, *, between: str = r":\s*") -> float:
    """The number after these words; 0 if there is none (`NaN` for nothing read yet)."""
    found = re.search(rf"{re.escape(words)}{between}([0-9.]+)", text)
    return float(found[1]) if found else 0.0


def _columns(text: str, first: str) -> list[str]:
    """The line of a table that begins with this word; empty pools are not listed by every version."""
    return next((line.split() for line in text.splitlines() if line.startswith(f"{first} ")), [first, "0", "0", "0"])
