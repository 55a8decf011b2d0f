"""What facts about a cluster mean for queues: arithmetic on what was asked, and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from astyqueue.clock import SECOND
from astyqueue.findings import Finding, Severity, ok
from astyqueue.stores.cassandra import keyspace
from astyqueue.stores.cassandra.address import Levels
from astyqueue.stores.cassandra.verification import LEAST_GC_GRACE

#: Clocks further apart make leases, delays and late looks noticeably wrong.
_APART: Final = SECOND
#: The last of the late looks comes ten minutes after; a sender further ahead than 50 minutes is not claimed from at all.
_FAR_APART: Final = 600 * SECOND
#: The server warns of a read that walked over more, unless it is set otherwise.
_WARN_TOMBSTONES: Final = 1_000


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
    """What a node said of itself; `silent` is why it said nothing."""

    name: str
    silent: str = ""
    schema: str = ""
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
    fact = f"{_listed(node.name for node in silent)} of {len(all_nodes)} nodes does not answer ({silent[0].silent})"
    remedy = "start it again, or repair and replace it; 'nodetool status' shows what its neighbours think"
    spare = copies - (copies // 2 + 1)
    if len(silent) <= spare:
        left = spare - len(silent)
        reason = (
            f"of {copies} copies of a row a majority must answer: {_counted(left, 'more node') if left else 'no further node'} may be away"
        )
        return Finding(subject, Severity.WARNING, fact, reason, remedy)
    reason = (
        f"rows with {'their only copy' if copies == 1 else f'{spare + 1} of {copies} copies'} there can be neither read nor written now"
    )
    return Finding(subject, Severity.PROBLEM, fact, reason, remedy)


def paxos(up: Sequence[Node]) -> Finding:
    """Which version of its compare-and-set the servers use: every claim and settle is one."""
    told = {node.name: node.settings.get("paxos_variant", "") for node in up}
    subject = "paxos variant"
    if set(told.values()) == {"v2"}:
        return ok(subject, "v2 on every node")
    older = _listed(name for name, variant in told.items() if variant == "v1")
    if older:
        reason = "a claim takes four round trips in place of two, and when processes meet on a row it times out with its outcome unknown"
        remedy = "set 'paxos_variant: v2' in the cassandra.yaml of every node and restart them one by one"
        return Finding(subject, Severity.WARNING, f"v1 on {older}", reason, remedy)
    reason = "servers before 4.1 have only the slower one" if not any(told.values()) else "nodes that do not tell it are of another version"
    return Finding(subject, Severity.NOTE, f"not told by {_listed(name for name, variant in told.items() if not variant)}", reason)


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


def replication(dc: str, kept: keyspace.Kept, *, levels: Levels, nodes: int) -> Iterator[Finding]:
    """Whether what is stored survives the loss of a node, and can be reached with one away."""
    copies = kept.copies(dc)
    yield _copies(dc, copies, nodes)
    if not kept.durable:
        reason = "a server that stops loses what it acknowledged last, and with it messages and settles"
        yield Finding("durable writes", Severity.PROBLEM, "off", reason, "ALTER KEYSPACE … WITH durable_writes = true;")
    if len(kept.data_centres) > 1 and levels.serial == "local_serial":
        reason = "with serial=local_serial two data centres decide each for itself: a message may be handed out in both"
        remedy = f"use each queue from one data centre (here: {dc}), or add serial=serial and consistency=quorum to the URL everywhere"
        yield Finding("data centres", Severity.NOTE, f"copies in {_listed(kept.data_centres)}", reason, remedy)


def _copies(dc: str, copies: int, nodes: int) -> Finding:
    subject = f"copies in {dc}"
    fact = f"{copies} of each row, on {_counted(nodes, 'node')}"
    more = "ALTER KEYSPACE to three copies on at least three nodes, then 'nodetool repair --full'"
    if copies // 2 + 1 > nodes or not copies:
        return Finding(
            subject, Severity.PROBLEM, fact, "a majority of the copies can never answer", "add nodes, or ALTER KEYSPACE to what there is"
        )
    if copies == 1 and nodes == 1:
        return Finding(subject, Severity.NOTE, fact, "fine for trying things out; a lost disk loses messages", more)
    if copies <= 2:  # noqa: PLR2004 - of two copies both are the majority
        return Finding(subject, Severity.WARNING, fact, "with one node away its rows can be neither read nor written", more)
    if copies > nodes:
        return Finding(subject, Severity.WARNING, fact, "too few nodes for that: none of them may be away", "add nodes")
    return ok(subject, fact)


def tombstones(up: Iterable[Node]) -> Iterator[Finding]:
    """Whether reads walk over what was deleted."""
    for node in up:
        limit = int(node.settings.get("tombstone_warn_threshold", _WARN_TOMBSTONES))
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
        return Finding(subject, Severity.NOTE, fact, f"{reason}; it was single reads", remedy)
    return Finding(subject, Severity.WARNING, fact, reason, remedy)


def rests(table: str, grace: int, rests_of: Mapping[str, int]) -> Iterator[Finding]:
    """Whether the rows of each queue rest until what was deleted from them may be cleaned away; `grace` in seconds."""
    for queue, rest in sorted(rests_of.items()):
        yield _rest(f"rest of the rows of queue {queue}", rest // SECOND, (table, grace))


def _rest(subject: str, rest: int, kept: tuple[str, int]) -> Finding:
    table, grace = kept
    reason = (
        f"what was deleted is kept for gc_grace_seconds, {_hours(grace)}; a row used again before finds it still there, in the way of reads"
    )
    other = 'make a queue with .time_shards(30, every="1h") under another name and move over'
    if not rest:
        return Finding(subject, Severity.WARNING, "they never rest: it has one time shard", reason, other)
    if rest > grace:
        return ok(subject, f"{_hours(rest)}, and what was deleted is kept for {_hours(grace)}")
    fact = f"{_hours(rest)} between two turns"
    if rest > LEAST_GC_GRACE:
        shortened = max(LEAST_GC_GRACE, rest * 9 // 10)
        shorter = f"{other}; or, if no node is ever away for longer: ALTER TABLE {table} WITH gc_grace_seconds = {shortened};"
        return Finding(subject, Severity.WARNING, fact, reason, shorter)
    return Finding(subject, Severity.WARNING, fact, reason, other)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _seconds(microseconds: int) -> str:
    return f"{microseconds / SECOND:.3g} s" if microseconds >= SECOND else f"{microseconds // 1_000} ms"


def _hours(seconds: int) -> str:
    hours, left = divmod(seconds, 3600)
    return f"{hours} h" if not left else f"{seconds} s" if not hours else f"{hours} h {left // 60} min"
