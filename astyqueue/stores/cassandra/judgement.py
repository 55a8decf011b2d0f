"""What facts about a cluster mean for queues: arithmetic on what was asked, and sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from astyqueue.clock import SECOND
from astyqueue.findings import Finding, Severity, note, ok
from astyqueue.stores.cassandra import keyspace
from astyqueue.stores.cassandra.guardrails import GUARDRAILS
from astyqueue.stores.cassandra.verification import GC_GRACE, SEE_DELETES

#: Clocks further apart make leases, delays and late looks noticeably wrong.
_APART: Final = SECOND
#: The last of the late looks comes ten minutes after; a sender further ahead than 50 minutes is not claimed from at all.
_FAR_APART: Final = 600 * SECOND
#: The server warns of a read that walked over more, unless it is set otherwise.
_WARN_TOMBSTONES: Final = 1_000
#: The first release with the newer Paxos, and the first of that line which does not apply purged Paxos commits again.
_FIRST_WITH_V2: Final = (4, 1)
_FIRST_SOUND: Final = (4, 1, 6)
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
#: How much longer than what was deleted is kept a row should rest: so long may compaction take to clean it away.
_SLACK_HOURS: Final = 6
#: Where the documentation says what an operator is to do.
SEE_COPIES: Final = "docs/how-to/production.md#more-copies-or-fewer"
_SEE_GRANTS: Final = "docs/how-to/production.md#grants"
_SEE_GUARDRAILS: Final = "docs/how-to/production.md#guardrails"
_SEE_PAXOS: Final = "docs/how-to/production.md#paxos"
_SEE_RUNBOOKS: Final = "docs/how-to/production.md#runbooks"
_SEE_UPGRADE: Final = "docs/how-to/production.md#a-rolling-upgrade-of-cassandra"
_SEE_VERSIONS: Final = "docs/how-to/production.md#versions"

GRANT: Final = "GRANT SELECT ON KEYSPACE system_views TO the role of this login"


class Offset(NamedTuple):
    """How far a node's clock is ahead of ours, in microseconds, and how uncertain that is."""

    ahead: int = 0
    uncertain: int = 0


NO_OFFSET: Final = Offset()


class Tombstones(NamedTuple):
    """How many deleted columns reads of a table have walked over lately: 99 of 100 reads no more, and the most."""

    usual: int
    most: int


@dataclass(frozen=True, slots=True)
class Node:
    """What a node said of itself; `silent` is why it said nothing, `forbidden` that this login may not read its settings."""

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
    others = f"; {elsewhere} in other data centres were not asked" if elsewhere else ""
    subject = f"nodes of {dc}"
    if not silent:
        return ok(subject, f"{_counted(len(all_nodes), 'node')} of {len(all_nodes)} answer{'s' * (len(all_nodes) == 1)}{others}")
    does = "does" if len(silent) == 1 else "do"
    fact = f"{_listed(node.name for node in silent)} of {len(all_nodes)} nodes {does} not answer ({silent[0].silent})"
    remedy = (
        f"start it again if it was away for less than {_hours(GC_GRACE)}, and repair it; after longer, or with its disk lost, wipe it and "
        "have it replace itself, for its old data bring back what was deleted; 'nodetool status' shows what its neighbours think"
    )
    spare = copies - (copies // 2 + 1)
    if len(silent) <= spare:
        left = spare - len(silent)
        reason = (
            f"of {copies} copies of a row a majority must answer: {_counted(left, 'more node') if left else 'no further node'} may be away"
        )
        return Finding(subject, Severity.WARNING, fact, reason, remedy, see=_SEE_RUNBOOKS)
    reason = (
        f"rows with {'their only copy' if copies == 1 else f'{spare + 1} of {copies} copies'} there can be neither read nor written now"
    )
    return Finding(subject, Severity.PROBLEM, fact, reason, remedy, see=_SEE_RUNBOOKS)


def paxos(up: Sequence[Node]) -> Finding:
    """Which version of its compare-and-set the servers use: every claim and settle is one."""
    variants = {node.name: node.settings.get("paxos_variant", "") for node in up}
    subject = "paxos variant"
    if set(variants.values()) == {"v2"}:
        return ok(subject, "v2 on every node")
    older = _listed(name for name, variant in variants.items() if variant == "v1")
    if older:
        reason = (
            "v1 is not linearizable while a node joins, leaves or is replaced: a message may be handed out twice, or be lost from view. "
            "And a claim takes four round trips in place of two, and often ends with its outcome unknown where processes meet on a row"
        )
        remedy = (
            "set 'paxos_variant: v2' in the cassandra.yaml of every node and restart them one by one; until all have it, "
            "add, remove or replace no node"
        )
        return Finding(subject, Severity.PROBLEM, f"v1 on {older}", reason, remedy, see=_SEE_PAXOS)
    unknown = [node for node in up if not variants[node.name]]
    reason = "servers before 4.1 have only v1, which is unsafe whenever nodes join or leave"
    return note(subject, f"not known of {_listed(node.name for node in unknown)}", reason, remedy=_grant(unknown), see=_SEE_PAXOS)


def releases(up: Sequence[Node]) -> Iterator[Finding]:
    """Whether the servers' releases keep what they promise for compare-and-set, and are the same."""
    known = {node.name: node.release for node in up if _RELEASE.match(node.release)}
    subject = "release of the servers"
    unsound = _listed(f"{name} ({release})" for name, release in known.items() if not _is_sound(release))
    if unsound:
        reason = (
            "before 4.1 there is no Paxos v2; 4.1.0 to 4.1.5 may apply a Paxos commit again whose deletion was purged since "
            "(CASSANDRA-19617): settled messages come back"
        )
        yield Finding(subject, Severity.PROBLEM, unsound, reason, "upgrade to 4.1.6 or later, or to 5.0", see=_SEE_VERSIONS)
    kinds = sorted(set(known.values()))
    if len(kinds) > 1:
        reason = "while releases are mixed, changing tables, repairing, and adding or removing nodes is unsafe"
        remedy = "finish the upgrade first; run no 'astyqueue migrate' until then"
        yield note("releases", f"{_listed(kinds)} side by side", reason, remedy=remedy, see=_SEE_UPGRADE)
    elif known and not unsound:
        yield ok(subject, f"{kinds[0]} on every node that answers")


def _is_sound(release: str) -> bool:
    found = _RELEASE.match(release)
    numbers = tuple(int(part) for part in found.groups(default="0")) if found else ()
    return numbers >= _FIRST_SOUND or numbers[:2] > _FIRST_WITH_V2


def guardrails(up: Sequence[Node]) -> Iterator[Finding]:
    """Limits that an operator has set and that astyqueue cannot work under."""
    forbidden = [node for node in up if node.forbidden]
    if forbidden:
        reason = "a limit of the server may refuse what queues do, and this login may not read them"
        yield note(
            "guardrails", f"not known of {_listed(node.name for node in forbidden)}", reason, remedy=_grant(forbidden), see=_SEE_GRANTS
        )
    for guardrail in GUARDRAILS:
        refusing = [node for node in up if guardrail.refuses(node.settings.get(guardrail.setting, ""))]
        if refusing:
            value = refusing[0].settings[guardrail.setting]
            fact = f"{guardrail.setting} is {value} on {_listed(node.name for node in refusing)}"
            yield Finding("guardrails", guardrail.severity, fact, guardrail.reason, guardrail.remedy, see=_SEE_GUARDRAILS)


def _grant(nodes: Iterable[Node]) -> str:
    """What to do about nodes whose settings this login may not read; empty if none of them says so."""
    return GRANT if any(node.forbidden for node in nodes) else ""


def login(*, shown: bool) -> Iterator[Finding]:
    """Whether the password of the URL can be read on its way to the servers."""
    if shown:
        reason = "whoever hears what this network carries can read the password, and every message"
        remedy = "let the servers encrypt (client_encryption_options), and say tls=1 in the URL; then give this login another password"
        yield Finding("login", Severity.WARNING, "is sent without encryption", reason, remedy)


def clock_here(up: Sequence[Node]) -> Finding:
    """How far the clock of this machine is from those of the servers."""
    subject = "clock of this machine"
    if not up:
        return Finding(subject, Severity.NOTE, "not compared", "no node answered")
    surest = min(up, key=lambda node: node.offset.uncertain)
    ahead = -surest.offset.ahead
    fact = (
        f"{_seconds(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} {surest.name} (give or take {_seconds(surest.offset.uncertain)})"
    )
    reason = "queues go by the servers' time, but what is sent `at` a time of this clock, and what commands show, is wrong by as much"
    remedy = "let this machine keep time (chrony, ntpd or systemd-timesyncd), and see that it follows the servers' source"
    if abs(ahead) - surest.offset.uncertain > _FAR_APART:
        grave = f"{reason}; so far apart, this machine's own logs and timeouts cannot be trusted either"
        return Finding(subject, Severity.PROBLEM, fact, grave, remedy)
    if abs(ahead) - surest.offset.uncertain > _APART:
        return Finding(subject, Severity.WARNING, fact, reason, remedy)
    return ok(subject, fact)


def clocks_between(up: Sequence[Node]) -> Finding:
    """How far the clocks of the servers are from each other."""
    subject = "clocks of the servers"
    ordered = sorted(up, key=lambda node: node.offset.ahead)
    if len(ordered) <= 1:
        return ok(subject, "there is one to look at")
    first, last = ordered[-1], ordered[0]
    apart = first.offset.ahead - last.offset.ahead
    fact = f"{_seconds(apart)} between {first.name}, ahead, and {last.name}"
    reason = "a commit is stamped by the server that leads it: after one that is ahead, others wait or are refused until they catch up"
    remedy = "let all servers keep time from one source (chrony, ntpd)"
    if apart - first.offset.uncertain - last.offset.uncertain > _APART:
        return Finding(subject, Severity.WARNING, fact, reason, remedy)
    return ok(subject, fact)


def agreement(up: Sequence[Node]) -> Finding:
    """Whether the nodes know the same tables."""
    subject = "schema agreement"
    versions = {node.schema: node.name for node in up}
    if len(versions) <= 1:
        return ok(subject, "all nodes that answer know the same tables")
    fact = f"{len(versions)} versions, as on {_listed(versions.values())}"
    reason = "a node that does not know a table refuses what is asked of it"
    remedy = "wait a minute and look again; then 'nodetool describecluster', and restart the node that stays apart"
    return Finding(subject, Severity.WARNING, fact, reason, remedy)


def replication(dc: str, kept: keyspace.Kept, *, nodes: int) -> Iterator[Finding]:
    """Whether what is stored survives the loss of a node, and can be reached with one away."""
    copies = kept.copies(dc)
    yield _copies(dc, copies, nodes)
    if not kept.durable:
        reason = "a server that stops loses what it acknowledged last, and with it messages and settles"
        yield Finding("durable writes", Severity.PROBLEM, "off", reason, "ALTER KEYSPACE … WITH durable_writes = true;")


def _copies(dc: str, copies: int, nodes: int) -> Finding:
    subject = f"copies in {dc}"
    fact = f"{copies} of each row, on {_counted(nodes, 'node')}"
    more = f"{'' if nodes >= keyspace.COPIES else 'add nodes until there are three, then '}{keyspace.ONE_AT_A_TIME}"
    if not copies:
        return Finding(subject, Severity.PROBLEM, fact, "nothing is kept here", "put a data centre that has copies into the URL: dc=")
    if copies // 2 + 1 > nodes:
        return Finding(
            subject,
            Severity.PROBLEM,
            fact,
            "a majority of the copies can never answer",
            "add nodes, or ALTER KEYSPACE to what there is",
            see=SEE_COPIES,
        )
    if copies == 1 and nodes == 1:
        return Finding(subject, Severity.NOTE, fact, "fine for trying things out; a lost disk loses messages", more, see=SEE_COPIES)
    if copies <= 2:  # noqa: PLR2004 - of two copies both are the majority
        return Finding(subject, Severity.WARNING, fact, "with one node away its rows can be neither read nor written", more, see=SEE_COPIES)
    if copies > nodes:
        return Finding(subject, Severity.WARNING, fact, "too few nodes for that: none of them may be away", "add nodes", see=SEE_COPIES)
    return ok(subject, fact)


def tombstones(up: Iterable[Node]) -> Iterator[Finding]:
    """Whether reads walk over what was deleted."""
    for node in up:
        limit = int(node.settings.get("tombstone_warn_threshold", _WARN_TOMBSTONES))
        if node.forbidden:
            reason = "this login may not read them"
            yield note(f"deleted columns per read on {node.name}", "not known", reason, remedy=GRANT, see=_SEE_GRANTS)
        for table, walked in node.tombstones.items():
            yield _walked(f"deleted columns per read on {node.name}, {table}", walked, limit)


def _walked(subject: str, walked: Tombstones, limit: int) -> Finding:
    fact = f"{walked.usual} for 99 of 100 reads, {walked.most} at most"
    if walked.most <= limit:
        return ok(subject, fact)
    reason = f"reads that walk over more than {limit} are slow, and those over 100 times as many fail"
    remedy = (
        "see that the table's compaction and gc_grace_seconds are as 'astyqueue verify' wants them; "
        "'nodetool compact' once; a queue with more time shards spreads what it deletes"
    )
    if walked.usual <= limit:
        return Finding(subject, Severity.NOTE, fact, f"{reason}; it was single reads", remedy, see=SEE_DELETES)
    return Finding(subject, Severity.WARNING, fact, reason, remedy, see=SEE_DELETES)


def rests(grace: int, rests_of: Mapping[str, int]) -> Iterator[Finding]:
    """Whether the rows of each queue rest until what was deleted from them may be cleaned away; `grace` in seconds."""
    for queue, rest in sorted(rests_of.items()):
        yield _rest(f"rest of the rows of queue {queue}", rest // SECOND, grace)


def _rest(subject: str, rest: int, grace: int) -> Finding:
    reason = (
        f"what was deleted is kept for gc_grace_seconds, {_hours(grace)}; a row used again before finds it still there, in the way of reads"
    )
    fact = f"{_hours(rest)}, and what was deleted is kept for {_hours(grace)}"
    if rest >= grace + (_SLACK_HOURS - 1) * 3600:
        return ok(subject, fact)
    other = f'make a queue with .time_shards({-(-grace // 3600) + _SLACK_HOURS}, every="1h") under another name and move over'
    if rest > GC_GRACE:
        other += f"; or keep what was deleted for {_hours(GC_GRACE)} only, if every node is repaired in full more often than that"
    if rest > grace:
        left = f"that leaves {_hours(rest - grace)} to clean it away, and compaction may be further behind after a repair or an outage"
        return Finding(subject, Severity.NOTE, fact, left, other, see=SEE_DELETES)
    turns = f"{_hours(rest)} between two turns" if rest else "they never rest: it has one time shard"
    return Finding(subject, Severity.WARNING, turns, reason, other, see=SEE_DELETES)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _seconds(microseconds: int) -> str:
    return f"{microseconds / SECOND:.3g} s" if microseconds >= SECOND else f"{microseconds // 1_000} ms"


def _hours(seconds: int) -> str:
    hours, left = divmod(seconds, 3600)
    return f"{hours} h" if not left else f"{seconds} s" if not hours else f"{hours} h {left // 60} min"
