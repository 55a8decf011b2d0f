"""The CQL that makes the tables, and the CQL that the store speaks."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote

import pytest

from astyqueue.clock import SystemClock
from astyqueue.errors import BadSetting
from astyqueue.stores.admin import administer
from astyqueue.stores.cassandra.requests.queries import Statements
from astyqueue.stores.cassandra.schema.files import declared, newest, parts
from astyqueue.stores.cassandra.schema.keyspace import Keyspace, StoredKeyspace, replication

HOSTILE: Final = "x': '1'}; DROP KEYSPACE prod; --"
LITERAL: Final = re.compile(r"'(?:[^']|'')*'")


class Prepared(NamedTuple):
    """Stands for a session: what it prepares is the text itself."""

    def prepare(self, text: str) -> str:
        return text


def entries() -> str:
    (text,) = parts("jobs")[1].statements
    return text


def test_the_table_of_columns_has_the_order_of_names_and_keeps_what_was_deleted_for_a_day() -> None:
    assert entries().startswith('CREATE TABLE IF NOT EXISTS "entries"')
    assert "PRIMARY KEY ((row), type, priority, id, state)" in entries()
    assert "CLUSTERING ORDER BY (type ASC, priority DESC, id ASC, state ASC)" in entries()
    assert "gc_grace_seconds = 86400" in entries()
    assert "LeveledCompactionStrategy" in entries()
    assert "STATIC" not in entries().upper()
    assert "--" not in entries()


def test_files_are_numbered_from_nought_and_each_of_their_statements_may_be_run_again() -> None:
    assert [part.version for part in parts("jobs")] == list(range(newest("jobs") + 1))
    assert all("IF NOT EXISTS" in statement for part in parts("jobs") for statement in part.statements)


def test_the_table_with_the_lock_has_an_id_that_follows_from_its_keyspace_alone() -> None:
    (first, again, other) = (parts(keyspace)[0].statements for keyspace in ("jobs", "jobs", "mail"))
    assert first == again != other
    assert " AND id = " in first[0]


def test_what_a_table_should_be_is_read_from_the_statement_that_makes_it() -> None:
    table = declared(entries())
    assert (table.name, table.columns["row"], table.columns["value"]) == (
        "entries",
        "text, partition key column 0",
        "blob, regular",
    )
    assert table.columns["priority"] == "tinyint, clustering column 1, descending"
    assert table.options["gc_grace_seconds"] == "86400"
    assert isinstance(table.options["compaction"], dict)
    assert table.options["compaction"]["class"] == "LeveledCompactionStrategy"
    assert "comment" not in table.options


def test_what_makes_no_table_is_not_read_as_one() -> None:
    with pytest.raises(ValueError, match="not a CREATE TABLE"):
        declared("DROP TABLE entries")


def test_a_keyspace_is_made_with_the_replication_asked_for() -> None:
    made = Keyspace("jobs", replication("dc1:3, dc2:2"), durable=False).statement("here", 9)
    wanted = "{'class': 'NetworkTopologyStrategy', 'dc1': '3', 'dc2': '2'}"
    assert made == f'CREATE KEYSPACE IF NOT EXISTS "jobs" WITH replication = {wanted} AND durable_writes = false'


@pytest.mark.parametrize(
    ("dc", "nodes", "copies"),
    [("", 3, "'here': '3'"), ("dc2", 9, "'dc2': '3'"), ("", 2, "'here': '3'"), ("", 1, "'here': '1'")],
)
def test_unless_said_there_are_three_copies_in_the_home_data_centre_or_one_on_a_single_node(
    dc: str, nodes: int, copies: str
) -> None:
    assert copies in Keyspace("jobs", dc=dc).statement("here", nodes)


def test_what_a_url_calls_a_data_centre_ends_no_statement_that_is_printed_for_cqlsh() -> None:
    with administer(f"cassandra://h1/jobs?dc={quote(HOSTILE)}", clock=SystemClock()) as administration:
        statements = administration.statements()
    assert "{'class': 'NetworkTopologyStrategy', 'x'': ''1''}; DROP KEYSPACE prod; --': '3'}" in statements[0]
    assert "'x'': ''1''}; DROP KEYSPACE prod; --', 'local_quorum/local_serial'" in statements[3]
    assert not any(sign in LITERAL.sub("", statement) for statement in statements for sign in (";", "'", "DROP"))


def test_what_a_server_calls_a_data_centre_ends_no_statement_that_is_reported_as_a_remedy() -> None:
    kept = StoredKeyspace({"class": "NetworkTopologyStrategy", HOSTILE: "3", "dc1": "1"}, durable=True)
    for change in (
        Keyspace("jobs", replication("dc1:2")).change(kept, {"dc1"}),
        Keyspace("jobs", durable=False).change(kept, {"dc1"}),
    ):
        assert "DROP KEYSPACE" in change
        assert "DROP KEYSPACE" not in LITERAL.sub("", change)


@pytest.mark.parametrize("wrong", ["", "0", "dc1", "dc1:", "dc1:0", "dc1:3,", "dc1:x", "a b:1"])
def test_a_replication_that_makes_no_sense_is_refused(wrong: str) -> None:
    with pytest.raises(BadSetting, match="write dc1:3"):
        replication(wrong)


def test_a_number_of_copies_everywhere_is_that_number_in_each_data_centre() -> None:
    kept = StoredKeyspace({"class": "NetworkTopologyStrategy", "dc1": "3", "dc2": "3"}, durable=True)
    assert Keyspace("jobs", replication("3")).differs(kept, {"dc1", "dc2"}) == ""
    assert Keyspace("jobs").differs(kept, {"dc1", "dc2"}) == ""
    assert "'replication_factor': '2'" in Keyspace("jobs", replication("2")).differs(kept, {"dc1", "dc2"})
    assert "durable_writes = true" in Keyspace("jobs").differs(kept._replace(durable=False), {"dc1"})
    assert kept.copies("dc1") == 3
    assert kept.copies("dc3") == 0


def altered(change: str) -> list[str]:
    """The replications that a change goes through, one after the other."""
    return re.findall(r"replication = \{'class': 'NetworkTopologyStrategy', (.*?)\}", change)


def test_a_keyspace_in_use_gets_one_copy_more_at_a_time_with_a_repair_after_each() -> None:
    kept = StoredKeyspace({"class": "NetworkTopologyStrategy", "dc1": "1"}, durable=True)
    change = Keyspace("jobs", replication("dc1:3")).change(kept, {"dc1"})
    assert altered(change) == ["'dc1': '2'", "'dc1': '3'"]
    assert [part.startswith("'nodetool repair --full'") for part in change.split("; then ")] == [
        False,
        True,
        False,
        True,
    ]
    assert "unless all workers and senders are stopped" in change


def test_a_second_data_centre_and_fewer_copies_come_step_by_step_too() -> None:
    kept = StoredKeyspace({"class": "NetworkTopologyStrategy", "dc1": "3"}, durable=True)
    change = Keyspace("jobs", replication("dc1:2,dc2:2")).change(kept, {"dc1", "dc2"})
    assert altered(change) == ["'dc1': '2'", "'dc1': '2', 'dc2': '1'", "'dc1': '2', 'dc2': '2'"]


def test_another_strategy_may_move_all_copies_at_once_so_nobody_may_work_meanwhile() -> None:
    kept = StoredKeyspace({"class": "SimpleStrategy", "replication_factor": "3"}, durable=True)
    assert Keyspace("jobs", replication("dc1:3")).change(kept, {"dc1"}).startswith("stop all workers and senders")


def test_writes_are_made_durable_without_a_repair() -> None:
    kept = StoredKeyspace({"class": "NetworkTopologyStrategy", "dc1": "3"}, durable=False)
    change = Keyspace("jobs").change(kept, {"dc1"})
    assert change.endswith("durable_writes = true")
    assert Keyspace("jobs").change(kept._replace(durable=True), {"dc1"}) == ""


@pytest.mark.parametrize("wrong", ["", "1st", 'a"b', "a.b", "a" * 49])
def test_a_keyspace_that_cannot_be_is_refused(wrong: str) -> None:
    with pytest.raises(BadSetting, match="invalid keyspace name"):
        Keyspace(wrong).statement()


def test_plain_and_conditional_statements_are_apart_and_only_plain_ones_carry_a_stamp() -> None:
    made = Statements(Prepared(), '"jobs"."entries"')
    assert [text for text in (made.put, made.delete, made.commit) if " IF " in text] == []
    assert [
        text for text in (made.commit, made.commit_if, made.delete, made.delete_if, made.always) if "TIMESTAMP" in text
    ] == []
    assert "USING TIMESTAMP ? AND TTL ?" in made.put
    assert all(text.endswith(" IF value = ?") for text in (made.commit_if, made.delete_if))


def test_no_column_is_written_by_insert_and_every_read_names_its_row() -> None:
    made = Statements(Prepared(), '"jobs"."entries"')
    reads = [*made.slices.values(), *made.slices_of_type.values(), *made.named.values()]
    assert all('FROM "jobs"."entries" WHERE row = ? AND ' in text for text in reads)
    assert all("WRITETIME(value)" in text and "{" not in text for text in reads)
    assert not any("INSERT" in text for text in (made.put, made.commit, made.commit_if, made.always))
