"""The requests of a store in one session: sending, waiting, and retrying while no node has a connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cassandra import ConsistencyLevel, OperationTimedOut, Timeout, Unavailable
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    ExecutionProfile,
    NoHostAvailable,
    ResponseFuture,
    ResultSet,
    Session,
)
from cassandra.connection import ConnectionException
from cassandra.policies import FallthroughRetryPolicy, NoSpeculativeExecutionPolicy, RetryPolicy
from cassandra.pool import Host
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage
from cassandra.query import BatchStatement, Statement, tuple_factory

from astyqueue.clock import SystemClock
from astyqueue.errors import AstyqueueError, BadInput, BadSetting, OutcomeUnknown
from astyqueue.store import Batch, Column, Committed, Expectation, Outcome, Refused, Slice, Wanted
from astyqueue.stores import column_name_codec
from astyqueue.stores.cassandra.connection.cluster import Wary
from astyqueue.stores.cassandra.connection.errors import (
    FAILURES,
    failure_of_change,
    failure_of_read,
    failure_to_prepare,
)
from astyqueue.stores.cassandra.connection.settings import Levels, checked_keyspace
from astyqueue.stores.cassandra.requests import queries
from astyqueue.stores.cassandra.requests.queries import Statements
from astyqueue.stores.cassandra.requests.speculation import Counters, Speculation
from astyqueue.stores.cassandra.schema.home_data_centre import Client, has_copies, objection
from astyqueue.stores.cassandra.schema.metadata import Catalog, Inquiry
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: The protocol counts the statements of a batch in two bytes.
_MOST_CHANGES: Final = 0xFFFF
REQUEST_SECONDS: Final = 2.0
#: The wait before a retry when the driver has no connection.
_RETRY: Final = SECOND // 50
_WATCH: Final = SystemClock()


class Conversation:
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

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool) -> list[list[Column]]:
        """See `Store.read`; all requests are sent at once."""
        for each in wanted:
            column_name_codec.known(each.table)
        asked = [self._ask(each, exact=exact) for each in wanted]
        try:
            return [
                queries.answer(each, (row for question in questions for row in question.result()))
                for each, questions in zip(wanted, asked, strict=True)
            ]
        except FAILURES as error:
            exact_slice = exact and any(isinstance(each, Slice) for each in wanted)
            raise failure_of_read(error, self._place, exact_slice=exact_slice) from error

    def send(self, batches: tuple[Batch, ...]) -> None:
        """See `Store.send`; an invalid batch raises before any batch is sent."""
        for batch in batches:
            column_name_codec.changes(batch)
            _countable(batch, ())
        changes = [
            queries.sent(self._statements[batch.table], batch) for batch in batches if batch.puts or batch.deletes
        ]
        asked = [self._attempt(change, self._sending) for change in changes]
        if errors := [error for each in asked if (error := self._failure(each))]:
            same = len(errors) == len(asked) and len({type(error) for error in errors}) == 1
            raise errors[0] if same else OutcomeUnknown(f"of {len(asked)} batches {len(errors)} failed: {errors[0]}")

    def _failure(self, asked: Attempt) -> AstyqueueError | None:
        """Wait for a change; its error, if it failed."""
        try:
            asked.result()
        except FAILURES as error:
            failure = failure_of_change(error, self._place, nodes=asked.nodes, plain=True)
            failure.__cause__ = error
            return failure
        return None

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        """See `Store.commit`."""
        column_name_codec.committed_changes(batch, expects)
        _countable(batch, expects)
        rows = list(self._changed(queries.committed(self._statements[batch.table], batch, expects), self._committing))
        if rows[0][0]:
            return Committed()
        return Refused(
            queries.present(expects, [row for row in rows if len(row) > 1])
        )  # a row of one value: no column exists

    def _ask(self, wanted: Wanted, *, exact: bool) -> list[Attempt]:
        profile = self._reading_exactly if exact else self._reading
        asked = queries.questions(self._statements[wanted.table], wanted, exact=exact)
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


def _countable(batch: Batch, expects: tuple[Expectation, ...]) -> None:
    if len(batch.puts) + len(batch.deletes) + len(expects) >= _MOST_CHANGES:
        message = (
            f"row {batch.row}: a batch has fewer than {_MOST_CHANGES} changes and expectations on Cassandra; "
            "send it in parts"
        )
        raise BadInput(message)


class Attempt:
    """A request in flight.

    The driver replaces a broken connection within a quarter of a second, and until then has no node to send to if no
    other is left. In that case it sent nothing, so every request may be retried, commits too. The same holds when a
    node knows too few live replicas: it did not begin, and if only that node is cut off, another one can.
    """

    def __init__(
        self,
        session: Session,
        statement: Statement,
        profile: ExecutionProfile,
        *,
        reading: bool = False,
        speculation: Speculation | None = None,
    ) -> None:
        """Send it. A read is retried after a timeout or a lost connection, until `REQUEST_SECONDS` have passed.

        The driver does not do that: when a read was sent to a second node and the first one's connection breaks, it
        fails. `speculation` records the outcome.
        """
        self._session = session
        self._statement = statement
        self._profile = profile
        self._reading = reading
        self._speculation = speculation
        self._until = _WATCH.monotonic() + int(REQUEST_SECONDS * SECOND)
        self._unable: set[Host] = set()
        self._future = self._begun()

    def result(self) -> ResultSet:
        """The answer; NoHostAvailable if no node could be reached for `REQUEST_SECONDS`."""
        while (answer := self._answer()) is None:
            Wakeup(_WATCH).wait(_WATCH.monotonic() + _RETRY)
            self._future = self._begun()
        return answer

    def _answer(self) -> ResultSet | None:
        """The answer; None if the request may be sent again."""
        try:
            answer = self._future.result()
        except (OperationTimedOut, ConnectionException, Timeout) as error:
            if not isinstance(error, ConnectionException):
                self._demote()
            if self._is_over or not self._reading:
                raise
        except NoHostAvailable:
            if self._is_over:
                raise
        except Unavailable:
            self._demote()
            if self._is_over or not self._is_news():
                raise
        except (OverloadedErrorMessage, IsBootstrappingErrorMessage):
            self._demote()
            raise
        else:
            self._observe()
            return answer
        return None

    def _observe(self) -> None:
        """Record the time of an answer; a node that alone was too slow several times is tried last from now on."""
        asked = self._future.attempted_hosts
        if self._speculation is None or not asked:
            return
        took = _WATCH.monotonic() - self._began
        if self._speculation.answered(asked[0], took, in_time=len(set(asked)) == 1):
            self._ask_last([asked[0]])

    @property
    def _is_over(self) -> bool:
        return self._session.is_shutdown or _WATCH.monotonic() >= self._until

    def _is_news(self) -> bool:
        """Whether the only node tried reported this for the first time.

        Of several nodes, one may have applied the change.
        """
        asked = set(self._future.attempted_hosts)
        news = len(asked) == 1 and not asked <= self._unable
        self._unable |= asked
        return news

    @property
    def nodes(self) -> int:
        """The number of nodes that it was sent to."""
        return len(self._future.attempted_hosts)

    def _demote(self) -> None:
        """Have other nodes tried first from now on, unless the caller's session has its own load balancing.

        A node that reports a timeout of its replicas may itself be cut off: the other nodes may not need it.
        """
        answered = self._future.coordinator_host
        self._ask_last([answered] if answered else self._future.attempted_hosts)

    def _ask_last(self, nodes: Iterable[Host]) -> None:
        choosing = self._profile.load_balancing_policy
        if isinstance(choosing, Wary):
            choosing.was_silent(nodes)

    def _begun(self) -> ResponseFuture:
        self._began = _WATCH.monotonic()
        if self._speculation is not None:
            self._speculation.asked()
        return self._session.execute_async(self._statement, execution_profile=self._profile)
