"""What facts about a cluster mean: each fact at which the verdict changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from astyqueue.findings import Finding, Severity, worst
from astyqueue.stores.cassandra.connection.settings import Address
from astyqueue.stores.cassandra.doctor import checks
from astyqueue.stores.cassandra.doctor.checks import Node, Offset, Tombstones
from astyqueue.stores.cassandra.schema.check import GC_GRACE
from astyqueue.stores.cassandra.schema.files import declared, parts
from astyqueue.stores.cassandra.schema.keyspace import StoredKeyspace
from astyqueue.stores.url import locate
from astyqueue.units import SECOND

HOUR = 3600 * SECOND
FORBIDDEN = [Node("n1", forbidden=True)]


def up(count: int) -> list[Node]:
    return [Node(f"n{number}") for number in range(1, count + 1)]


def ahead(*seconds: float, uncertain: float = 0.002) -> list[Node]:
    """Nodes whose clocks are this many seconds ahead of ours."""
    return [
        Node(f"n{at}", offset=Offset(int(each * SECOND), int(uncertain * SECOND))) for at, each in enumerate(seconds, 1)
    ]


def kept(durable: bool = True, **copies: int) -> StoredKeyspace:  # noqa: FBT001, FBT002 - as it reads
    return StoredKeyspace(
        {"class": "NetworkTopologyStrategy", **{dc: str(count) for dc, count in copies.items()}}, durable
    )


@pytest.mark.parametrize(
    ("silent", "copies", "severity", "told"),
    [
        (0, 3, Severity.OK, ""),
        (1, 3, Severity.WARNING, "no further node may fail"),
        (2, 3, Severity.PROBLEM, "rows with 2 of 3 copies there can be neither read nor written"),
        (2, 5, Severity.WARNING, "no further node"),
        (1, 5, Severity.WARNING, "1 more node may fail"),
        (1, 2, Severity.PROBLEM, "1 of 2 copies"),
        (1, 1, Severity.PROBLEM, "their only copy"),
    ],
)
def test_nodes_that_are_away_matter_by_how_many_copies_are_left(
    silent: int, copies: int, severity: Severity, told: str
) -> None:
    nodes = [*up(3), *(Node(f"gone{number}", silent="no answer") for number in range(silent))]
    finding = checks.nodes("dc1", nodes, copies=copies)
    assert (finding.severity, told in finding.reason) == (severity, True)
    assert all(f"gone{number}" in finding.fact for number in range(silent))
    assert not silent or f"of {3 + silent} nodes {'does' if silent == 1 else 'do'} not answer" in finding.fact


def test_nodes_of_other_data_centres_are_said_not_to_have_been_asked() -> None:
    assert (
        checks.nodes("dc1", up(3), copies=3, elsewhere=2).fact
        == "3 nodes of 3 answer; 2 in other data centres were not queried"
    )
    assert checks.nodes("dc1", up(1), copies=1).fact == "1 node of 1 answers"


@pytest.mark.parametrize(
    ("variants", "severity", "told"),
    [
        (["v2", "v2"], Severity.OK, "v2 on every node"),
        (["v2", "v1"], Severity.PROBLEM, "v1 on n2"),
        (["", ""], Severity.NOTE, "unknown on n1, n2"),
        (["v2", ""], Severity.NOTE, "unknown on n2"),
    ],
)
def test_the_older_paxos_is_told_of_the_nodes_that_use_it(variants: list[str], severity: Severity, told: str) -> None:
    nodes = [
        Node(f"n{at}", settings={"paxos_variant": variant} if variant else {}) for at, variant in enumerate(variants, 1)
    ]
    finding = checks.paxos(nodes)
    assert (finding.severity, finding.fact) == (severity, told)


def test_where_the_older_paxos_is_no_node_may_come_or_go() -> None:
    assert "do not add, remove or replace a node" in checks.paxos([Node("n1", settings={"paxos_variant": "v1"})]).remedy


@pytest.mark.parametrize(
    ("releases", "severity", "told"),
    [
        (["5.0.9", "5.0.9"], Severity.OK, "5.0.9 on every node"),
        (["4.1.6"], Severity.OK, "4.1.6"),
        (["4.1.5", "4.1.6"], Severity.PROBLEM, "n1 (4.1.5)"),
        (["4.0.21"], Severity.PROBLEM, "n1 (4.0.21)"),
        (["3.0.8"], Severity.PROBLEM, "n1 (3.0.8)"),
        (["6.0-alpha2"], Severity.OK, "6.0-alpha2"),
        (["4.1.12", "5.0.9"], Severity.NOTE, "4.1.12, 5.0.9 side by side"),
    ],
)
def test_releases_that_apply_purged_commits_again_are_a_problem_and_mixed_ones_are_noted(
    releases: list[str], severity: Severity, told: str
) -> None:
    found = list(checks.releases([Node(f"n{at}", release=release) for at, release in enumerate(releases, 1)]))
    assert worst(found) is severity
    assert told in found[0].fact


@pytest.mark.parametrize(
    ("setting", "value", "refuses"),
    [
        ("user_timestamps_enabled", "false", True),
        ("user_timestamps_enabled", "true", False),
        ("minimum_timestamp_fail_threshold", "3600s", True),
        ("minimum_timestamp_fail_threshold", "30m", True),
        ("minimum_timestamp_fail_threshold", "3600000000us", True),
        ("minimum_timestamp_fail_threshold", "1d", False),
        ("minimum_timestamp_fail_threshold", "0s", False),
        ("minimum_timestamp_fail_threshold", "", False),
        ("in_select_cartesian_product_fail_threshold", "499", True),
        ("in_select_cartesian_product_fail_threshold", "500", False),
        ("in_select_cartesian_product_fail_threshold", "-1", False),
        ("page_size_fail_threshold", "1000", True),
    ],
)
def test_limits_under_which_queues_cannot_work_are_problems(setting: str, value: str, *, refuses: bool) -> None:
    found = list(checks.guardrails([Node("n1"), Node("n2", settings={setting: value})]))
    assert [one.fact for one in found] == [f"{setting} is {value} on n2"] * refuses
    assert worst(found) >= Severity.WARNING * refuses


def test_what_a_login_may_not_read_is_not_known_and_never_well() -> None:
    found = [checks.paxos(FORBIDDEN), *checks.guardrails(FORBIDDEN), *checks.tombstones(FORBIDDEN)]
    assert [(one.severity, "unknown" in one.fact) for one in found] == [(Severity.NOTE, True)] * 3
    assert all("GRANT SELECT ON KEYSPACE system_views TO" in one.remedy for one in found)


@pytest.mark.parametrize(
    ("seconds", "uncertain", "severity", "told"),
    [
        (0.4, 0.002, Severity.OK, "400ms behind n1"),
        (-0.4, 0.002, Severity.OK, "400ms ahead of n1"),
        (3, 0.002, Severity.WARNING, "3s behind n1"),
        (3, 2.5, Severity.OK, "± 2.5s"),
        (-700, 0.002, Severity.PROBLEM, "11m40s ahead of n1"),
    ],
)
def test_the_clock_of_this_machine_is_compared_with_the_surest_answer(
    seconds: float, uncertain: float, severity: Severity, told: str
) -> None:
    finding = checks.clock_here([*ahead(seconds, uncertain=uncertain), *ahead(99, uncertain=90)[:0]])
    assert (finding.severity, told in finding.fact) == (severity, True)


def test_a_login_that_others_can_read_on_its_way_is_reported() -> None:
    [finding] = checks.login(["10.0.0.1"], in_clear=True)
    assert (finding.severity, "tls=1" in finding.remedy) == (Severity.WARNING, True)
    assert not list(checks.login(["10.0.0.1"], in_clear=False))


def test_a_password_that_reaches_other_nodes_through_one_on_this_machine_is_warned_of() -> None:
    """A node of a ring, and a client on its machine that names 127.0.0.1: the driver logs in at every node."""
    through = Address.of(locate("cassandra://ada:secret@127.0.0.1/jobs"))
    assert (through.shows_login, through.login_in_clear) == (False, True)
    [finding] = checks.login(["127.0.0.1", "10.0.0.2"], in_clear=through.login_in_clear)
    assert finding.severity is Severity.WARNING
    assert not list(checks.login(["127.0.0.1"], in_clear=True))


@pytest.mark.parametrize("measured", [checks.clock_here, checks.clocks_between, checks.agreement, checks.paxos])
def test_what_no_node_answered_is_unknown(measured: Callable[[list[Node]], Finding]) -> None:
    finding = measured([])
    assert (finding.severity, finding.fact) == (Severity.NOTE, "unknown: no node answered")


def test_clocks_of_servers_that_do_not_answer_are_unknown() -> None:
    silent = Node("gone", silent="no answer")
    assert checks.clocks_between(up(1)).severity is Severity.OK
    none = checks.clocks_between([silent])
    assert (none.severity, none.fact) == (Severity.NOTE, "unknown: no node answered")
    one = checks.clocks_between([*up(1), silent])
    assert (one.severity, one.fact) == (Severity.NOTE, "unknown: only n1 of 2 nodes answered")
    two = checks.clocks_between([*ahead(5, 5.5), silent])
    assert (two.severity, two.fact) == (Severity.OK, "500ms between n2, ahead, and n1; unknown on gone")


def test_the_clocks_of_servers_are_compared_with_each_other() -> None:
    assert checks.clocks_between(ahead(5, 5.5, 5.9)).severity is Severity.OK
    apart = checks.clocks_between(ahead(5, -1, 2))
    assert (apart.severity, apart.fact) == (Severity.WARNING, "6s between n1, ahead, and n2")
    assert checks.clocks_between(ahead(5, 3, uncertain=1)).severity is Severity.OK


def test_nodes_that_do_not_know_the_same_tables_are_reported() -> None:
    assert checks.agreement([Node("n1", schema="a"), Node("n2", schema="a")]).severity is Severity.OK
    apart = checks.agreement([Node("n1", schema="a"), Node("n2", schema="b")])
    assert (apart.severity, apart.fact) == (Severity.WARNING, "2 versions, for example on n1, n2")


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
    [finding] = checks.replication("dc1", kept(dc1=copies), nodes=nodes)
    assert finding.severity is severity


def test_a_keyspace_that_is_not_durable_loses_what_was_acknowledged() -> None:
    [_, finding] = checks.replication("dc1", kept(durable=False, dc1=3), nodes=3)
    assert (finding.subject, finding.severity) == ("durable writes", Severity.PROBLEM)


@pytest.mark.parametrize(
    ("usual", "most", "severity"),
    [(0, 0, Severity.OK), (900, 1000, Severity.OK), (5, 1001, Severity.NOTE), (1001, 90_000, Severity.WARNING)],
)
def test_reads_that_pass_deleted_columns_are_reported(usual: int, most: int, severity: Severity) -> None:
    [finding] = checks.tombstones([Node("n1", tombstones={"entries": Tombstones(usual, most)})])
    assert (finding.severity, finding.subject) == (severity, "tombstones per read on n1, entries")


def test_the_servers_own_threshold_counts() -> None:
    node = Node("n1", settings={"tombstone_warn_threshold": "50"}, tombstones={"entries": Tombstones(60, 60)})
    assert [finding.severity for finding in checks.tombstones([node])] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("rest", "severity", "told"),
    [
        (29 * HOUR, Severity.OK, "29h; tombstones are kept for 24h"),
        (28 * HOUR, Severity.NOTE, "28h; tombstones are kept for 24h"),
        (24 * HOUR, Severity.WARNING, "24h between two turns"),
        (9 * HOUR, Severity.WARNING, "9h between two turns"),
        (90 * 60 * SECOND, Severity.WARNING, "1h30m between two turns"),
        (0, Severity.WARNING, "none: the queue has one time shard"),
    ],
)
def test_a_row_should_rest_longer_than_what_was_deleted_is_kept(rest: int, severity: Severity, told: str) -> None:
    [finding] = checks.rests(24 * 3600, {"emails": rest})
    assert (finding.severity, finding.fact) == (severity, told)


def test_too_short_a_rest_gets_more_shards_and_never_the_advice_to_keep_tombstones_for_less_than_verify_asks() -> None:
    [short] = checks.rests(GC_GRACE, {"a": 9 * HOUR})
    assert (
        short.remedy == 'make a queue with .time_shards(30, every="1h") under another name and move the messages to it'
    )
    [usual] = checks.rests(10 * GC_GRACE, {"a": 29 * HOUR})
    assert '.time_shards(246, every="1h")' in usual.remedy
    assert "lower gc_grace_seconds to 24h, if every node is repaired in full more often" in usual.remedy


def test_what_was_deleted_is_kept_as_long_as_the_table_is_made_to() -> None:
    (entries,) = parts("jobs")[1].statements
    assert declared(entries).options["gc_grace_seconds"] == str(GC_GRACE)


def test_a_node_that_was_away_for_long_is_wiped_and_not_repaired() -> None:
    remedy = checks.nodes("dc1", [*up(2), Node("n3", silent="no answer")], copies=3).remedy
    assert "down for less than 24h" in remedy
    assert "wipe it and have it replace itself" in remedy


@pytest.mark.parametrize("copies", [1, 2])
def test_copies_are_made_more_by_one_at_a_time(copies: int) -> None:
    [finding] = checks.replication("dc1", kept(dc1=copies), nodes=3)
    assert "one copy at a time (1 to 2, 2 to 3), each time followed by 'nodetool repair --full'" in finding.remedy
    assert "stop all workers and senders first" in finding.remedy


def test_what_is_ill_says_where_to_read_on() -> None:
    ill = [Node("n1", release="4.1.5", settings={"paxos_variant": "v1", "user_timestamps_enabled": "false"})]
    found = [
        checks.paxos(ill),
        *checks.releases(ill),
        *checks.guardrails(ill),
        checks.nodes("dc1", [Node("gone", silent="no answer")], copies=1),
        *checks.replication("dc1", kept(dc1=2), nodes=3),
        *checks.rests(GC_GRACE, {"emails": 0}),
    ]
    assert [finding.subject for finding in found if not finding.see.startswith("docs/how-to/production.md#")] == []
