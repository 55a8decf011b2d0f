"""What is done to a keyspace as a whole, beside the port: making its tables, and seeing whether they are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, Self

from cassandra.cluster import Session

from astyqueue.clock import Clock
from astyqueue.errors import StoreError
from astyqueue.findings import Finding, Severity, ok, worst
from astyqueue.stores.cassandra.address import Address, Levels
from astyqueue.stores.cassandra.catalog import Catalog
from astyqueue.stores.cassandra.connecting import connect
from astyqueue.stores.cassandra.examination import Examination
from astyqueue.stores.cassandra.failures import FAILURES, failure_of_change, failure_of_read
from astyqueue.stores.cassandra.inquiry import Inquiry
from astyqueue.stores.cassandra.keyspace import Kept, Keyspace, replication
from astyqueue.stores.cassandra.migration import Migration, agree, as_run, newer
from astyqueue.stores.cassandra.schema import VERSIONS, newest, parts
from astyqueue.stores.cassandra.schema.declared import declared
from astyqueue.stores.cassandra.verification import verify_table
from astyqueue.stores.location import Location

_MIGRATE: Final = "run 'astyqueue migrate' on this URL"
_THEN_REPAIR: Final = "then 'nodetool repair --full' on every node"
_HERE: Final = "SELECT data_center FROM system.local"


class Administration:
    """Looks after one keyspace. It connects when it is first asked for something that needs a server."""

    def __init__(
        self,
        session: Session | Callable[[], Session],
        keyspace: Keyspace,
        *,
        clock: Clock,
        levels: Levels | None = None,
        place: str = "Cassandra",
    ) -> None:
        """Work in a session that stays the caller's, or in one that a function makes, which is closed in the end.

        `clock` is what the clocks of servers are compared with.
        """
        self._make = session if callable(session) else None
        self._session = None if callable(session) else session
        self._keyspace = keyspace
        self._clock = clock
        self._levels = levels or Levels()
        self._place = place

    def statements(self) -> list[str]:
        """All CQL that `migrate` would run on an empty cluster, in order; asks nobody."""
        run = [statement for part in parts(self._keyspace.name) for statement in as_run(part)]
        return [self._keyspace.statement(), f'USE "{self._keyspace.name}"', *run]

    def migrate(self) -> list[str]:
        """Make the keyspace and the tables that are missing; what was done, or that nothing was to be done.

        May be run again, and by two at once. What is there is left as it is; `verify` says whether it is right.
        """
        with self._told(failure_of_change):
            inquiry = self._inquiry()
            done = [*self._make_keyspace(inquiry), *Migration(inquiry).carry_out()]
        version = newest(self._keyspace.name)
        return done or [f"nothing to do: keyspace {self._keyspace.name} has version {version} of the tables, the newest"]

    def verify(self) -> list[Finding]:
        """Compare the keyspace, the version of its tables and the tables with what they should be."""
        with self._told(failure_of_read):
            inquiry = self._inquiry()
            kept = Catalog(inquiry).keyspace()
            if kept is None:
                reason = "there is nowhere to keep a queue"
                return [Finding(f"keyspace {self._keyspace.name}", Severity.PROBLEM, "is not there", reason, _MIGRATE)]
            return [self._verify_keyspace(inquiry, kept), *self._verify_tables(Catalog(inquiry))]

    def examine(self, rests: Mapping[str, int]) -> list[Finding]:
        """How the cluster, the keyspace and the clocks are. `rests`: for each queue, how long its rows rest, in microseconds."""
        with self._told(failure_of_read):
            examination = Examination(self._inquiry(), clock=self._clock, levels=self._levels)
            found = [*examination.of_cluster(), *examination.of_keyspace(rests)]
        try:
            return found + self.verify()
        except StoreError as error:
            reason, remedy = "too few nodes answer, or too late", "mend what is told of the nodes first, and ask again"
            return [*found, Finding("tables", Severity.PROBLEM, f"could not be compared: {error}", reason, remedy)]

    def ready(self) -> bool:
        """Whether a store can be opened here."""
        try:
            return worst(self.verify()) < Severity.PROBLEM
        except StoreError:
            return False

    def close(self) -> None:
        """End the session if it is not the caller's."""
        if self._make is not None and self._session is not None:
            self._session.cluster.shutdown()
            self._session = None

    def __enter__(self) -> Self:
        """Close on leaving the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """As `close`."""
        self.close()

    def _inquiry(self) -> Inquiry:
        if self._session is None and self._make is not None:
            self._session = self._make()
        return Inquiry(self._session, self._keyspace.name)

    def _make_keyspace(self, inquiry: Inquiry) -> Iterator[str]:
        kept = Catalog(inquiry).keyspace()
        if kept is not None:
            differs = self._keyspace.differs(kept, _data_centres(inquiry))
            if differs:
                yield f"left keyspace {self._keyspace.name} as it is; to change it: {differs}; {_THEN_REPAIR}"
            return
        (here,) = inquiry.anyone(_HERE)
        nodes = sum(host.datacenter == (self._keyspace.dc or here.data_center) for host in inquiry.cluster.metadata.all_hosts())
        statement = self._keyspace.statement(here.data_center, nodes)
        inquiry.anyone(statement)
        agree(inquiry)
        yield f"made keyspace {self._keyspace.name} with {statement.partition(' WITH ')[2]}"

    def _verify_keyspace(self, inquiry: Inquiry, kept: Kept) -> Finding:
        subject = f"keyspace {self._keyspace.name}"
        differs = self._keyspace.differs(kept, _data_centres(inquiry))
        fact = f"{kept.told()}, durable writes {'on' if kept.durable else 'off'}"
        if not differs:
            return ok(subject, fact)
        reason = "this is not what was asked for" if kept.durable else "a server that stops loses what it acknowledged last"
        return Finding(subject, Severity.WARNING, fact, reason, f"{differs}; {_THEN_REPAIR}")

    def _verify_tables(self, catalog: Catalog) -> Iterator[Finding]:
        tables = catalog.tables()
        yield self._verify_version(catalog.versions() if VERSIONS in tables else set())
        for part in parts(self._keyspace.name):
            for wanted in map(declared, part.statements):
                yield from verify_table(self._keyspace.name, wanted, tables.get(wanted.name))

    def _verify_version(self, recorded: set[int]) -> Finding:
        subject, known = f"version of the tables in keyspace {self._keyspace.name}", newest(self._keyspace.name)
        there = max(recorded, default=0)
        if there > known:
            reason = "it may do things in another way than this process expects"
            return Finding(subject, Severity.PROBLEM, newer(there, known), reason, "upgrade this process")
        if there < known:
            reason = "what later versions brought is missing"
            return Finding(subject, Severity.PROBLEM, f"{there or 'none is recorded'}; the newest is {known}", reason, _MIGRATE)
        return ok(subject, f"{there}, the newest")

    @contextmanager
    def _told(self, failure: Callable[[Exception, str], Exception]) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            raise failure(error, self._place) from error


def _data_centres(inquiry: Inquiry) -> set[str]:
    return {host.datacenter for host in inquiry.cluster.metadata.all_hosts()}


def administered(location: Location, *, clock: Clock, copies: str = "", durable: bool = True) -> Administration:
    """The keyspace of a `cassandra://` URL; `copies` as in `dc1:3` and `durable` are what it should be made with."""
    address = Address.of(location)
    keyspace = Keyspace(address.keyspace, replication(copies) if copies else None, durable, address.dc)
    return Administration(partial(connect, address, clock), keyspace, clock=clock, levels=address.levels, place=address.shown)
