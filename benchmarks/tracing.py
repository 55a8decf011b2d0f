"""What a server says it did for the requests of an action, by Cassandra's own tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cassandra.cluster import ResponseFuture, Session

from astyqueue.stores.cassandra import CassandraStore

_PATIENCE_SECONDS: Final = 10


def traced(store: CassandraStore, action: Callable[[], object]) -> list[str]:
    """The activities of every request that the action makes through this store."""
    session: Session = store._session  # noqa: SLF001 - tracing is a wish of the driver's session, which the port has no word for
    futures: list[ResponseFuture] = []
    plain = session.execute_async

    def ask(*arguments: object, **options: object) -> ResponseFuture:
        future = plain(*arguments, **{**options, "trace": True})
        futures.append(future)
        return future

    session.execute_async = ask
    try:
        action()
    finally:
        session.execute_async = plain
    return [
        event.description for future in futures for event in future.get_query_trace(max_wait=_PATIENCE_SECONDS).events
    ]
