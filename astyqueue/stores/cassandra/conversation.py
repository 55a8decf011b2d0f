"""What a store says to Cassandra in one session, and how it waits for the answers."""

from __future__ import annotations

from typing import Final

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile, ResultSet, Session
from cassandra.policies import FallthroughRetryPolicy, NoSpeculativeExecutionPolicy, RetryPolicy
from cassandra.query import BatchStatement, Statement, tuple_factory

from astyqueue.clock import SystemClock
from astyqueue.errors import AstyqueueError, BadInput, BadSetting, OutcomeUnknown
from astyqueue.store import Batch, Column, Committed, Expectation, Outcome, Refused, Slice, Wanted
from astyqueue.stores import encoding
from astyqueue.stores.cassandra import requests
from astyqueue.stores.cassandra.address import Levels
from astyqueue.stores.cassandra.attempt import REQUEST_SECONDS, Attempt
from astyqueue.stores.cassandra.catalog import Catalog
from astyqueue.stores.cassandra.failures import FAILURES, failure_of_change, failure_of_read, failure_to_prepare
from astyqueue.stores.cassandra.home import Client, has_copies, objection
from astyqueue.stores.cassandra.inquiry import Inquiry
from astyqueue.stores.cassandra.schema import checked_keyspace
from astyqueue.stores.cassandra.speculation import Counters, Speculation
from astyqueue.stores.cassandra.statements import Statements

#: The protocol counts the statements of a batch in two bytes.
_MOST_CHANGES: Final = 0xFFFF


class Conversation:
    """The statements, prepared, and how each kind of request is treated."""

    def __init__(self, session: Session, keyspace: str, *, levels: Levels, place: str, dc_is_chosen: bool = True) -> None:
        """Prepare everything; StoreUnavailable says what to do when the keyspace or its tables are not there.

        BadSetting says what to change when the keyspace has its home in another data centre or is used with other levels.
        """
        self._session = session
        self._place = place
        named = (levels.consistency, levels.serial, levels.reads or levels.consistency)
        plain, serial, reads = (getattr(ConsistencyLevel, level.upper()) for level in named)
        # Only what may be asked twice is asked of a further node: reads, and sends, whose write times go with them.
        self._speculation = asking = Speculation(SystemClock())
        self._reading = self._profile(reads, retry_policy=RetryPolicy(), speculative_execution_policy=asking)
        self._reading_exactly = self._profile(serial, retry_policy=RetryPolicy(), speculative_execution_policy=asking)
        # What was sent once is not sent again by the driver: then its errors tell whether anything can have been changed.
        once = FallthroughRetryPolicy()
        self._sending = self._profile(plain, retry_policy=once, speculative_execution_policy=asking)
        self._committing = self._profile(
            plain, retry_policy=once, serial_consistency_level=serial, speculative_execution_policy=NoSpeculativeExecutionPolicy()
        )
        try:
            self._see_that_profiles_count()
            self._statements = {
                table: Statements(session, f'"{checked_keyspace(keyspace)}"."{table}"') for table in sorted(encoding.TABLES)
            }
            self._be_at_home(Catalog(Inquiry(session, keyspace)), levels, chosen=dc_is_chosen)
        except FAILURES as error:
            raise failure_to_prepare(error, place, keyspace) from error

    @property
    def counters(self) -> Counters:
        """How much was asked of the servers in this session."""
        return self._speculation.counters

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool) -> list[list[Column]]:
        """As the port says; all requests are under way at once."""
        for each in wanted:
            encoding.known(each.table)
        asked = [self._ask(each, exact=exact) for each in wanted]
        try:
            return [
                requests.answer(each, (row for question in questions for row in question.result()))
                for each, questions in zip(wanted, asked, strict=True)
            ]
        except FAILURES as error:
            exact_slice = exact and any(isinstance(each, Slice) for each in wanted)
            raise failure_of_read(error, self._place, exact_slice=exact_slice) from error

    def send(self, batches: tuple[Batch, ...]) -> None:
        """As the port says; what cannot be sent at all is found before the first of them is."""
        for batch in batches:
            encoding.changes(batch)
            _countable(batch, ())
        changes = [requests.sent(self._statements[batch.table], batch) for batch in batches if batch.puts or batch.deletes]
        asked = [self._attempt(change, self._sending) for change in changes]
        if errors := [error for each in asked if (error := self._failure(each))]:
            same = len(errors) == len(asked) and len({type(error) for error in errors}) == 1
            raise errors[0] if same else OutcomeUnknown(f"of {len(asked)} batches {len(errors)} failed: {errors[0]}")

    def _failure(self, asked: Attempt) -> AstyqueueError | None:
        """What went wrong with a change that is under way, once that is known."""
        try:
            asked.result()
        except FAILURES as error:
            told = failure_of_change(error, self._place, nodes=asked.nodes, plain=True)
            told.__cause__ = error
            return told
        return None

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """As the port says."""
        encoding.committed_changes(batch, expects)
        _countable(batch, expects)
        rows = list(self._changed(requests.committed(self._statements[batch.table], batch, expects), self._committing))
        if rows[0][0]:
            return Committed()
        return Refused(requests.present(expects, [row for row in rows if len(row) > 1]))  # none is there: it only says that

    def _ask(self, wanted: Wanted, *, exact: bool) -> list[Attempt]:
        profile = self._reading_exactly if exact else self._reading
        asked = requests.questions(self._statements[wanted.table], wanted, exact=exact)
        return [self._attempt(each, profile, reading=True) for each in asked]

    def _changed(self, change: BatchStatement, profile: ExecutionProfile) -> ResultSet:
        asked = self._attempt(change, profile)
        try:
            return asked.result()
        except FAILURES as error:
            raise failure_of_change(error, self._place, nodes=asked.nodes) from error

    def _attempt(self, statement: Statement, profile: ExecutionProfile, *, reading: bool = False) -> Attempt:
        return Attempt(self._session, statement, profile, reading=reading, speculation=self._speculation)

    def _profile(self, level: int, **settings: object) -> ExecutionProfile:
        """A way to treat requests, which leaves to the session how it chooses a node."""
        return self._session.execution_profile_clone_update(
            EXEC_PROFILE_DEFAULT,
            consistency_level=level,
            row_factory=tuple_factory,
            request_timeout=REQUEST_SECONDS,
            **settings,
        )

    def _see_that_profiles_count(self) -> None:
        """A session of a Cluster with the driver's older settings takes no profiles, and says so at the first request only."""
        try:
            self._session.execute("SELECT key FROM system.local", execution_profile=self._reading)
        except ValueError as error:
            message = f"{self._place}: {error} Make the session's Cluster with execution_profiles instead"
            raise BadSetting(message) from error

    def _be_at_home(self, catalog: Catalog, levels: Levels, *, chosen: bool) -> None:
        """Raise BadSetting if this client would ask in another data centre than the others of the keyspace, or otherwise."""
        kept = catalog.keyspace()
        copied_to = kept.data_centres if kept else []
        client = Client(catalog.here(), levels, chosen)
        home = catalog.home() if has_copies(copied_to, client.dc) else None
        wrong = objection(catalog.name, copied_to, home, client)
        if wrong:
            message = f"{self._place}: {wrong}"
            raise BadSetting(message)


def _countable(batch: Batch, expects: tuple[Expectation, ...]) -> None:
    if len(batch.puts) + len(batch.deletes) + len(expects) >= _MOST_CHANGES:
        message = f"row {batch.row}: a batch has fewer than {_MOST_CHANGES} changes and expectations on Cassandra; send it in parts"
        raise BadInput(message)
