"""A store in a Cassandra keyspace, for many processes on many machines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from cassandra.cluster import Session

from astyqueue.clock import Clock
from astyqueue.errors import BadSetting, Closed, StoreUnavailable
from astyqueue.store import Batch, Column, Expectation, Outcome, Spread, Wanted
from astyqueue.stores.cassandra.connection.cluster import connect
from astyqueue.stores.cassandra.connection.settings import ANY_ONE, Address, Levels
from astyqueue.stores.cassandra.requests.attempt import RequestSteps, carried_out
from astyqueue.stores.cassandra.requests.client import PreparedSession
from astyqueue.stores.cassandra.requests.loop_requests import LoopRequests
from astyqueue.stores.cassandra.requests.speculation import Counters
from astyqueue.stores.fork_hooks import HeldLocks, call_at_forks
from astyqueue.stores.threadsafe_calls import PerLoop
from astyqueue.stores.url import Location
from astyqueue.waiting import in_thread

T = TypeVar("T")


class CassandraStore:
    """The columns of a keyspace. All threads of a process share one session; it reconnects to nodes that were down.

    Types, priorities and states are 0 to 127 here. It may be used on both sides of a fork: the child reconnects at its
    first request, unless the session was passed in, which a child cannot share with its parent.
    """

    #: The row of an hour rests for 29 hours before its next turn, longer than its tombstones are kept (24 h).
    spread = Spread(time_shards=30, concurrency_shards=8)
    #: Requests wait for the network, and one that waits for a frozen node must not block the others.
    at_once = 64

    def __init__(
        self,
        session: Session | Callable[[], Session],
        keyspace: str,
        *,
        levels: Levels | None = None,
        place: str = "Cassandra",
        dc_is_chosen: bool = True,
    ) -> None:
        """Work with the caller's session, which `close` leaves open, or with those of a function, which it ends.

        The Cluster of a session that is passed in must use execution profiles, the driver's default. Errors call the
        cluster `place`; `dc_is_chosen`: the data centre of the session was configured, not left to chance. Raises
        WrongSchema if the keyspace or its tables do not exist, BadSetting if the keyspace has another home or other
        levels.
        """
        self._make = session if callable(session) else None
        self._lent = None if callable(session) else session
        self._keyspace = keyspace
        self._levels = levels or Levels()
        self._place = place
        self._dc_is_chosen = dc_is_chosen
        self._guard = threading.Lock()
        self._held = HeldLocks()
        self._closed = False
        self._session: Session | None = None
        self._prepared_session: PreparedSession | None = None
        self._of_parent: list[object] = []
        self._for_tasks = AsyncCassandraStore(self)
        try:
            self.prepared_session()
        except BaseException:
            self.close()
            raise
        call_at_forks(self)

    def __str__(self) -> str:
        """The keyspace, for logs."""
        return f"cassandra:{self._keyspace}"

    def __repr__(self) -> str:
        """The keyspace."""
        return f"<CassandraStore {self._keyspace}{', closed' if self._closed else ''}>"

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """See `Store.read`."""
        return carried_out(self.prepared_session().read(wanted, exact=exact))

    def send(self, batch: Batch, *more: Batch) -> None:
        """See `Store.send`; all batches are sent at once."""
        carried_out(self.prepared_session().send((batch, *more)))

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """See `Store.commit`."""
        return carried_out(self.prepared_session().commit(batch, expects))

    def as_async(self) -> AsyncCassandraStore:
        """See `AsyncCapableStore`."""
        return self._for_tasks

    @property
    def counters(self) -> Counters:
        """The number of requests in the current session, and of those that were repeated at a further node."""
        return self.prepared_session().counters

    def close(self) -> None:
        """End the session if this store made it; a request in flight may fail as if the cluster were down."""
        self._closed = True
        with self._guard:
            session, self._session, self._prepared_session, self._lent = self._session, None, None, None
        if session is not None:
            session.cluster.shutdown()

    def before_fork(self) -> None:
        """Keep other threads from connecting during the fork; requests in flight go on in the parent."""
        self._held.take((self._guard,))

    def after_fork(self, *, child: bool) -> None:
        """The child reconnects. It keeps the copied session and never uses it: its sockets belong to the parent."""
        if child:
            self._of_parent += [self._session, self._prepared_session, self._lent]
            self._session = self._prepared_session = self._lent = None
        self._held.release()

    def prepared_session(self) -> PreparedSession:
        """What requests are made with; connects if this process has not, which blocks for seconds at most."""
        return self._prepared_session or self._connect()

    @property
    def prepared_session_if_connected(self) -> PreparedSession | None:
        """What requests are made with; None if the next one has to connect, or fails because the store was closed."""
        return self._prepared_session

    def _connect(self) -> PreparedSession:
        with self._guard:
            if self._closed:
                message = f"this store on {self._place} was closed; open a new one"
                raise Closed(message)
            if self._prepared_session is None:
                self._prepared_session = PreparedSession(
                    self._usable_session(),
                    self._keyspace,
                    levels=self._levels,
                    place=self._place,
                    dc_is_chosen=self._dc_is_chosen,
                )
            return self._prepared_session

    def _usable_session(self) -> Session:
        """The session; the caller holds the guard."""
        if self._lent is not None:
            return self._lent
        if self._make is None:
            message = (
                "this process is a fork, and the session that was passed in belongs to its parent; "
                "create the store after the fork"
            )
            raise StoreUnavailable(message)
        if self._session is None:
            self._session = self._make()
        return self._session


class AsyncCassandraStore:
    """The verbs of a `CassandraStore` for tasks, also of several event loops: no thread waits for their requests.

    Requests are made as those of threads are, by the same steps in the same session, and the driver's threads wake the
    event loop when an answer has come. Connecting, which a child process does at its first request, and closing are
    left to a thread.
    """

    def __init__(self, store: CassandraStore) -> None:
        """Use `CassandraStore.as_async`."""
        self._store = store
        self._requests = PerLoop(LoopRequests)

    def __repr__(self) -> str:
        """The store."""
        return repr(self._store)

    async def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """See `Store.read`."""
        prepared_session = await self._prepared_session()
        return await self._begin(prepared_session.read(wanted, exact=exact))

    async def send(self, batch: Batch, *more: Batch) -> None:
        """See `Store.send`; all batches are sent at once."""
        prepared_session = await self._prepared_session()
        await self._begin(prepared_session.send((batch, *more)))

    async def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """See `Store.commit`."""
        prepared_session = await self._prepared_session()
        return await self._begin(prepared_session.commit(batch, expects))

    async def close(self) -> None:
        """See `Store.close`."""
        await in_thread(self._store.close)

    async def _prepared_session(self) -> PreparedSession:
        connected = self._store.prepared_session_if_connected
        return await in_thread(self._store.prepared_session) if connected is None else connected

    def _begin(self, steps: RequestSteps[T]) -> asyncio.Future[T]:
        return self._requests.here().begin(steps)


def opened(location: Location, *, clock: Clock, relaxed: bool = False) -> CassandraStore:
    """`cassandra://user:password@host1,host2/keyspace`.

    Options: `dc` is the data centre to use, `consistency` and `serial` are levels, `tls`, `ca`, `cert` and `key`
    encrypt, and `password_file` has the password of a user who is named without one. When `relaxed`, plain reads need
    one replica.
    """
    address = Address.of(location)
    levels = replace(address.levels, reads=ANY_ONE) if relaxed else address.levels
    connecting = partial(connect, address, clock)
    return CassandraStore(
        connecting, address.keyspace, levels=levels, place=address.shown, dc_is_chosen=bool(address.dc)
    )


def lent(session: Session) -> CassandraStore:
    """The store in the keyspace of the caller's session, which stays open; BadSetting if it has no keyspace."""
    if session.keyspace is None:
        message = (
            "this driver session has no keyspace: create it with cluster.connect('name'), "
            "or call its set_keyspace('name')"
        )
        raise BadSetting(message)
    return CassandraStore(
        session, session.keyspace, place=f"Cassandra, keyspace {session.keyspace} of the session that was passed in"
    )
