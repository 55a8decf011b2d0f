"""Stores: memory, SQLite and Cassandra. An adapter is imported when a URL first names it."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from astyqueue.clock import Clock
from astyqueue.errors import BadSetting
from astyqueue.store import Store
from astyqueue.stores.url import Location, locate

_KINDS: Final = (
    "memory://, memory://shared-name, sqlite:///relative.db, sqlite:////absolute.db, cassandra://host1,host2/keyspace"
)


@runtime_checkable
class DriverSession(Protocol):
    """A session of Cassandra's driver that belongs to the application, which closes it."""

    keyspace: str | None

    def execute_async(self, query: object) -> object:
        """Start a request."""
        ...


def open_store(place: str | DriverSession, *, clock: Clock, relaxed: bool = False, create: bool = True) -> Store:
    """The store at a URL, or in a session's keyspace, ready to use; the caller closes it.

    `relaxed`: any one replica may answer a plain read, and may lack the last writes; for large reads that change
    nothing. Without `create` a missing SQLite file raises WrongSchema. An unknown kind or option raises BadSetting, an
    unusable place StoreUnavailable or StoreCorrupt.
    """
    if isinstance(place, DriverSession):
        from astyqueue.stores import cassandra  # noqa: PLC0415 - on demand; here the driver is loaded already

        return cassandra.lent(place)
    location = located(place)
    if location.scheme == "memory":
        from astyqueue.stores import memory  # noqa: PLC0415 - on demand

        return memory.opened(location, clock=clock)
    if location.scheme == "sqlite":
        from astyqueue.stores import sqlite  # noqa: PLC0415 - on demand: only SQLite stores load sqlite3

        return sqlite.opened(location, clock=clock, create=create)
    from astyqueue.stores import cassandra  # noqa: PLC0415 - on demand: the driver takes a third of a second to import

    return cassandra.opened(location, clock=clock, relaxed=relaxed)


def located(url: str) -> Location:
    """The parts of a store's URL; BadSetting if it is malformed or of an unknown kind. Nothing is opened."""
    location = locate(url)
    if location.scheme not in ("memory", "sqlite", "cassandra"):
        message = f"unknown kind of store {location.scheme!r}; there are: {_KINDS}"
        raise BadSetting(message)
    return location
