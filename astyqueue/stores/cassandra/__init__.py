"""A store in a Cassandra keyspace, for many processes on many machines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from cassandra.cluster import Session

from astyqueue.clock import Clock
from astyqueue.errors import BadSetting, Closed, StoreUnavailable
from astyqueue.store import Batch, Column, Expectation, Outcome, Spread, Wanted
from astyqueue.stores import forks
from astyqueue.stores.cassandra.address import ANY_ONE, Address, Levels
from astyqueue.stores.cassandra.connecting import connect
from astyqueue.stores.cassandra.conversation import Conversation
from astyqueue.stores.cassandra.speculation import Counters
from astyqueue.stores.location import Location

__all__ = ["Address", "CassandraStore", "Counters", "Levels", "lent", "opened"]


class CassandraStore:
    """The columns of a keyspace. All threads of a process share one session; nodes that went away are found again.

    Types, priorities and states are 0 to 127 here. It may be used on both sides of a fork: the child connects anew at its
    first verb, unless it works with a session that was handed in, which cannot be shared with a parent.
    """

    #: An hour's row rests 29 hours, longer than what was deleted from it is kept, before its next turn.
    spread = Spread(time_shards=30, concurrency_shards=8)
    #: Each waits for the network, and one that waits for a node that is frozen must not keep others from theirs.
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
        """Work with a session that stays the caller's, or with those that a function makes, which are this store's to close.

        A session that is handed in belongs to a Cluster with execution profiles, which is the driver's default. `place` is
        what errors call the cluster, and `dc_is_chosen` says that it is no chance in which data centre the session asks.
        StoreUnavailable says what to do when the keyspace or its tables are not there, BadSetting when other clients of the
        keyspace ask in another data centre or with other levels.
        """
        self._make = session if callable(session) else None
        self._lent = None if callable(session) else session
        self._keyspace = keyspace
        self._levels = levels or Levels()
        self._place = place
        self._dc_is_chosen = dc_is_chosen
        self._guard = threading.Lock()
        self._closed = False
        self._session: Session | None = None
        self._talk: Conversation | None = None
        self._of_parent: list[object] = []
        try:
            self._conversation()
        except BaseException:
            self.close()
            raise
        forks.watch(self)

    def __str__(self) -> str:
        """Which keyspace it is, for people who read a log."""
        return f"cassandra:{self._keyspace}"

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        """As the port says."""
        return self._conversation().read(wanted, exact=exact)

    def send(self, batch: Batch, *more: Batch) -> None:
        """As the port says; all are under way at once."""
        self._conversation().send((batch, *more))

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """As the port says."""
        return self._conversation().commit(batch, expects)

    @property
    def counters(self) -> Counters:
        """How many requests were sent in the present session, and how many of them to a further node."""
        return self._conversation().counters

    def close(self) -> None:
        """End the session if it is this store's; a verb that is still running may fail as if the cluster had gone."""
        self._closed = True
        with self._guard:
            session, self._session, self._talk, self._lent = self._session, None, None, None
        if session is not None:
            session.cluster.shutdown()

    def before_fork(self) -> None:
        """Let nobody connect meanwhile; requests under way go on in the parent."""
        self._guard.acquire()

    def after_fork(self, *, child: bool) -> None:
        """The child connects anew. It keeps what it copied and never touches it: its sockets are the parent's."""
        if child:
            self._of_parent += [self._session, self._talk, self._lent]
            self._session = self._talk = self._lent = None
        self._guard.release()

    def _conversation(self) -> Conversation:
        return self._talk or self._begun()

    def _begun(self) -> Conversation:
        with self._guard:
            if self._closed:
                message = f"this store on {self._place} was closed; open a new one"
                raise Closed(message)
            if self._talk is None:
                self._talk = Conversation(
                    self._connected(), self._keyspace, levels=self._levels, place=self._place, dc_is_chosen=self._dc_is_chosen
                )
            return self._talk

    def _connected(self) -> Session:
        """The session to talk in; called with the guard held."""
        if self._lent is not None:
            return self._lent
        if self._make is None:
            message = "this process is a fork, and the session that was handed in belongs to its parent; make the store after the fork"
            raise StoreUnavailable(message)
        if self._session is None:
            self._session = self._make()
        return self._session


def opened(location: Location, *, clock: Clock, relaxed: bool = False) -> CassandraStore:
    """`cassandra://user:password@host1,host2/keyspace`.

    Options: `dc` is the data centre to ask, `consistency` and `serial` are levels, `tls`, `ca`, `cert` and `key` encrypt, and
    `password_file` has the password of a user who is named without one. When `relaxed`, plain reads ask one replica.
    """
    address = Address.of(location)
    levels = replace(address.levels, reads=ANY_ONE) if relaxed else address.levels
    connecting = partial(connect, address, clock)
    return CassandraStore(connecting, address.keyspace, levels=levels, place=address.shown, dc_is_chosen=bool(address.dc))


def lent(session: Session) -> CassandraStore:
    """The store in the keyspace of a session, which stays the caller's; without a keyspace BadSetting."""
    if session.keyspace is None:
        message = "this session of the driver has no keyspace: make it with cluster.connect('name'), or call its set_keyspace('name')"
        raise BadSetting(message)
    return CassandraStore(session, session.keyspace, place=f"Cassandra, keyspace {session.keyspace} of the session that was handed in")
