"""Asking a cluster about itself: single statements, patiently, of any node or of a particular one."""

from __future__ import annotations

from typing import Any, Final

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session
from cassandra.pool import Host
from cassandra.query import SimpleStatement, named_tuple_factory

#: Making a table waits for every node; the time of a request would not do.
PATIENCE_SECONDS: Final = 60
#: One node is asked for so long; one that is away for longer counts as away.
NODE_SECONDS: Final = 2


class Inquiry:
    """A session for those who look after a keyspace. Rows have their columns as attributes, whatever the session does."""

    def __init__(self, session: Session, keyspace: str) -> None:
        """Statements without a keyspace in them mean this one, if it is there."""
        self.cluster = session.cluster
        self.keyspace = keyspace
        self._session = session
        self._profile = session.execution_profile_clone_update(EXEC_PROFILE_DEFAULT, row_factory=named_tuple_factory)

    def anyone(self, statement: str, *values: object) -> list[Any]:
        """What any node answers, about what all nodes know."""
        return list(self._session.execute(statement, values or None, timeout=PATIENCE_SECONDS, execution_profile=self._profile))

    def one(self, host: Host, statement: str, *values: object) -> list[Any]:
        """What this node answers about itself."""
        answer = self._session.execute(statement, values or None, timeout=NODE_SECONDS, execution_profile=self._profile, host=host)
        return list(answer)

    def inside(self, statement: str, *values: object) -> list[Any]:
        """What the keyspace answers, of all data centres: two people in two of them are still two."""
        return self._asked(statement, values, ConsistencyLevel.QUORUM)

    def near(self, statement: str, *values: object) -> list[Any]:
        """What the keyspace answers in this data centre, whether or not others can be reached."""
        return self._asked(statement, values, ConsistencyLevel.LOCAL_QUORUM)

    def everywhere(self, statement: str, *values: object) -> list[Any]:
        """What the keyspace answers once a majority in each data centre has heard it."""
        return self._asked(statement, values, ConsistencyLevel.EACH_QUORUM)

    def _asked(self, statement: str, values: tuple[object, ...], level: int) -> list[Any]:
        asked = SimpleStatement(
            statement, keyspace=self.keyspace, consistency_level=level, serial_consistency_level=ConsistencyLevel.SERIAL
        )
        return list(self._session.execute(asked, values or None, timeout=PATIENCE_SECONDS, execution_profile=self._profile))
