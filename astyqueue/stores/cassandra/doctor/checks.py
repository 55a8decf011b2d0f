"""The findings of `doctor` on a cluster: nodes, replication, clocks, tombstones and guardrails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from astyqueue.findings import Finding, Severity, note, ok
from astyqueue.stores.cassandra.connection.settings import is_here
from astyqueue.stores.cassandra.requests.queries import NAMES, PAGE
from astyqueue.stores.cassandra.schema import keyspace
from astyqueue.stores.cassandra.schema.check import GC_GRACE, SEE_DELETES
from astyqueue.text import counted, length_text
from astyqueue.units import SECOND

#: Clocks further apart make leases, delays and late scans noticeably wrong.
_APART: Final = SECOND
#: The last late scan is ten minutes behind the first; consumers do not claim from a sender more than 50 minutes ahead.
_FAR_APART: Final = 600 * SECOND
#: The server's default `tombstone_warn_threshold`.
_WARN_TOMBSTONES: Final = 1_000
#: The first release with Paxos v2, and the first 4.1 release that does not reapply purged Paxos commits.
_FIRST_WITH_V2: Final = (4, 1)
_FIRST_SOUND: Final = (4, 1, 6)
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
#: A row should rest for gc_grace_seconds and this time, in which compaction purges its tombstones.
_SLACK_HOURS: Final = 6
#: Sections of the documentation for operators.
SEE_COPIES: Final = "docs/how-to/production.md#more-copies-or-fewer"
_SEE_GRANTS: Final = "docs/how-to/production.md#grants"
_SEE_GUARDRAILS: Final = "docs/how-to/production.md#guardrails"
_SEE_PAXOS: Final = "docs/how-to/production.md#paxos"
_SEE_RUNBOOKS: Final = "docs/how-to/production.md#runbooks"
_SEE_UPGRADE: Final = "docs/how-to/production.md#a-rolling-upgrade-of-cassandra"
_SEE_VERSIONS: Final = "docs/how-to/production.md#versions"

GRANT: Final = "GRANT SELECT ON KEYSPACE system_views TO the role of this login"
#: A send is stamped an hour in the past, and a retry keeps its stamp; the servers must allow stamps at least this old.
STAMPS_BACK: Final = 2 * 3600 * SECOND
_DURATION: Final = re.compile(r"(\d+)\s*([a-zµ]+)")
_MICROSECONDS: Final = {
    "us": 1,
    "µs": 1,
    "ms": 1_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
    "d": 86_400 * SECOND,
}
#: What was not measured, and why.
_NONE_ANSWERED: Final = "unknown: no node answered"
_SILENT: Final = "a node that does not answer cannot be measured"


class Offset(NamedTuple):
    """How far a node's clock is ahead of this machine's, and the error of that measurement, in microseconds."""

    ahead: int = 0
    uncertain: int = 0


NO_OFFSET: Final = Offset()


class Tombstones(NamedTuple):
    """Tombstones per recent read of a table: the 99th percentile and the maximum."""

    usual: int
    most: int


@dataclass(frozen=True, slots=True)
class Node:
    """The answers of a node.

    `silent`: the error if it did not answer; `forbidden`: this login may not read its settings.
    """

    name: str
    silent: str = ""
    schema: str = ""
    release: str = ""
    forbidden: bool = False
    offset: Offset = NO_OFFSET
    settings: Mapping[str, str] = field(default_factory=dict)
    tombstones: Mapping[str, Tombstones] = field(default_factory=dict)


def nodes(dc: str, all_nodes: Sequence[Node], *, copies: int, elsewhere: int = 0) -> Finding:
    """Whether enough nodes answer for a majority of the copies of every row."""
    silent = [node for node in all_nodes if node.silent]
    others = f"; {elsewhere} in other data centres were not queried" if elsewhere else ""
    subject = f"nodes of {dc}"
    if not silent:
        return ok(
            subject,
            f"{counted(len(all_nodes), 'node')} of {len(all_nodes)} answer{'s' * (len(all_nodes) == 1)}{others}",
        )
    does = "does" if len(silent) == 1 else "do"
    fact = f"{_listed(node.name for node in silent)} of {len(all_nodes)} nodes {does} not answer ({silent[0].silent})"
    remedy = (
        f"if it was down for less than {length_text(GC_GRACE * SECOND)}, restart and repair it; "
        "if longer, or if its disk is lost, wipe it and have it replace itself, "
        "because its old data would restore deleted messages; "
        "'nodetool status' shows how other nodes see it"
    )
    spare = copies - (copies // 2 + 1)
    if len(silent) <= spare:
        left = spare - len(silent)
        others = counted(left, "more node") if left else "no further node"
        reason = f"a majority of the {copies} copies of a row must answer: {others} may fail"
        return Finding(subject, Severity.WARNING, fact, reason, remedy, see=_SEE_RUNBOOKS)
    lost = "their only copy" if copies == 1 else f"{spare + 1} of {copies} copies"
    reason = f"rows with {lost} there can be neither read nor written"
    return Finding(subject, Severity.PROBLEM, fact, reason, remedy, see=_SEE_RUNBOOKS)


def paxos(up: Sequence[Node]) -> Finding:
    """Whether every node uses Paxos v2: every claim and every settle is a compare-and-set."""
    variants = {node.name: node.settings.get("paxos_variant", "") for node in up}
    subject = "paxos variant"
    if set(variants.values()) == {"v2"}:
        return ok(subject, "v2 on every node")
    older = _listed(name for name, variant in variants.items() if variant == "v1")
    if older:
        reason = (
            "v1 is not linearizable while a node joins, leaves or is replaced: a message may be delivered twice or not "
            "at all. A claim also takes four round trips, not two, and under contention its outcome is often unknown"
        )
        remedy = (
            "set 'paxos_variant: v2' in the cassandra.yaml of every node and restart the nodes one by one; "
            "until then do not add, remove or replace a node"
        )
        return Finding(subject, Severity.PROBLEM, f"v1 on {older}", reason, remedy, see=_SEE_PAXOS)
    if not up:
        return note(subject, _NONE_ANSWERED, _SILENT, see=_SEE_PAXOS)
    unknown = [node for node in up if not variants[node.name]]
    reason = "servers before 4.1 have only v1, which is unsafe while nodes join or leave"
    return note(
        subject, f"unknown on {_listed(node.name for node in unknown)}", reason, remedy=_grant(unknown), see=_SEE_PAXOS
    )


def releases(up: Sequence[Node]) -> Iterator[Finding]:
    """Whether all servers run one release, and one whose compare-and-set is correct."""
    known = {node.name: node.release for node in up if _RELEASE.match(node.release)}
    subject = "release of the servers"
    unsound = _listed(f"{name} ({release})" for name, release in known.items() if not _is_sound(release))
    if unsound:
        reason = (
            "releases before 4.1 have no Paxos v2; 4.1.0 to 4.1.5 may reapply a Paxos commit whose deletion was purged "
            "(CASSANDRA-19617): settled messages come back"
        )
        yield Finding(
            subject, Severity.PROBLEM, unsound, reason, "upgrade to 4.1.6 or later, or to 5.0", see=_SEE_VERSIONS
        )
    kinds = sorted(set(known.values()))
    if len(kinds) > 1:
        reason = "while releases are mixed it is unsafe to change tables, to repair, and to add or remove nodes"
        remedy = "finish the upgrade; do not run 'astyqueue migrate' before that"
        yield note("releases", f"{_listed(kinds)} side by side", reason, remedy=remedy, see=_SEE_UPGRADE)
    elif known and not unsound:
        yield ok(subject, f"{kinds[0]} on every node that answers")


def _is_sound(release: str) -> bool:
    found = _RELEASE.match(release)
    numbers = tuple(int(part) for part in found.groups(default="0")) if found else ()
    return numbers >= _FIRST_SOUND or numbers[:2] > _FIRST_WITH_V2


def guardrails(up: Sequence[Node]) -> Iterator[Finding]:
    """Limits set by an operator under which astyqueue cannot work."""
    forbidden = [node for node in up if node.forbidden]
    if forbidden:
        reason = "a limit of the server may reject the requests of queues, and this login may not read the limits"
        yield note(
            "guardrails",
            f"unknown on {_listed(node.name for node in forbidden)}",
            reason,
            remedy=_grant(forbidden),
            see=_SEE_GRANTS,
        )
    for guardrail in GUARDRAILS:
        refusing = [node for node in up if guardrail.refuses(node.settings.get(guardrail.setting, ""))]
        if refusing:
            value = refusing[0].settings[guardrail.setting]
            fact = f"{guardrail.setting} is {value} on {_listed(node.name for node in refusing)}"
            yield Finding(
                "guardrails", guardrail.severity, fact, guardrail.reason, guardrail.remedy, see=_SEE_GUARDRAILS
            )


def _grant(nodes: Iterable[Node]) -> str:
    """The grant with which this login can read the settings of these nodes; empty if it can read them."""
    return GRANT if any(node.forbidden for node in nodes) else ""


def login(nodes: Iterable[str], *, in_clear: bool) -> Iterator[Finding]:
    """A warning if the password, which each of these nodes gets, crosses the network in the clear."""
    if in_clear and not all(map(is_here, nodes)):
        reason = "a listener on the network can read the password and every message"
        remedy = (
            "enable client_encryption_options on the servers and put tls=1 into the URL; "
            "then change the password of this login"
        )
        yield Finding("login", Severity.WARNING, "is sent without encryption", reason, remedy)


def clock_here(up: Sequence[Node]) -> Finding:
    """The offset of this machine's clock from the server whose offset is known best."""
    subject = "clock of this machine"
    if not up:
        return note(subject, _NONE_ANSWERED, _SILENT)
    surest = min(up, key=lambda node: node.offset.uncertain)
    ahead = -surest.offset.ahead
    direction = "ahead of" if ahead > 0 else "behind"
    fact = f"{length_text(abs(ahead))} {direction} {surest.name} (± {length_text(surest.offset.uncertain)})"
    reason = (
        "queues use the servers' time, but an `at` computed from this clock, and times that commands print, "
        "are off by this much"
    )
    remedy = "synchronize this machine's clock (chrony, ntpd or systemd-timesyncd) with the time source of the servers"
    if abs(ahead) - surest.offset.uncertain > _FAR_APART:
        worse = f"{reason}; at this distance the times in this machine's logs are unreliable too"
        return Finding(subject, Severity.PROBLEM, fact, worse, remedy)
    if abs(ahead) - surest.offset.uncertain > _APART:
        return Finding(subject, Severity.WARNING, fact, reason, remedy)
    return ok(subject, fact)


def clocks_between(all_nodes: Sequence[Node]) -> Finding:
    """The greatest offset between the clocks of two servers; unknown if fewer than two of several answered."""
    subject = "clocks of the servers"
    ordered = sorted((node for node in all_nodes if not node.silent), key=lambda node: node.offset.ahead)
    if len(ordered) == len(all_nodes) == 1:
        return ok(subject, f"{ordered[0].name} is the only one")
    if len(ordered) <= 1:
        known = f"unknown: only {ordered[0].name} of {len(all_nodes)} nodes answered" if ordered else _NONE_ANSWERED
        return note(subject, known, _SILENT)
    first, last = ordered[-1], ordered[0]
    apart = first.offset.ahead - last.offset.ahead
    unknown = _listed(node.name for node in all_nodes if node.silent)
    others = f"; unknown on {unknown}" if unknown else ""
    fact = f"{length_text(apart)} between {first.name}, ahead, and {last.name}{others}"
    reason = (
        "the coordinator stamps a commit: after a commit by one that is ahead, "
        "those of others wait or fail until they catch up"
    )
    remedy = "synchronize the clocks of all servers with one source (chrony, ntpd)"
    if apart - first.offset.uncertain - last.offset.uncertain > _APART:
        return Finding(subject, Severity.WARNING, fact, reason, remedy)
    return ok(subject, fact)


def agreement(up: Sequence[Node]) -> Finding:
    """Whether all nodes that answer have the same schema version."""
    subject = "schema agreement"
    versions = {node.schema: node.name for node in up}
    if not versions:
        return note(subject, _NONE_ANSWERED, _SILENT)
    if len(versions) <= 1:
        return ok(subject, "all nodes that answer have the same schema")
    fact = f"{len(versions)} versions, for example on {_listed(versions.values())}"
    reason = "a node that does not know a table rejects requests on it"
    remedy = (
        "wait a minute and check again; if it remains, find the node with 'nodetool describecluster' and restart it"
    )
    return Finding(subject, Severity.WARNING, fact, reason, remedy)


def replication(dc: str, kept: keyspace.StoredKeyspace, *, nodes: int) -> Iterator[Finding]:
    """Whether stored data survive the loss of a node, and stay available with one node down."""
    copies = kept.copies(dc)
    yield _copies(dc, copies, nodes)
    if not kept.durable:
        reason = "a server that stops loses the writes it acknowledged last: messages and settles"
        yield Finding("durable writes", Severity.PROBLEM, "off", reason, "ALTER KEYSPACE … WITH durable_writes = true;")


def _copies(dc: str, copies: int, nodes: int) -> Finding:
    subject = f"copies in {dc}"
    fact = f"{copies} of each row, on {counted(nodes, 'node')}"
    more = f"{'' if nodes >= keyspace.COPIES else 'add nodes until there are three, then '}{keyspace.ONE_AT_A_TIME}"
    if not copies:
        remedy = "name a data centre that has copies in the URL: dc="
        return Finding(subject, Severity.PROBLEM, fact, "nothing is stored here", remedy)
    if copies // 2 + 1 > nodes:
        why, remedy = "a majority of the copies can never answer", "add nodes, or ALTER KEYSPACE to the number of nodes"
        return Finding(subject, Severity.PROBLEM, fact, why, remedy, see=SEE_COPIES)
    if copies == 1 and nodes == 1:
        why = "enough for trials; a lost disk loses messages"
        return Finding(subject, Severity.NOTE, fact, why, more, see=SEE_COPIES)
    if copies <= 2:  # noqa: PLR2004 - of two copies both are the majority
        why = "with one node down its rows can be neither read nor written"
        return Finding(subject, Severity.WARNING, fact, why, more, see=SEE_COPIES)
    if copies > nodes:
        why = "too few nodes for this number of copies: no node may be down"
        return Finding(subject, Severity.WARNING, fact, why, "add nodes", see=SEE_COPIES)
    return ok(subject, fact)


def tombstones(up: Iterable[Node]) -> Iterator[Finding]:
    """Whether reads scan more tombstones than the server's warning threshold."""
    for node in up:
        limit = int(node.settings.get("tombstone_warn_threshold", _WARN_TOMBSTONES))
        if node.forbidden:
            reason = "this login may not read them"
            yield note(f"tombstones per read on {node.name}", "unknown", reason, remedy=GRANT, see=_SEE_GRANTS)
        for table, walked in node.tombstones.items():
            yield _walked(f"tombstones per read on {node.name}, {table}", walked, limit)


def _walked(subject: str, walked: Tombstones, limit: int) -> Finding:
    fact = f"99th percentile {walked.usual}, maximum {walked.most}"
    if walked.most <= limit:
        return ok(subject, fact)
    reason = (
        f"reads that scan more than {limit} are slow, and fail at the server's failure threshold "
        "(by default 100 times as many)"
    )
    remedy = (
        "check the table's compaction and gc_grace_seconds with 'astyqueue verify'; run 'nodetool compact' once; "
        "a queue with more time shards spreads its tombstones over more rows"
    )
    if walked.usual <= limit:
        return Finding(subject, Severity.NOTE, fact, f"{reason}; only single reads did", remedy, see=SEE_DELETES)
    return Finding(subject, Severity.WARNING, fact, reason, remedy, see=SEE_DELETES)


def rests(grace: int, rests_of: Mapping[str, int]) -> Iterator[Finding]:
    """Whether the rows of each queue rest until their tombstones may be purged; `grace` is gc_grace_seconds."""
    for queue, rest in sorted(rests_of.items()):
        yield _rest(f"rest of the rows of queue {queue}", rest // SECOND, grace)


def _rest(subject: str, rest: int, grace: int) -> Finding:
    reason = (
        f"tombstones are kept for gc_grace_seconds, {length_text(grace * SECOND)}; "
        "a row that is reused earlier still contains them, which slows reads"
    )
    fact = f"{length_text(rest * SECOND)}; tombstones are kept for {length_text(grace * SECOND)}"
    if rest >= grace + (_SLACK_HOURS - 1) * 3600:
        return ok(subject, fact)
    shards = -(-grace // 3600) + _SLACK_HOURS
    other = f'make a queue with .time_shards({shards}, every="1h") under another name and move the messages to it'
    if rest > GC_GRACE:
        least = length_text(GC_GRACE * SECOND)
        other += f"; or lower gc_grace_seconds to {least}, if every node is repaired in full more often than that"
    if rest > grace:
        left = (
            f"that leaves {length_text((rest - grace) * SECOND)} to purge them, "
            "and after a repair or an outage compaction may take longer"
        )
        return Finding(subject, Severity.NOTE, fact, left, other, see=SEE_DELETES)
    turns = f"{length_text(rest * SECOND)} between two turns" if rest else "none: the queue has one time shard"
    return Finding(subject, Severity.WARNING, turns, reason, other, see=SEE_DELETES)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


class Guardrail(NamedTuple):
    """A setting of the server; `refuses(value)` is whether that value is too strict."""

    setting: str
    refuses: Callable[[str], bool]
    reason: str
    remedy: str
    severity: Severity = Severity.PROBLEM


def _fewer_than(least: int) -> Callable[[str], bool]:
    """Whether a limit is lower than `least`; zero or below means unlimited."""
    return lambda value: value.isdecimal() and 0 < int(value) < least


def _is_recent(value: str) -> bool:
    """Whether the oldest stamp allowed is younger than `STAMPS_BACK`."""
    found = _DURATION.fullmatch(value)
    return found is not None and 0 < int(found[1]) * _MICROSECONDS.get(found[2], SECOND) < STAMPS_BACK


def _is_off(value: str) -> bool:
    return value.lower() == "false"


GUARDRAILS: Final = (
    Guardrail(
        "user_timestamps_enabled",
        _is_off,
        "every send carries its own write time, so the servers reject all sends",
        "set 'user_timestamps_enabled: true' in the cassandra.yaml of every node",
    ),
    Guardrail(
        "minimum_timestamp_fail_threshold",
        _is_recent,
        "every send carries a write time one hour in the past; Cassandra 5.0 does not check batches, "
        "but releases that do reject all sends",
        "raise 'minimum_timestamp_fail_threshold' to two hours or more on every node, or remove it",
        Severity.WARNING,
    ),
    Guardrail(
        "in_select_cartesian_product_fail_threshold",
        _fewer_than(NAMES),
        f"a read names up to {NAMES} columns, and fails",
        f"raise 'in_select_cartesian_product_fail_threshold' to {NAMES} or more on every node, or remove it",
    ),
    Guardrail(
        "page_size_fail_threshold",
        _fewer_than(PAGE),
        f"a read fetches pages of {PAGE} columns, and fails",
        f"raise 'page_size_fail_threshold' to {PAGE} or more on every node, or remove it",
    ),
)
