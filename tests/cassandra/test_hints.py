"""What docs/how-to/production.md tells of Cassandra's hints is what a node has that nobody has set."""

from __future__ import annotations

from cassandra.cluster import Session

from astyqueue.durations import as_microseconds
from astyqueue.stores.cassandra.schema.check import GC_GRACE, LEAST_GC_GRACE
from astyqueue.units import SECOND
from tests.unit.test_docs import DOCS, table_below


def test_the_page_tells_the_defaults_of_hints_and_the_window_is_shorter_than_gc_grace(session: Session) -> None:
    told = {cells[0]: cells[1] for cells in table_below(DOCS / "how-to/production.md", "| hints |")}
    found = {f"`{row.name}`": row.value for row in session.execute("SELECT name, value FROM system_views.settings")}
    assert {name: cell.split("`")[1] for name, cell in told.items()} == {name: found[name] for name in told}
    assert as_microseconds(found["`max_hint_window`"]) < LEAST_GC_GRACE * SECOND < GC_GRACE * SECOND
