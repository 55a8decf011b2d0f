"""Stores: memory, SQLite and Cassandra. An adapter is imported when a URL asks for it, never before."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from astyqueue.clock import Clock
from astyqueue.errors import BadSetting
from astyqueue.store import Store
from astyqueue.stores.location import locate

_KINDS: Final = "memory://, memory://shared-name, sqlite:///relative.db, sqlite:////absolute.db, cassandra://host1,host2/keyspace"


@runtime_checkable
class DriverSession(Protocol):
    """A session of Cassandra's driver that an application has already; it stays the application's to close."""

    keyspace: str | None

    def execute_async(self, query: object) -> object:
        """Ask something."""
        ...


def open_store(place: str | DriverSession, *, clock: Clock, relaxed: bool = False, create: bool = True) -> Store:
    """The store that a URL names, or that is in a session's keyspace, ready to use; close it when done.

    `relaxed`: plain reads may be answered by any one replica, which need not have the last writes yet; for those who only look,
    and at much. Without `create` a SQLite file that is not there raises WrongSchema instead of being made. An unknown kind or option
    raises BadSetting, a place that cannot be used StoreUnavailable or StoreCorrupt.
    """
    if isinstance(place, DriverSession):
        from astyqueue.stores import cassandra  # noqa: PLC0415 - on demand; here the driver is loaded already

        return cassandra.lent(place)
    location = locate(place)
    if location.scheme == "memory":
        from astyqueue.stores import memory  # noqa: PLC0415 - on demand

        return memory.opened(location, clock=clock)
    if location.scheme == "sqlite":
        from astyqueue.stores import sqlite  # noqa: PLC0415 - on demand: nobody else pays for sqlite3

        return sqlite.opened(location, clock=clock, create=create)
    if location.scheme == "cassandra":
        from astyqueue.stores import cassandra  # noqa: PLC0415 - on demand: the driver takes a third of a second to import

        return cassandra.opened(location, clock=clock, relaxed=relaxed)
    message = f"there is no store of kind {location.scheme!r}; there are: {_KINDS}"
    raise BadSetting(message)
