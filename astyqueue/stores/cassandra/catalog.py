"""What a cluster says that a keyspace and its tables are."""

from __future__ import annotations

from typing import Any, Final

from astyqueue.stores.cassandra import keyspace
from astyqueue.stores.cassandra.home import READ_HOME, Home
from astyqueue.stores.cassandra.inquiry import Inquiry
from astyqueue.stores.cassandra.schema.declared import Option, in_words
from astyqueue.stores.cassandra.verification import Kept

_KEYSPACE: Final = "SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = %s"
_TABLES: Final = "SELECT * FROM system_schema.tables WHERE keyspace_name = %s"
_COLUMNS: Final = "SELECT * FROM system_schema.columns WHERE keyspace_name = %s"
_HERE: Final = "SELECT data_center FROM system.local"
_RECORDED: Final = "SELECT version FROM schema_versions WHERE part = 'schema'"


class Catalog:
    """Looks each thing up as it is now."""

    def __init__(self, inquiry: Inquiry) -> None:
        """Look there."""
        self._inquiry = inquiry
        self.name = inquiry.keyspace

    def keyspace(self) -> keyspace.Kept | None:
        """The keyspace, if it is there."""
        found = self._inquiry.anyone(_KEYSPACE, self._inquiry.keyspace)
        if not found:
            return None
        kept = {str(name): str(value) for name, value in dict(found[0].replication).items()}
        kept["class"] = kept.get("class", "").rpartition(".")[2]
        return keyspace.Kept(kept, found[0].durable_writes)

    def here(self) -> str:
        """The data centre of the nodes that are asked."""
        (row,) = self._inquiry.anyone(_HERE)
        return str(row.data_center)

    def home(self) -> Home | None:
        """The home that the keyspace says it has, as this data centre knows it; the table of versions must be there."""
        return _home(self._inquiry.near(READ_HOME))

    def home_everywhere(self) -> Home | None:
        """The same as a majority of all copies knows it."""
        return _home(self._inquiry.inside(READ_HOME))

    def tables(self) -> dict[str, Kept]:
        """All tables of the keyspace, by name."""
        columns: dict[str, dict[str, str]] = {}
        for row in self._inquiry.anyone(_COLUMNS, self._inquiry.keyspace):
            words = f"{row.type}, {in_words(row.kind, row.position, row.clustering_order)}"
            columns.setdefault(row.table_name, {})[row.column_name] = words
        return {
            row.table_name: Kept(columns.get(row.table_name, {}), {name: _option(value) for name, value in row._asdict().items()})
            for row in self._inquiry.anyone(_TABLES, self._inquiry.keyspace)
        }

    def versions(self) -> set[int]:
        """The versions of the tables that are recorded; the table for it must be there."""
        return {row.version for row in self._inquiry.inside(_RECORDED)}


def _home(found: list[Any]) -> Home | None:
    return Home.kept(found[0].file, found[0].owner) if found else None


def _option(value: object) -> Option:
    return {str(key): str(each) for key, each in value.items()} if hasattr(value, "items") else str(value)
