"""What the driver's errors mean here, in sentences that say what to do."""

from __future__ import annotations

from typing import Final, NamedTuple

from cassandra import (
    DriverException,
    ReadFailure,
    RequestValidationException,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import ErrorMessage, IsBootstrappingErrorMessage, OverloadedErrorMessage
from cassandra.protocol import RequestValidationException as RefusedByServer

from astyqueue.errors import (
    AstyqueueError,
    BadInput,
    OutcomeUnknown,
    SliceTooLong,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
    WrongSchema,
)

#: Everything the driver raises for a request.
FAILURES: Final = (DriverException, NoHostAvailable, ConnectionException, ErrorMessage)

#: The server looked at the request and did not begin with it.
_REFUSED: Final = (RequestValidationException, RefusedByServer)
#: Nothing was sent to a replica: the driver had no connection to send it on, or the coordinator knew too few replicas alive.
#: (What was sent is not sent again after an error, so "no host available" means that there was no connection at all.)
_NOT_TRIED: Final = (NoHostAvailable, Unavailable)
#: What a coordinator says before it hands a plain write on to replicas: that it has too much to do, or is only just starting.
_NOT_BEGUN: Final = (OverloadedErrorMessage, IsBootstrappingErrorMessage)

#: What a replica says that gave up a read for the deleted columns in its way.
_TOMBSTONES: Final = 0x0001
#: ... and in a read that is part of a Paxos round, which does not pass the reason on.
_FOR_NO_REASON: Final = 0x0000
_TOO_STRICT: Final = "'astyqueue doctor' tells which limits of the server are too strict"
_MISSING: Final = ("does not exist", "unconfigured table")


class _Refusal(NamedTuple):
    """What a server says when it refuses a request, in lower case, and what that means here."""

    signs: tuple[str, ...]
    kind: type[AstyqueueError]
    remedy: str


#: The first whose sign is in the server's words counts.
_REFUSALS: Final = (
    _Refusal(("disk usage exceeds",), StoreFull, "make room on the servers' disks, or add nodes"),
    _Refusal(
        ("user provided timestamps", "before the minimum allowable"),
        StoreUnavailable,
        "every send carries a write time of an hour ago, which a guardrail of the server forbids: set user_timestamps_enabled to true and "
        "minimum_timestamp_fail_threshold to two hours or more",
    ),
    _Refusal(("is not allowed", "aborting query"), StoreUnavailable, _TOO_STRICT),
    _Refusal(("too large", "oversized", "exceeds"), BadInput, "put less into one batch"),
    _Refusal(("guardrail",), StoreUnavailable, _TOO_STRICT),
    _Refusal(_MISSING, StoreUnavailable, "the tables were dropped since: make them again or restore them"),
)


def failure_of_read(error: Exception, place: str, *, exact_slice: bool = False) -> AstyqueueError:
    """The error of the tree for one that came of a read.

    Of an exact slice that a replica failed to read without a reason, a shorter one is worth a try: the reason may be tombstones.
    """
    if isinstance(error, _REFUSED):
        return _refused(error, place)
    too_long = {_TOMBSTONES, _FOR_NO_REASON} if exact_slice else {_TOMBSTONES}
    if isinstance(error, ReadFailure) and not too_long.isdisjoint((error.error_code_map or {}).values()):
        return SliceTooLong(f"{place}: {told(error)}. It was not read; a shorter slice can be")
    return StoreUnavailable(f"{place}: {told(error)}. It was not read; it can be tried again")


def failure_of_change(error: Exception, place: str, *, nodes: int = 1, plain: bool = False) -> AstyqueueError:
    """The error of the tree for one that came of a send or a commit: whatever is not known to have changed nothing is unknown.

    When several `nodes` were asked, one that could not begin says nothing about the others, who have not answered yet. A `plain`
    send is not begun by a coordinator that is overloaded; a commit may be past its agreement when it finds that.
    """
    if isinstance(error, _REFUSED):
        return _refused(error, place)
    not_tried = isinstance(error, _NOT_TRIED) or (plain and isinstance(error, _NOT_BEGUN))
    if not_tried and (nodes <= 1 or isinstance(error, NoHostAvailable)):
        return StoreUnavailable(f"{place}: {told(error)}. Nothing was changed; it can be tried again")
    return OutcomeUnknown(f"{place}: {told(error)}. The change may stand or not; read back before trying again")


def failure_to_prepare(error: Exception, place: str, keyspace: str) -> AstyqueueError:
    """The error of the tree for one that came while a connection was made ready in a keyspace."""
    if says_missing(error):
        return WrongSchema(
            f"{place}: {told(error)}. The keyspace {keyspace!r} or its tables are not there yet: make them with "
            f"'astyqueue migrate --url cassandra://.../{keyspace}' (this URL), or correct the URL"
        )
    refused = _refused(error, place) if isinstance(error, _REFUSED) else None
    if isinstance(refused, StoreCorrupt):
        return StoreCorrupt(
            f"{place}: {told(error)}. The tables in keyspace {keyspace!r} are not as astyqueue makes them: "
            "see with 'astyqueue verify' what differs, or name another keyspace"
        )
    return failure_of_read(error, place)


def says_missing(error: Exception) -> bool:
    """Whether the server that was asked knows no such table or keyspace."""
    return isinstance(error, _REFUSED) and any(sign in str(error) for sign in _MISSING)


def told(error: Exception) -> str:
    """What the driver says, on one line."""
    if isinstance(error, UnresolvableContactPoints):
        return "none of these names has an address"
    if isinstance(error, NoHostAvailable):
        reasons = "; ".join(f"{node}: {_sentence(reason)}" for node, reason in _by_node(error))
        return f"no node could be asked ({reasons})" if reasons else "no node is known to be up"
    return f"{_sentence(error)} ({type(error).__name__})"


def _by_node(error: NoHostAvailable) -> list[tuple[object, Exception]]:
    return list(error.errors.items()) if isinstance(error.errors, dict) else []


def _refused(error: Exception, place: str) -> AstyqueueError:
    text = _sentence(error)
    if isinstance(error, Unauthorized):
        return StoreUnavailable(f"{place}: {text}. Let this user read and modify the keyspace")
    for signs, kind, remedy in _REFUSALS:
        if any(sign in text.lower() for sign in signs):
            return kind(f"{place}: {text}. Nothing was changed; {remedy}")
    return StoreCorrupt(f"{place}: {text}. Nothing was changed; the table is not as astyqueue made it")


def _sentence(error: object) -> str:
    return " ".join(str(error).split()).strip(".") or type(error).__name__
