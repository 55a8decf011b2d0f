"""The CQL that makes the tables, and the CQL that the store speaks."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from astyqueue.errors import BadSetting
from astyqueue.stores.cassandra.schema import keyspace_statement, statements
from astyqueue.stores.cassandra.statements import Statements


class Prepared(NamedTuple):
    """Stands for a session: what it prepares is the text itself."""

    def prepare(self, text: str) -> str:
        return text


def test_the_table_of_columns_has_the_order_of_names_and_keeps_what_was_deleted_for_a_day() -> None:
    (text,) = statements()
    assert text.startswith('CREATE TABLE IF NOT EXISTS "entries"')
    assert "PRIMARY KEY ((row), type, priority, id, state)" in text
    assert "CLUSTERING ORDER BY (type ASC, priority DESC, id ASC, state ASC)" in text
    assert "gc_grace_seconds = 86400" in text
    assert "LeveledCompactionStrategy" in text
    assert "STATIC" not in text.upper()
    assert "--" not in text


def test_a_keyspace_is_made_with_the_replication_asked_for() -> None:
    made = keyspace_statement("jobs", {"class": "NetworkTopologyStrategy", "dc'1": 3})
    assert made == "CREATE KEYSPACE IF NOT EXISTS \"jobs\" WITH replication = {'class': 'NetworkTopologyStrategy', 'dc''1': '3'}"


@pytest.mark.parametrize("wrong", ["", "1st", 'a"b', "a.b", "a" * 49])
def test_a_keyspace_that_cannot_be_is_refused(wrong: str) -> None:
    with pytest.raises(BadSetting, match="cannot be"):
        keyspace_statement(wrong, {})


def test_plain_and_conditional_statements_are_apart_and_only_plain_ones_carry_a_stamp() -> None:
    made = Statements(Prepared(), '"jobs"."entries"')
    assert [text for text in (made.put, made.delete, made.commit) if " IF " in text] == []
    assert [text for text in (made.commit, made.commit_if, made.delete, made.delete_if, made.always) if "TIMESTAMP" in text] == []
    assert "USING TIMESTAMP ? AND TTL ?" in made.put
    assert all(text.endswith(" IF value = ?") for text in (made.commit_if, made.delete_if))


def test_no_column_is_written_by_insert_and_every_read_names_its_row() -> None:
    made = Statements(Prepared(), '"jobs"."entries"')
    reads = [*made.slices.values(), *made.slices_of_type.values(), *made.named.values()]
    assert all('FROM "jobs"."entries" WHERE row = ? AND ' in text for text in reads)
    assert all("WRITETIME(value)" in text and "{" not in text for text in reads)
    assert not any("INSERT" in text for text in (made.put, made.commit, made.commit_if, made.always))
