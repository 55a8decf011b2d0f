"""What is reported of a table that is not as it should be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from astyqueue.findings import Severity
from astyqueue.stores.cassandra.schema.check import Kept, verify_table
from astyqueue.stores.cassandra.schema.files import Option, declared, parts

(STATEMENT,) = parts("jobs")[1].statements
WANTED = declared(STATEMENT)
COMPACTION = WANTED.options["compaction"]
assert isinstance(COMPACTION, dict)


def kept(**options: Option) -> Kept:
    """The table as a server has it, but for these options: the class in full, and options that were not requested."""
    assert isinstance(COMPACTION, dict)
    long = {**COMPACTION, "class": f"org.apache.cassandra.db.compaction.{COMPACTION['class']}", "max_threshold": "32"}
    return Kept(WANTED.columns, {**WANTED.options, "compaction": long, "caching": "ALL", **options})


def test_a_table_as_it_should_be_is_one_finding() -> None:
    [finding] = verify_table("jobs", WANTED, kept())
    assert finding.severity is Severity.OK


def test_a_table_that_is_not_there_is_made_by_migrate() -> None:
    [finding] = verify_table("jobs", WANTED, None)
    assert (finding.severity, finding.fact) == (Severity.PROBLEM, "does not exist")
    assert "astyqueue migrate" in finding.remedy


@pytest.mark.parametrize(
    ("seconds", "severity"),
    [
        ("60", Severity.PROBLEM),
        ("14399", Severity.PROBLEM),
        ("14400", Severity.WARNING),
        ("86400", Severity.OK),
        ("864000", Severity.OK),
    ],
)
def test_deleted_columns_may_be_kept_for_longer_but_not_for_less(seconds: str, severity: Severity) -> None:
    [finding] = verify_table("jobs", WANTED, kept(gc_grace_seconds=seconds))
    assert finding.severity is severity
    if severity:
        assert finding.fact == f"gc_grace_seconds is {seconds} and should be 86400"
        assert finding.remedy == 'ALTER TABLE "jobs"."entries" WITH gc_grace_seconds = 86400;'


def test_another_compaction_is_told_with_the_statement_that_mends_it() -> None:
    [finding] = verify_table(
        "jobs", WANTED, kept(compaction={"class": "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy"})
    )
    assert finding.severity is Severity.WARNING
    assert finding.fact.startswith(
        "compaction is {'class': 'SizeTieredCompactionStrategy'} and should be {'class': 'LeveledComp"
    )
    assert finding.remedy.startswith(
        "ALTER TABLE \"jobs\".\"entries\" WITH compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size"
    )


def test_a_time_to_live_would_lose_work() -> None:
    [finding] = verify_table("jobs", WANTED, kept(default_time_to_live="600"))
    assert (finding.severity, "expire" in finding.reason) == (Severity.PROBLEM, True)


Change = Callable[[dict[str, str]], dict[str, str]]


@pytest.mark.parametrize(
    ("change", "fact", "severity"),
    [
        (
            lambda columns: {n: w for n, w in columns.items() if n != "state"},
            "has no column state (tinyint, clus",
            Severity.PROBLEM,
        ),
        (
            lambda columns: columns | {"priority": "tinyint, clustering column 1, ascending"},
            "column priority is tinyint, ",
            Severity.PROBLEM,
        ),
        (lambda columns: columns | {"who": "text, regular"}, "has an unknown column who", Severity.NOTE),
        (lambda columns: columns | {"version": "int, static"}, "has an unknown column version", Severity.WARNING),
    ],
)
def test_columns_that_differ_are_told_one_by_one(change: Change, fact: str, severity: Severity) -> None:
    [finding] = verify_table("jobs", WANTED, kept()._replace(columns=change(dict(WANTED.columns))))
    assert finding.fact.startswith(fact)
    assert finding.severity is severity


def test_what_a_server_calls_a_column_ends_no_statement_that_is_told_as_a_remedy() -> None:
    columns = {**WANTED.columns, 'x; DROP TABLE "prod"': "text, regular"}
    [finding] = verify_table("jobs", WANTED, kept()._replace(columns=columns))
    assert finding.remedy == 'ALTER TABLE "jobs"."entries" DROP "x; DROP TABLE ""prod""";'


def test_of_a_table_whose_columns_all_expire_another_time_is_no_problem() -> None:
    (statement,) = parts("jobs")[2].statements
    history = declared(statement)
    assert (history.name, history.options["default_time_to_live"]) == ("history", "2592000")
    [finding] = verify_table("jobs", history, Kept(history.columns, {**history.options, "default_time_to_live": "600"}))
    assert (finding.severity, finding.reason) == (Severity.WARNING, "")
