"""The page on the tables says what the tables are."""

from __future__ import annotations

from tests.spark.pipeline.docs_tables import PAGE, listed


def test_the_page_lists_every_column_as_it_is() -> None:
    assert PAGE.read_text() == listed(), "write it anew: python -m tests.spark.pipeline.docs_tables"


def test_no_line_of_the_page_is_longer_than_those_of_programs() -> None:
    assert [line for line in listed().splitlines() if len(line) > 120] == []
