"""Operations on a whole keyspace: creating its tables, verifying and examining them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Final, Self

from cassandra.cluster import Session

from astyqueue.clock import Clock
from astyqueue.errors import BadSetting, StoreError, saying_how_far
from astyqueue.findings import Finding, Severity, note, ok, worst
from astyqueue.stores.cassandra.connection.cluster import connect
from astyqueue.stores.cassandra.connection.errors import FAILURES, failure_of_change, failure_of_read
from astyqueue.stores.cassandra.connection.settings import Address, Levels
from astyqueue.stores.cassandra.doctor import checks
from astyqueue.stores.cassandra.doctor.probes import Examination
from astyqueue.stores.cassandra.schema.check import StoredTable, verify_table
from astyqueue.stores.cassandra.schema.files import VERSIONS, declared, literal, newest, parts
from astyqueue.stores.cassandra.schema.home_data_centre import KEEP_HOME, Client, HomeDataCentre, has_copies, objection
from astyqueue.stores.cassandra.schema.keyspace import Keyspace, StoredKeyspace, data_centres, replication
from astyqueue.stores.cassandra.schema.migrations import Migration, agree, as_run, newer
from astyqueue.stores.cassandra.schema.system_schema import Catalog, Inquiry
from astyqueue.stores.url import Location

_MIGRATE: Final = "run 'astyqueue migrate' on this URL"
_SEE_HOME: Final = "docs/how-to/cassandra.md#two-data-centres"


class KeyspaceAdministration:
    """The `Administration` of one keyspace. It connects at the first call that needs a server."""

    def __init__(
        self,
        session: Session | Callable[[], Session],
        keyspace: Keyspace,
        *,
        clock: Clock,
        levels: Levels | None = None,
        place: str = "Cassandra",
        home: str = "",
        move_home: bool = False,
        login_in_clear: bool = False,
    ) -> None:
        """Work in the caller's session, which `close` leaves open, or in one that a function makes, which `close` ends.

        The clocks of the servers are compared with `clock`. `home` is the data centre in which all clients of the
        keyspace must work; `move_home` replaces the stored home and levels. `login_in_clear`: the session sends its
        password without encryption.
        """
        if home and not (levels or Levels()).is_local:
            message = "with serial=serial all data centres decide together and a keyspace has no home: omit the home"
            raise BadSetting(message)
        if move_home and not (home or keyspace.dc):
            message = "moving the home of a keyspace requires the new one: --home NAME"
            raise BadSetting(message)
        self._make = session if callable(session) else None
        self._session = None if callable(session) else session
        self._keyspace = keyspace
        self._clock = clock
        self._levels = levels or Levels()
        self._place = place
        self._home = home
        self._move_home = move_home
        self._login_in_clear = login_in_clear

    def statements(self) -> list[str]:
        """All CQL that `migrate` would run on an empty cluster, in order; sends no request."""
        first, *others = parts(self._keyspace.name)
        home = self._wanted_home(data_centres(self._keyspace.replication or {}), "")
        once = f"{KEEP_HOME} IF NOT EXISTS"  # run again, it leaves a home that was moved since
        kept = [once.replace("%s", "{}").format(literal(home.dc), literal(home.levels))] if home else []
        run = [*as_run(first), *kept, *(statement for part in others for statement in as_run(part))]
        return [self._keyspace.statement(), f'USE "{self._keyspace.name}"', *run]

    def migrate(self) -> list[str]:
        """Make the keyspace and the tables that are missing; one line per change, or one that nothing was to do.

        Idempotent, and safe in several processes at once; an error says what was made before it. What exists is left as
        it is; `verify` compares it. With `move_home` it only moves the home, and sends requests to the new home only:
        the old one may be lost.
        """
        done: list[str] = []
        with (
            saying_how_far(lambda: f"Before that it {'; '.join(done)}" if done else ""),
            _translated(failure_of_change, self._place),
        ):
            inquiry = self._inquiry()
            if self._move_home:
                return list(self._settle_home(inquiry))
            migration = Migration(inquiry, settle_home=partial(self._settle_home, inquiry))
            for change in chain(self._make_keyspace(inquiry), migration.carry_out()):
                done.append(change)  # noqa: PERF402 - an error keeps what was done before it
        version = newest(self._keyspace.name)
        return done or [
            f"nothing to do: keyspace {self._keyspace.name} has version {version} of the tables, the newest"
        ]

    def verify(self) -> list[Finding]:
        """Compare the keyspace, the version of its tables and the tables with what they should be."""
        with _translated(failure_of_read, self._place):
            inquiry = self._inquiry()
            kept = Catalog(inquiry).keyspace()
            if kept is None:
                reason = "queues need a keyspace"
                return [
                    Finding(f"keyspace {self._keyspace.name}", Severity.PROBLEM, "does not exist", reason, _MIGRATE)
                ]
            catalog = Catalog(inquiry)
            tables = catalog.tables()
            home = [self._verify_home(catalog, kept)] if VERSIONS in tables else []
            return [self._verify_keyspace(inquiry, kept), *home, *self._verify_tables(catalog, tables)]

    def examine(self, rests: Mapping[str, int]) -> list[Finding]:
        """The findings on the cluster, the clocks and the keyspace.

        `rests`: how long the rows of each queue rest, in µs.
        """
        with _translated(failure_of_read, self._place):
            examination = Examination(self._inquiry(), clock=self._clock)
            found = [
                *examination.of_cluster(),
                *examination.of_login(in_clear=self._login_in_clear),
                *examination.of_keyspace(rests),
            ]
        try:
            return found + self.verify()
        except StoreError as error:
            reason, remedy = (
                "too few nodes answer, or too late",
                "resolve the findings on the nodes first, then run it again",
            )
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
        catalog = Catalog(inquiry)
        kept = catalog.keyspace()
        here = catalog.here()
        self._surely_home(kept.data_centres if kept else data_centres(self._keyspace.replication or {}), here)
        if kept is not None:
            change = self._keyspace.change(kept, _all_data_centres(inquiry))
            if change:
                yield f"left keyspace {self._keyspace.name} unchanged; to change it: {change}"
            return
        nodes = sum(host.datacenter == (self._keyspace.dc or here) for host in inquiry.cluster.metadata.all_hosts())
        statement = self._keyspace.statement(here, nodes)
        inquiry.anyone(statement)
        agree(inquiry)
        yield f"made keyspace {self._keyspace.name} with {statement.partition(' WITH ')[2]}"

    def _verify_keyspace(self, inquiry: Inquiry, kept: StoredKeyspace) -> Finding:
        subject = f"keyspace {self._keyspace.name}"
        change = self._keyspace.change(kept, _all_data_centres(inquiry))
        fact = f"{kept.describe()}, durable writes {'on' if kept.durable else 'off'}"
        if not change:
            return ok(subject, fact)
        reason = (
            "this is not what was requested"
            if kept.durable
            else "a server that stops loses the writes it acknowledged last"
        )
        return Finding(subject, Severity.WARNING, fact, reason, change, see=checks.SEE_COPIES)

    def _wanted_home(self, copied_to: Sequence[str], here: str) -> HomeDataCentre | None:
        """The home that was requested or that follows from where the copies are; None if neither determines it."""
        dc = self._home or self._keyspace.dc or (copied_to[0] if len(copied_to) == 1 else "" if copied_to else here)
        if self._levels.is_local and dc and copied_to and dc not in copied_to:
            message = (
                f"keyspace {self._keyspace.name} has no copies in {dc}, so {dc} cannot be its home: "
                f"name one of {', '.join(copied_to)}"
            )
            raise BadSetting(message)
        return HomeDataCentre.of(dc, self._levels) if dc or not self._levels.is_local else None

    def _surely_home(self, copied_to: Sequence[str], here: str) -> HomeDataCentre:
        home = self._wanted_home(copied_to, here)
        if home is None:
            message = (
                f"keyspace {self._keyspace.name} has copies in {', '.join(copied_to)}: name the one in which all its "
                f"workers and senders work, with --home {copied_to[0]} or dc={copied_to[0]} in the URL; "
                "nothing was changed"
            )
            raise BadSetting(message)
        return home

    def _settle_home(self, inquiry: Inquiry) -> Iterator[str]:
        """Store the home if none is stored, or if it is to be moved."""
        catalog = Catalog(inquiry)
        kept = catalog.keyspace()
        stored = catalog.home() if self._move_home else catalog.home_everywhere()
        home = self._surely_home(kept.data_centres if kept else [], catalog.here())
        name = self._keyspace.name
        if stored == home:
            return
        if stored is None:
            inquiry.everywhere(KEEP_HOME, home.dc, home.levels)
            yield f"the home of keyspace {name} is {home}; all workers and senders must use it"
        elif self._move_home:
            inquiry.near(KEEP_HOME, home.dc, home.levels)
            yield f"moved the home of keyspace {name} to {home} (it was {stored}); no client may still use the old one"
        elif self._home:
            message = (
                f"the home of keyspace {name} is {stored}, not {home}. To move it, stop every worker and sender first, "
                f"then run this again with --move-home"
            )
            raise BadSetting(message)
        else:
            yield (
                f"left the home of keyspace {name} unchanged, {stored}; this URL has {home}, "
                "and no store can be opened with it"
            )

    def _verify_home(self, catalog: Catalog, kept: StoredKeyspace) -> Finding:
        client = Client(catalog.here(), self._levels, bool(self._keyspace.dc))
        home = catalog.home() if has_copies(kept.data_centres, client.dc) else None
        subject = f"home of keyspace {self._keyspace.name}"
        wrong = objection(self._keyspace.name, kept.data_centres, home, client)
        if wrong:
            return Finding(subject, Severity.PROBLEM, *wrong, see=_SEE_HOME)
        if home is not None:
            return ok(subject, str(home))
        if len(kept.data_centres) > 1:
            reason = "clients can work in two data centres and may receive the same message"
            return Finding(
                subject,
                Severity.PROBLEM,
                "is not stored",
                reason,
                "run 'astyqueue migrate --home NAME' on this URL",
                see=_SEE_HOME,
            )
        reason = "an earlier astyqueue made this keyspace; with one data centre this is safe"
        return note(subject, "is not stored", reason, remedy=_MIGRATE)

    def _verify_tables(self, catalog: Catalog, tables: Mapping[str, StoredTable]) -> Iterator[Finding]:
        yield self._verify_version(catalog.versions() if VERSIONS in tables else set())
        for part in parts(self._keyspace.name):
            for wanted in map(declared, part.statements):
                yield from verify_table(self._keyspace.name, wanted, tables.get(wanted.name))

    def _verify_version(self, recorded: set[int]) -> Finding:
        subject, known = f"version of the tables in keyspace {self._keyspace.name}", newest(self._keyspace.name)
        there = max(recorded, default=0)
        if there > known:
            reason = "a later version may store things in a way that this process does not expect"
            return Finding(subject, Severity.PROBLEM, newer(there, known), reason, "upgrade this process")
        if there < known:
            reason = "tables or columns of later versions are missing"
            return Finding(
                subject, Severity.PROBLEM, f"{there or 'none is recorded'}; the newest is {known}", reason, _MIGRATE
            )
        return ok(subject, f"{there}, the newest")


@contextmanager
def _translated(failure: Callable[[Exception, str], Exception], place: str) -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        raise failure(error, place) from error


def _all_data_centres(inquiry: Inquiry) -> set[str]:
    return {host.datacenter for host in inquiry.cluster.metadata.all_hosts()}


def administered(
    location: Location, *, clock: Clock, copies: str = "", durable: bool = True, home: str = "", move_home: bool = False
) -> KeyspaceAdministration:
    """The administration of the keyspace of a `cassandra://` URL.

    `copies` (such as `dc1:3`) and `durable` are wanted of it.
    """
    address = Address.of(location)
    keyspace = Keyspace(address.keyspace, replication(copies) if copies else None, durable, address.dc or home)
    return KeyspaceAdministration(
        partial(connect, address, clock),
        keyspace,
        clock=clock,
        levels=address.levels,
        place=address.shown,
        home=home,
        move_home=move_home,
        login_in_clear=address.login_in_clear,
    )
