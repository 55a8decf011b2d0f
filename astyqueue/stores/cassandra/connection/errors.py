"""Maps the driver's errors to those of `astyqueue.errors`; each text ends with a remedy."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from cassandra import (
    ConsistencyLevel,
    DriverException,
    ReadFailure,
    RequestValidationException,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import (
    ConfigurationException,
    ErrorMessage,
    IsBootstrappingErrorMessage,
    OverloadedErrorMessage,
)
from cassandra.protocol import RequestValidationException as RefusedByServer

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

#: Everything the driver raises for a request.
FAILURES: Final = (DriverException, NoHostAvailable, ConnectionException, ErrorMessage)

#: The server rejected the request without executing any of it.
_REFUSED: Final = (RequestValidationException, RefusedByServer)
#: Nothing was sent to a replica: the driver had no connection, or the coordinator knew too few live replicas. A commit
#: may be past its agreement then: see `may_be_decided`.
#: (The driver does not resend a request after an error, so "no host available" means that there was no connection.)
_NOT_TRIED: Final = (NoHostAvailable, Unavailable)
#: A coordinator that is overloaded or bootstrapping raises these before it forwards a plain write to replicas.
_NOT_BEGUN: Final = (OverloadedErrorMessage, IsBootstrappingErrorMessage)

_SERIAL: Final = (ConsistencyLevel.SERIAL, ConsistencyLevel.LOCAL_SERIAL)

#: The reason code of a replica whose read scanned too many tombstones.
_TOMBSTONES: Final = 0x0001
#: The same in a read that is part of a Paxos round, which does not pass the reason on.
_FOR_NO_REASON: Final = 0x0000
_TOO_STRICT: Final = "'astyqueue doctor' lists the limits of the server that are too strict"
_GRANTS: Final = "Grant this user the rights that SECURITY.md lists under 'Logins on Cassandra' for what it does"
_REPLICATION: Final = "correct --replication: 'nodetool status' shows the names of the data centres"
_MISSING: Final = ("does not exist", "unconfigured table")


class RequestKind(Enum):
    """What a request does: a read, a plain write, or a commit, which replicas agree on (Paxos)."""

    READ = "read"
    SEND = "send"
    COMMIT = "commit"


class _Refusal(NamedTuple):
    """Parts of a server's text for a rejected request, in lower case; the error that it becomes, and the remedy."""

    signs: tuple[str, ...]
    kind: type[AstyqueueError]
    remedy: str


#: The first that has a sign in the server's text applies.
_REFUSALS: Final = (
    _Refusal(("disk usage exceeds",), StoreFull, "make room on the servers' disks, or add nodes"),
    _Refusal(
        ("user provided timestamps", "before the minimum allowable"),
        StoreUnavailable,
        "every send carries a write time one hour in the past, which a guardrail of the server forbids: "
        "set user_timestamps_enabled to true and minimum_timestamp_fail_threshold to two hours or more",
    ),
    _Refusal(("is not allowed", "aborting query"), StoreUnavailable, _TOO_STRICT),
    _Refusal(("too large", "oversized", "exceeds"), BadInput, "put less into one batch"),
    _Refusal(("guardrail",), StoreUnavailable, _TOO_STRICT),
    _Refusal(_MISSING, StoreUnavailable, "the tables were dropped meanwhile: create or restore them"),
)


def failure_of_read(error: Exception, place: str, *, exact_slice: bool = False) -> AstyqueueError:
    """The error to raise for the driver's error in a read.

    `exact_slice`: a failure without a reason code becomes SliceTooLong as well, because the reason may be tombstones.
    """
    if isinstance(error, _REFUSED):
        return _refused(error, place)
    too_long = {_TOMBSTONES, _FOR_NO_REASON} if exact_slice else {_TOMBSTONES}
    if isinstance(error, ReadFailure) and not too_long.isdisjoint((error.error_code_map or {}).values()):
        return SliceTooLong(f"{place}: {describe(error)}. Nothing was read; a shorter slice may succeed")
    return StoreUnavailable(f"{place}: {describe(error)}. Nothing was read; try again")


def may_be_decided(error: Exception) -> bool:
    """Whether a commit may be agreed on although the coordinator knew too few live replicas.

    Before the Paxos agreement it counts the replicas for that, and reports the serial level. Cassandra 4.0 and later
    counts those for the level of plain writes after the agreement, when it writes what was agreed on; if too few are
    alive, the next round of the row writes that.
    """
    return isinstance(error, Unavailable) and error.consistency not in _SERIAL


def failure_of_change(
    error: Exception, place: str, *, nodes: int = 1, kind: RequestKind | None = None
) -> AstyqueueError:
    """The error to raise for the driver's error in a send, a commit, or a change of the schema, which has no `kind`.

    OutcomeUnknown unless it surely changed nothing. With several `nodes`, one that did not begin says nothing about the
    others, which have not answered yet. An overloaded coordinator does not begin a send; a commit may be past its Paxos
    agreement when it raises that. It may also be when too few replicas are alive for plain writes.
    """
    if isinstance(error, _REFUSED):
        return _refused(error, place)
    not_tried = isinstance(error, _NOT_TRIED) or (kind is RequestKind.SEND and isinstance(error, _NOT_BEGUN))
    not_tried = not_tried and not (kind is RequestKind.COMMIT and may_be_decided(error))
    if not_tried and (nodes <= 1 or isinstance(error, NoHostAvailable)):
        return StoreUnavailable(f"{place}: {describe(error)}. Nothing was changed; try again")
    return OutcomeUnknown(
        f"{place}: {describe(error)}. The change may have been applied or not; read back before trying again"
    )


def failure_to_prepare(error: Exception, place: str, keyspace: str) -> AstyqueueError:
    """The error to raise for the driver's error while statements were prepared in a keyspace."""
    if says_missing(error):
        return WrongSchema(
            f"{place}: {describe(error)}. The keyspace {keyspace!r} or its tables do not exist: create them with "
            f"'astyqueue migrate --url cassandra://.../{keyspace}' (this URL), or correct the URL"
        )
    refused = _refused(error, place) if isinstance(error, _REFUSED) else None
    if isinstance(refused, StoreCorrupt):
        return StoreCorrupt(
            f"{place}: {describe(error)}. The tables in keyspace {keyspace!r} differ from those of astyqueue: "
            "'astyqueue verify' lists the differences; repair them, or name another keyspace"
        )
    return failure_of_read(error, place)


def says_missing(error: Exception) -> bool:
    """Whether the server that answered does not know the table or keyspace."""
    return isinstance(error, _REFUSED) and any(sign in str(error) for sign in _MISSING)


def describe(error: Exception) -> str:
    """The driver's text on one line, with each node's error if no node was available."""
    if isinstance(error, UnresolvableContactPoints):
        return "none of these names resolves to an address"
    if isinstance(error, NoHostAvailable):
        reasons = "; ".join(f"{node}: {_sentence(reason)}" for node, reason in _by_node(error))
        return f"no node is reachable ({reasons})" if reasons else "no node is known to be up"
    return f"{_sentence(error)} ({type(error).__name__})"


def _by_node(error: NoHostAvailable) -> list[tuple[object, Exception]]:
    return list(error.errors.items()) if isinstance(error.errors, dict) else []


def _refused(error: Exception, place: str) -> AstyqueueError:
    text = _sentence(error)
    if isinstance(error, Unauthorized):
        return StoreUnavailable(f"{place}: {text}. {_GRANTS}")
    if isinstance(error, ConfigurationException):
        return BadSetting(f"{place}: {text}. Nothing was changed; {_REPLICATION}")
    for signs, kind, remedy in _REFUSALS:
        if any(sign in text.lower() for sign in signs):
            return kind(f"{place}: {text}. Nothing was changed; {remedy}")
    return StoreCorrupt(
        f"{place}: {text}. Nothing was changed; 'astyqueue verify' shows how the table differs from astyqueue's"
    )


def _sentence(error: object) -> str:
    return " ".join(str(error).split()).strip(".") or type(error).__name__
