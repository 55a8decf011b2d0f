"""Stores: memory, SQLite and Cassandra. An adapter is imported when a URL first names it.

- `memory`, `sqlite`, `cassandra`: the adapters of the port `astyqueue.store`. `column_name_codec` and `sorted_keys` are
  for the first two, whose columns are sorted by bytes; `schema_files` has the tables of the last two.
- `async_adapter`: the verbs of any store as coroutines, in threads if the store has none; `threadsafe_calls`: calls
  back into an event loop.
- `lazy_store`: a store that is opened when it is first needed. `fork_hooks`: what a store does around a fork.
- `url`: what a URL says. `admin`: preparing, verifying and examining a store, for commands.

`open_store` makes a store of a URL, or of a session of Cassandra's driver that the application has. An adapter knows
rows and columns, not messages. The conformance suite (`astyqueue.testing.conformance`) holds each to the port.
docs/reference/url.md has the URLs, CONTRIBUTING.md how to add a store.
"""

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
