"""Reads the metadata of a cluster: statements to any node or to one, and the tables of `system_schema`."""

from __future__ import annotations

from typing import Any, Final

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session
from cassandra.pool import Host
from cassandra.query import SimpleStatement, named_tuple_factory

from astyqueue.stores.cassandra.schema import keyspace
from astyqueue.stores.cassandra.schema.check import StoredTable
from astyqueue.stores.cassandra.schema.files import Option, in_words
from astyqueue.stores.cassandra.schema.home_data_centre import READ_HOME, HomeDataCentre

#: Creating a table waits for every node, which takes longer than the timeout of a request.
PATIENCE_SECONDS: Final = 60
#: The timeout of a request to one node; a node that does not answer in time counts as down.
NODE_SECONDS: Final = 2
_KEYSPACE: Final = "SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = %s"
_TABLES: Final = "SELECT * FROM system_schema.tables WHERE keyspace_name = %s"
_COLUMNS: Final = "SELECT * FROM system_schema.columns WHERE keyspace_name = %s"
_HERE: Final = "SELECT data_center FROM system.local"
_RECORDED: Final = "SELECT version FROM schema_versions WHERE part = 'schema'"


class Inquiry:
    """A session for administration. Rows have their columns as attributes, whatever the session's row factory."""

    def __init__(self, session: Session, keyspace: str) -> None:
        """`inside`, `near` and `everywhere` run their statements in this keyspace."""
        self.cluster = session.cluster
        self.keyspace = keyspace
        self._session = session
        self._profile = session.execution_profile_clone_update(EXEC_PROFILE_DEFAULT, row_factory=named_tuple_factory)

    def anyone(self, statement: str, *values: object) -> list[Any]:
        """The rows of a statement that any node can answer, such as one on the schema."""
        return list(
            self._session.execute(statement, values or None, timeout=PATIENCE_SECONDS, execution_profile=self._profile)
        )

    def one(self, host: Host, statement: str, *values: object) -> list[Any]:
        """The rows of a statement sent to this node only, within `NODE_SECONDS`."""
        answer = self._session.execute(
            statement, values or None, timeout=NODE_SECONDS, execution_profile=self._profile, host=host
        )
        return list(answer)

    def inside(self, statement: str, *values: object) -> list[Any]:
        """The rows of a statement at QUORUM and SERIAL, so that migrations in two data centres exclude each other."""
        return self._run(statement, values, ConsistencyLevel.QUORUM)

    def near(self, statement: str, *values: object) -> list[Any]:
        """The rows of a statement at LOCAL_QUORUM: other data centres may be down."""
        return self._run(statement, values, ConsistencyLevel.LOCAL_QUORUM)

    def everywhere(self, statement: str, *values: object) -> list[Any]:
        """The rows of a statement at EACH_QUORUM: a majority in each data centre has it."""
        return self._run(statement, values, ConsistencyLevel.EACH_QUORUM)

    def _run(self, statement: str, values: tuple[object, ...], level: int) -> list[Any]:
        request = SimpleStatement(
            statement, keyspace=self.keyspace, consistency_level=level, serial_consistency_level=ConsistencyLevel.SERIAL
        )
        return list(
            self._session.execute(request, values or None, timeout=PATIENCE_SECONDS, execution_profile=self._profile)
        )


class Catalog:
    """The current metadata of a keyspace; every call queries the server."""

    def __init__(self, inquiry: Inquiry) -> None:
        """The metadata of the keyspace of `inquiry`."""
        self._inquiry = inquiry
        self.name = inquiry.keyspace

    def keyspace(self) -> keyspace.StoredKeyspace | None:
        """The keyspace; None if it does not exist."""
        found = self._inquiry.anyone(_KEYSPACE, self._inquiry.keyspace)
        if not found:
            return None
        kept = {str(name): str(value) for name, value in dict(found[0].replication).items()}
        kept["class"] = kept.get("class", "").rpartition(".")[2]
        return keyspace.StoredKeyspace(kept, found[0].durable_writes)

    def here(self) -> str:
        """The data centre of the nodes that answer this session."""
        (row,) = self._inquiry.anyone(_HERE)
        return str(row.data_center)

    def home(self) -> HomeDataCentre | None:
        """The stored home, by a majority of this data centre; the table of versions must exist."""
        return _home(self._inquiry.near(READ_HOME))

    def home_everywhere(self) -> HomeDataCentre | None:
        """The stored home, by a majority of all copies."""
        return _home(self._inquiry.inside(READ_HOME))

    def tables(self) -> dict[str, StoredTable]:
        """All tables of the keyspace, by name."""
        columns: dict[str, dict[str, str]] = {}
        for row in self._inquiry.anyone(_COLUMNS, self._inquiry.keyspace):
            words = f"{row.type}, {in_words(row.kind, row.position, row.clustering_order)}"
            columns.setdefault(row.table_name, {})[row.column_name] = words
        return {
            row.table_name: StoredTable(
                columns.get(row.table_name, {}), {name: _option(value) for name, value in row._asdict().items()}
            )
            for row in self._inquiry.anyone(_TABLES, self._inquiry.keyspace)
        }

    def versions(self) -> set[int]:
        """The recorded versions of the tables; the table of versions must exist."""
        return {row.version for row in self._inquiry.inside(_RECORDED)}


def _home(found: list[Any]) -> HomeDataCentre | None:
    return HomeDataCentre.parse(found[0].file, found[0].owner) if found else None


def _option(value: object) -> Option:
    return {str(key): str(each) for key, each in value.items()} if hasattr(value, "items") else str(value)
