"""The verbs of a store in one session, as steps that a thread or a task carries out: see `RequestSteps`."""

from __future__ import annotations

from typing import Final

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile, Session
from cassandra.policies import FallthroughRetryPolicy, NoSpeculativeExecutionPolicy, RetryPolicy
from cassandra.query import Statement, tuple_factory

from astyqueue.clock import SystemClock
from astyqueue.errors import AstyqueueError, BadInput, BadSetting, OutcomeUnknown
from astyqueue.store import Batch, Column, Committed, Expectation, Outcome, Refused, Slice, Wanted
from astyqueue.stores import column_name_codec
from astyqueue.stores.cassandra.connection.errors import (
    FAILURES,
    RequestKind,
    failure_of_change,
    failure_of_read,
    failure_to_prepare,
)
from astyqueue.stores.cassandra.connection.settings import Levels, checked_keyspace
from astyqueue.stores.cassandra.requests import queries
from astyqueue.stores.cassandra.requests.attempt import REQUEST_SECONDS, Attempt, RequestSteps
from astyqueue.stores.cassandra.requests.queries import Statements
from astyqueue.stores.cassandra.requests.speculation import Counters, Speculation
from astyqueue.stores.cassandra.schema.home_data_centre import Client, has_copies, objection
from astyqueue.stores.cassandra.schema.system_schema import Catalog, Inquiry

#: The protocol counts the statements of a batch in two bytes.
_MOST_CHANGES: Final = 0xFFFF


class PreparedSession:
    """The prepared statements of a session, and an execution profile for each kind of request."""

    def __init__(
        self, session: Session, keyspace: str, *, levels: Levels, place: str, dc_is_chosen: bool = True
    ) -> None:
        """Prepare the statements.

        WrongSchema: the keyspace or its tables do not exist; BadSetting: it has another home or levels.
        """
        self._session = session
        self._place = place
        named = (levels.consistency, levels.serial, levels.reads or levels.consistency)
        plain, serial, reads = (getattr(ConsistencyLevel, level.upper()) for level in named)
        # Speculation only for idempotent requests: reads, and sends, which carry their write times.
        self._speculation = speculation = Speculation(SystemClock())
        self._reading = self._profile(reads, retry_policy=RetryPolicy(), speculative_execution_policy=speculation)
        self._reading_exactly = self._profile(
            serial, retry_policy=RetryPolicy(), speculative_execution_policy=speculation
        )
        # The driver does not retry changes, so its errors show whether anything can have been changed.
        once = FallthroughRetryPolicy()
        self._sending = self._profile(plain, retry_policy=once, speculative_execution_policy=speculation)
        self._committing = self._profile(
            plain,
            retry_policy=once,
            serial_consistency_level=serial,
            speculative_execution_policy=NoSpeculativeExecutionPolicy(),
        )
        try:
            self._check_profiles()
            self._statements = {
                table: Statements(session, f'"{checked_keyspace(keyspace)}"."{table}"')
                for table in sorted(column_name_codec.TABLES)
            }
            self._check_home(Catalog(Inquiry(session, keyspace)), levels, chosen=dc_is_chosen)
        except FAILURES as error:
            raise failure_to_prepare(error, place, keyspace) from error

    @property
    def counters(self) -> Counters:
        """The number of requests and of speculative ones in this session."""
        return self._speculation.counters

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool) -> RequestSteps[list[list[Column]]]:
        """See `Store.read`; all requests are sent at once."""
        for each in wanted:
            column_name_codec.known(each.table)
        asked = [self._ask(each, exact=exact) for each in wanted]
        found: list[list[Column]] = []
        try:
            for each, questions in zip(wanted, asked, strict=True):
                found.append((yield from _columns(each, questions)))
        except FAILURES as error:
            exact_slice = exact and any(isinstance(each, Slice) for each in wanted)
            raise failure_of_read(error, self._place, exact_slice=exact_slice) from error
        return found

    def send(self, batches: tuple[Batch, ...]) -> RequestSteps[None]:
        """See `Store.send`; an invalid batch raises before any batch is sent."""
        for batch in batches:
            column_name_codec.changes(batch)
            _countable(batch, ())
        changes = [
            queries.sent(self._statements[batch.table], batch) for batch in batches if batch.puts or batch.deletes
        ]
        asked = [self._attempt(change, self._sending, RequestKind.SEND) for change in changes]
        errors: list[AstyqueueError] = []
        for each in asked:
            try:
                yield from each.result()
            except FAILURES as error:
                failure = failure_of_change(error, self._place, nodes=each.nodes, kind=RequestKind.SEND)
                failure.__cause__ = error
                errors.append(failure)
        if errors:
            same = len(errors) == len(asked) and len({type(error) for error in errors}) == 1
            raise errors[0] if same else OutcomeUnknown(f"of {len(asked)} batches {len(errors)} failed: {errors[0]}")

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> RequestSteps[Outcome]:
        """See `Store.commit`."""
        column_name_codec.committed_changes(batch, expects)
        _countable(batch, expects)
        change = queries.committed(self._statements[batch.table], batch, expects)
        asked = self._attempt(change, self._committing, RequestKind.COMMIT)
        try:
            answer = yield from asked.result()
        except FAILURES as error:
            raise failure_of_change(error, self._place, nodes=asked.nodes, kind=RequestKind.COMMIT) from error
        rows = answer.current_rows
        if rows[0][0]:
            return Committed()
        # A row of one value: no column exists.
        return Refused(queries.present(expects, [row for row in rows if len(row) > 1]))

    def _ask(self, wanted: Wanted, *, exact: bool) -> list[Attempt]:
        profile = self._reading_exactly if exact else self._reading
        asked = queries.questions(self._statements[wanted.table], wanted, exact=exact)
        return [self._attempt(each, profile, RequestKind.READ) for each in asked]

    def _attempt(self, statement: Statement, profile: ExecutionProfile, kind: RequestKind) -> Attempt:
        return Attempt(self._session, statement, profile, kind=kind, speculation=self._speculation)

    def _profile(self, level: int, **settings: object) -> ExecutionProfile:
        """An execution profile with the load balancing of the session."""
        return self._session.execution_profile_clone_update(
            EXEC_PROFILE_DEFAULT,
            consistency_level=level,
            row_factory=tuple_factory,
            request_timeout=REQUEST_SECONDS,
            **settings,
        )

    def _check_profiles(self) -> None:
        """Raise BadSetting for a Cluster with legacy settings, which rejects profiles only at the first request."""
        try:
            self._session.execute("SELECT key FROM system.local", execution_profile=self._reading)
        except ValueError as error:
            message = f"{self._place}: {error} Make the session's Cluster with execution_profiles instead"
            raise BadSetting(message) from error

    def _check_home(self, catalog: Catalog, levels: Levels, *, chosen: bool) -> None:
        """Raise BadSetting if the keyspace has another home, or other levels, than this client."""
        kept = catalog.keyspace()
        copied_to = kept.data_centres if kept else []
        client = Client(catalog.here(), levels, chosen)
        home = catalog.home() if has_copies(copied_to, client.dc) else None
        wrong = objection(catalog.name, copied_to, home, client)
        if wrong:
            message = f"{self._place}: {wrong}"
            raise BadSetting(message)


def _columns(wanted: Wanted, asked: list[Attempt]) -> RequestSteps[list[Column]]:
    """The wanted columns, from the answers of these requests; a further page is read only if they need it."""
    columns: list[Column] = []
    limit = wanted.limit if isinstance(wanted, Slice) else None
    for each in asked:
        page: Attempt | None = each
        while page is not None:
            answer = yield from page.result()
            columns += queries.wanted_of(wanted, answer.current_rows)
            page = None if limit is not None and len(columns) >= limit else page.next_page(answer)
    return columns if limit is None else columns[:limit]


def _countable(batch: Batch, expects: tuple[Expectation, ...]) -> None:
    if len(batch.puts) + len(batch.deletes) + len(expects) >= _MOST_CHANGES:
        message = (
            f"row {batch.row}: a batch has fewer than {_MOST_CHANGES} changes and expectations on Cassandra; "
            "send it in parts"
        )
        raise BadInput(message)
