"""What an error of the driver says about a change: that nothing was changed, or that the outcome is unknown."""

from __future__ import annotations

from itertools import islice

import pytest
from cassandra import (
    ConsistencyLevel,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
    WriteFailure,
    WriteTimeout,
    WriteType,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException, ConnectionShutdown
from cassandra.protocol import (
    ConfigurationException,
    ErrorMessage,
    IsBootstrappingErrorMessage,
    OverloadedErrorMessage,
    SyntaxException,
)

from astyqueue.errors import (
    AstyqueueError,
    BadInput,
    BadSetting,
    OutcomeUnknown,
    SliceTooLong,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
    WrongSchema,
)
from astyqueue.stores.cassandra.connection.cluster import reconnecting
from astyqueue.stores.cassandra.connection.errors import (
    FAILURES,
    RequestKind,
    describe,
    failure_of_change,
    failure_of_read,
    failure_to_prepare,
)

CAS_WRITE_UNKNOWN = 0x1700
INVALID = 0x2200
PLACE = "Cassandra at h1 port 9042"


def invalid(message: str) -> InvalidRequest:
    return InvalidRequest(f"Error from server: code={INVALID:04x} [Invalid query] message={message!r}")


UNKNOWN = [
    WriteTimeout("timed out", consistency=ConsistencyLevel.LOCAL_SERIAL, write_type=WriteType.CAS),
    WriteTimeout("timed out", consistency=ConsistencyLevel.LOCAL_QUORUM, write_type=WriteType.UNLOGGED_BATCH),
    WriteFailure("failed", consistency=ConsistencyLevel.LOCAL_QUORUM, write_type=WriteType.CAS),
    ReadTimeout("timed out", consistency=ConsistencyLevel.LOCAL_SERIAL),
    ErrorMessage(CAS_WRITE_UNKNOWN, "CAS operation result is unknown", None),
    OverloadedErrorMessage(0x1001, "overloaded", None),
    OperationTimedOut({"h1": "Client request timeout"}, "h1"),
    ConnectionShutdown("Connection to h1 was closed"),
    ConnectionException("broken pipe"),
]
NOTHING_CHANGED: list[tuple[Exception, type[AstyqueueError]]] = [
    (
        Unavailable("too few", consistency=ConsistencyLevel.LOCAL_QUORUM, required_replicas=2, alive_replicas=1),
        StoreUnavailable,
    ),
    (NoHostAvailable("none", {"h1": ConnectionException("pool is shut down")}), StoreUnavailable),
    (NoHostAvailable("none", {}), StoreUnavailable),
    (Unauthorized("User ada has no MODIFY permission"), StoreUnavailable),
    (invalid("table entries does not exist"), StoreUnavailable),
    (invalid("unconfigured table entries"), StoreUnavailable),
    (invalid("CQL Message of size 5242984 bytes exceeds allowed maximum of 4194304 bytes"), BadInput),
    (invalid("Rejected an oversized mutation (9000000/4194304)"), BadInput),
    (
        invalid(
            "Guardrail replica_disk_usage violated: Write request failed because disk usage exceeds failure threshold"
        ),
        StoreFull,
    ),
    (
        invalid("Guardrail user_timestamps violated: User provided timestamps (USING TIMESTAMP) is not allowed"),
        StoreUnavailable,
    ),
    (
        invalid("The modification to table entries has a timestamp 1 before the minimum allowable failure threshold 2"),
        StoreUnavailable,
    ),
    (
        invalid(
            "Aborting query because the cartesian product of the IN restrictions on row produces 500 values, "
            "this exceeds fail threshold"
        ),
        StoreUnavailable,
    ),
    (invalid("Unknown column priority"), StoreCorrupt),
    (SyntaxException(0x2000, "line 1:33", None), StoreCorrupt),
    (ConfigurationException(0x2300, "Unrecognized strategy option {dc9}", None), BadSetting),
]


def failed_read(code: int) -> ReadFailure:
    return ReadFailure("failed", consistency=ConsistencyLevel.LOCAL_SERIAL, error_code_map={"127.0.0.1": code})


@pytest.mark.parametrize(
    ("code", "exact_slice", "kind"),
    [
        (1, False, SliceTooLong),
        (1, True, SliceTooLong),
        (0, True, SliceTooLong),
        (0, False, StoreUnavailable),
        (3, True, StoreUnavailable),
    ],
)
def test_a_replica_that_failed_on_tombstones_has_a_shorter_slice_tried(
    code: int, *, exact_slice: bool, kind: type[AstyqueueError]
) -> None:
    """Within a Paxos round a replica gives no reason, so there any failure without one may be due to tombstones."""
    assert type(failure_of_read(failed_read(code), PLACE, exact_slice=exact_slice)) is kind


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda error: type(error).__name__)
def test_what_may_have_been_applied_is_unknown_after_a_change_and_only_unread_after_a_read(error: Exception) -> None:
    assert isinstance(error, FAILURES)
    assert type(failure_of_change(error, PLACE)) is OutcomeUnknown
    assert type(failure_of_read(error, PLACE)) is StoreUnavailable


@pytest.mark.parametrize(("error", "kind"), NOTHING_CHANGED, ids=str)
def test_what_was_never_begun_has_changed_nothing(error: Exception, kind: type[AstyqueueError]) -> None:
    assert isinstance(error, FAILURES)
    assert type(failure_of_change(error, PLACE)) is kind
    assert type(failure_of_read(error, PLACE)) is kind


def test_a_failure_says_where_and_what_to_do() -> None:
    said = str(
        failure_of_change(
            NoHostAvailable("none", {"h1": ConnectionException("refused"), "h2": OSError("no route")}), PLACE
        )
    )
    assert said == f"{PLACE}: no node is reachable (h1: refused; h2: no route). Nothing was changed; try again"


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (Unauthorized("User ada has no CREATE permission"), "SECURITY.md lists under 'Logins on Cassandra'"),
        (ConfigurationException(0x2300, "Unrecognized strategy option {dc9}", None), "correct --replication"),
    ],
    ids=["rights", "replication"],
)
def test_what_the_server_refuses_is_told_with_the_remedy_for_it(error: Exception, remedy: str) -> None:
    said = str(failure_of_change(error, PLACE))
    assert remedy in said
    assert "SELECT and MODIFY" not in said
    assert "verify" not in said


def test_a_guardrail_that_forbids_our_write_times_is_named_with_what_to_set() -> None:
    said = str(failure_of_change(invalid("User provided timestamps (USING TIMESTAMP) is not allowed"), PLACE))
    assert "set user_timestamps_enabled to true and minimum_timestamp_fail_threshold to two hours or more" in said


def test_names_without_an_address_are_reported_as_that() -> None:
    assert describe(UnresolvableContactPoints({})) == "none of these names resolves to an address"


@pytest.mark.parametrize("missing", ["Keyspace 'jobs' does not exist", "table entries does not exist"])
def test_a_missing_schema_says_how_to_make_it(missing: str) -> None:
    failed = failure_to_prepare(invalid(missing), PLACE, "jobs")
    assert type(failed) is WrongSchema
    assert "'astyqueue migrate --url cassandra://.../jobs'" in str(failed)


def test_a_guardrail_that_is_met_while_a_connection_is_made_ready_says_nothing_of_the_tables() -> None:
    failed = failure_to_prepare(
        invalid("Guardrail user_timestamps violated: User provided timestamps is not allowed"), PLACE, "jobs"
    )
    assert type(failed) is StoreUnavailable
    assert "set user_timestamps_enabled to true" in str(failed)


def test_a_node_that_does_not_answer_is_no_missing_schema() -> None:
    assert "migrate" not in str(failure_to_prepare(OperationTimedOut(), PLACE, "jobs"))


def test_a_second_node_that_could_not_begin_says_nothing_about_the_first() -> None:
    too_few = Unavailable("too few", consistency=ConsistencyLevel.LOCAL_QUORUM, required_replicas=2, alive_replicas=1)
    assert type(failure_of_change(too_few, PLACE, nodes=2)) is OutcomeUnknown


@pytest.mark.parametrize(
    ("level", "kind"),
    [
        (ConsistencyLevel.SERIAL, StoreUnavailable),
        (ConsistencyLevel.LOCAL_SERIAL, StoreUnavailable),
        (ConsistencyLevel.LOCAL_QUORUM, OutcomeUnknown),
        (ConsistencyLevel.QUORUM, OutcomeUnknown),
        (ConsistencyLevel.ALL, OutcomeUnknown),
        (None, OutcomeUnknown),
    ],
)
def test_too_few_replicas_for_plain_writes_may_mean_that_a_commit_is_agreed_on(
    level: int | None, kind: type[AstyqueueError]
) -> None:
    """Cassandra 4.0 and later counts them after the agreement, and those for the agreement before it."""
    too_few = Unavailable("too few", consistency=level, required_replicas=3, alive_replicas=2)
    assert type(failure_of_change(too_few, PLACE, kind=RequestKind.COMMIT)) is kind
    assert type(failure_of_change(too_few, PLACE)) is StoreUnavailable


@pytest.mark.parametrize(
    "error",
    [OverloadedErrorMessage(0x1001, "overloaded", None), IsBootstrappingErrorMessage(0x1002, "bootstrapping", None)],
)
def test_an_overloaded_coordinator_has_not_begun_a_send_but_may_have_decided_a_commit(error: Exception) -> None:
    assert type(failure_of_change(error, PLACE, kind=RequestKind.SEND)) is StoreUnavailable
    assert type(failure_of_change(error, PLACE, kind=RequestKind.SEND, nodes=2)) is OutcomeUnknown
    assert type(failure_of_change(error, PLACE, kind=RequestKind.COMMIT)) is OutcomeUnknown


def test_a_node_that_was_lost_is_asked_again_without_end_and_every_two_seconds_or_so() -> None:
    pauses = list(islice(reconnecting().new_schedule(), 10_000))
    assert len(pauses) == 10_000
    assert pauses[0] < 0.5
    assert max(pauses) <= 2.5
