"""What facts about a cluster mean: each fact at which the judgement turns."""

from __future__ import annotations

import pytest

from astyqueue.clock import SECOND
from astyqueue.findings import Finding, Severity
from astyqueue.stores.cassandra import judgement
from astyqueue.stores.cassandra.address import Levels
from astyqueue.stores.cassandra.judgement import Node, Offset, Tombstones
from astyqueue.stores.cassandra.keyspace import Kept

HOUR = 3600 * SECOND


def up(count: int) -> list[Node]:
    return [Node(f"n{number}") for number in range(1, count + 1)]


def ahead(*seconds: float, uncertain: float = 0.002) -> list[Node]:
    """Nodes whose clocks are so far ahead of ours."""
    return [Node(f"n{at}", offset=Offset(int(each * SECOND), int(uncertain * SECOND))) for at, each in enumerate(seconds, 1)]


def kept(durable: bool = True, **copies: int) -> Kept:  # noqa: FBT001, FBT002 - as it reads
    return Kept({"class": "NetworkTopologyStrategy", **{dc: str(count) for dc, count in copies.items()}}, durable)


@pytest.mark.parametrize(
    ("silent", "copies", "severity", "told"),
    [
        (0, 3, Severity.OK, ""),
        (1, 3, Severity.WARNING, "no further node may be away"),
        (2, 3, Severity.PROBLEM, "rows with 2 of 3 copies there can be neither read nor written now"),
        (2, 5, Severity.WARNING, "no further node"),
        (1, 5, Severity.WARNING, "1 more node may be away"),
        (1, 2, Severity.PROBLEM, "1 of 2 copies"),
        (1, 1, Severity.PROBLEM, "their only copy"),
    ],
)
def test_nodes_that_are_away_matter_by_how_many_copies_are_left(silent: int, copies: int, severity: Severity, told: str) -> None:
    nodes = [*up(3), *(Node(f"gone{number}", silent="no answer") for number in range(silent))]
    finding = judgement.nodes("dc1", nodes, copies=copies)
    assert (finding.severity, told in finding.reason) == (severity, True)
    assert all(f"gone{number}" in finding.fact for number in range(silent))


def test_nodes_of_other_data_centres_are_said_not_to_have_been_asked() -> None:
    assert judgement.nodes("dc1", up(3), copies=3, elsewhere=2).fact == "3 nodes of 3 answer; 2 in other data centres were not asked"
    assert judgement.nodes("dc1", up(1), copies=1).fact == "1 node of 1 answers"


@pytest.mark.parametrize(
    ("variants", "severity", "told"),
    [
        (["v2", "v2"], Severity.OK, "v2 on every node"),
        (["v2", "v1"], Severity.WARNING, "v1 on n2"),
        (["", ""], Severity.NOTE, "not told by n1, n2"),
        (["v2", ""], Severity.NOTE, "not told by n2"),
    ],
)
def test_the_older_paxos_is_told_of_the_nodes_that_use_it(variants: list[str], severity: Severity, told: str) -> None:
    nodes = [Node(f"n{at}", settings={"paxos_variant": variant} if variant else {}) for at, variant in enumerate(variants, 1)]
    finding = judgement.paxos(nodes)
    assert (finding.severity, finding.fact) == (severity, told)


@pytest.mark.parametrize(
    ("seconds", "uncertain", "severity", "told"),
    [
        (0.4, 0.002, Severity.OK, "400 ms behind n1"),
        (-0.4, 0.002, Severity.OK, "400 ms ahead of n1"),
        (3, 0.002, Severity.WARNING, "3 s behind n1"),
        (3, 2.5, Severity.OK, "give or take 2.5 s"),
        (-700, 0.002, Severity.PROBLEM, "700 s ahead of n1"),
    ],
)
def test_the_clock_of_this_machine_is_compared_with_the_surest_answer(
    seconds: float, uncertain: float, severity: Severity, told: str
) -> None:
    finding = judgement.clock_here([*ahead(seconds, uncertain=uncertain), *ahead(99, uncertain=90)[:0]])
    assert (finding.severity, told in finding.fact) == (severity, True)


def test_clocks_that_cannot_be_compared_are_no_problem() -> None:
    assert judgement.clock_here([]).severity is Severity.NOTE
    assert judgement.clocks_between(up(1)).severity is Severity.OK


def test_the_clocks_of_servers_are_compared_with_each_other() -> None:
    assert judgement.clocks_between(ahead(5, 5.5, 5.9)).severity is Severity.OK
    apart = judgement.clocks_between(ahead(5, -1, 2))
    assert (apart.severity, apart.fact) == (Severity.WARNING, "6 s between n1, ahead, and n2")
    assert judgement.clocks_between(ahead(5, 3, uncertain=1)).severity is Severity.OK


def test_nodes_that_do_not_know_the_same_tables_are_told() -> None:
    assert judgement.agreement([Node("n1", schema="a"), Node("n2", schema="a")]).severity is Severity.OK
    apart = judgement.agreement([Node("n1", schema="a"), Node("n2", schema="b")])
    assert (apart.severity, apart.fact) == (Severity.WARNING, "2 versions, as on n1, n2")


@pytest.mark.parametrize(
    ("copies", "nodes", "severity"),
    [
        (3, 3, Severity.OK),
        (3, 9, Severity.OK),
        (1, 1, Severity.NOTE),
        (1, 3, Severity.WARNING),
        (2, 3, Severity.WARNING),
        (3, 2, Severity.WARNING),
        (3, 1, Severity.PROBLEM),
        (0, 3, Severity.PROBLEM),
    ],
)
def test_copies_are_judged_by_what_is_left_when_a_node_is_away(copies: int, nodes: int, severity: Severity) -> None:
    [finding] = judgement.replication("dc1", kept(dc1=copies), levels=Levels(), nodes=nodes)
    assert finding.severity is severity


def found(kept_as: Kept, levels: Levels) -> dict[str, Finding]:
    return {finding.subject: finding for finding in judgement.replication("dc1", kept_as, levels=levels, nodes=3)}


def test_a_keyspace_that_is_not_durable_loses_what_was_acknowledged() -> None:
    assert found(kept(durable=False, dc1=3), Levels())["durable writes"].severity is Severity.PROBLEM


def test_two_data_centres_decide_each_for_itself_unless_all_have_a_say() -> None:
    assert "dc2" in found(kept(dc1=3, dc2=3), Levels())["data centres"].fact
    assert "data centres" not in found(kept(dc1=3, dc2=3), Levels("quorum", "serial"))


@pytest.mark.parametrize(
    ("usual", "most", "severity"),
    [(0, 0, Severity.OK), (900, 1000, Severity.OK), (5, 1001, Severity.NOTE), (1001, 90_000, Severity.WARNING)],
)
def test_reads_that_walk_over_deleted_columns_are_told(usual: int, most: int, severity: Severity) -> None:
    [finding] = judgement.tombstones([Node("n1", tombstones={"entries": Tombstones(usual, most)})])
    assert (finding.severity, finding.subject) == (severity, "deleted columns per read on n1, entries")


def test_the_servers_own_threshold_counts() -> None:
    node = Node("n1", settings={"tombstone_warn_threshold": "50"}, tombstones={"entries": Tombstones(60, 60)})
    assert [finding.severity for finding in judgement.tombstones([node])] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("rest", "severity", "told"),
    [
        (29 * HOUR, Severity.OK, "29 h, and what was deleted is kept for 24 h"),
        (24 * HOUR, Severity.WARNING, "24 h between two turns"),
        (9 * HOUR, Severity.WARNING, "9 h between two turns"),
        (90 * 60 * SECOND, Severity.WARNING, "1 h 30 min between two turns"),
        (0, Severity.WARNING, "they never rest: it has one time shard"),
    ],
)
def test_a_row_should_rest_longer_than_what_was_deleted_is_kept(rest: int, severity: Severity, told: str) -> None:
    [finding] = judgement.rests('"jobs"."entries"', 24 * 3600, {"emails": rest})
    assert (finding.severity, finding.fact) == (severity, told)


def test_keeping_what_was_deleted_for_less_is_proposed_only_above_four_hours() -> None:
    [long, short] = judgement.rests('"jobs"."entries"', 24 * 3600, {"a": 9 * HOUR, "b": 3 * HOUR})
    assert 'ALTER TABLE "jobs"."entries" WITH gc_grace_seconds = 29160;' in long.remedy
    assert "gc_grace_seconds" not in short.remedy
