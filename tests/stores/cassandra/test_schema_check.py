"""What a check of a keyspace reports: tables that are not as they should be, and clients that may not work in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from astyqueue.findings import Severity
from astyqueue.stores.cassandra.connection.settings import Levels
from astyqueue.stores.cassandra.schema.check import StoredTable, verify_table
from astyqueue.stores.cassandra.schema.files import Option, declared, parts
from astyqueue.stores.cassandra.schema.home_data_centre import Client, HomeDataCentre, objection

(STATEMENT,) = parts("jobs")[1].statements
WANTED = declared(STATEMENT)
COMPACTION = WANTED.options["compaction"]
assert isinstance(COMPACTION, dict)


def kept(**options: Option) -> StoredTable:
    """The table as a server has it, but for these options: the class in full, and options that were not requested."""
    assert isinstance(COMPACTION, dict)
    long = {**COMPACTION, "class": f"org.apache.cassandra.db.compaction.{COMPACTION['class']}", "max_threshold": "32"}
    return StoredTable(WANTED.columns, {**WANTED.options, "compaction": long, "caching": "ALL", **options})


def test_a_table_as_it_should_be_is_one_finding() -> None:
    [finding] = verify_table("jobs", WANTED, kept())
    assert finding.severity is Severity.OK


def test_a_missing_table_is_a_problem_that_migrate_solves() -> None:
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
def test_a_table_may_keep_tombstones_for_longer_than_a_day_but_not_for_less(seconds: str, severity: Severity) -> None:
    [finding] = verify_table("jobs", WANTED, kept(gc_grace_seconds=seconds))
    assert finding.severity is severity
    if severity:
        assert finding.fact == f"gc_grace_seconds is {seconds} and should be 86400"
        assert finding.remedy == 'ALTER TABLE "jobs"."entries" WITH gc_grace_seconds = 86400;'


def test_another_compaction_is_a_warning_with_the_statement_that_changes_it() -> None:
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


def test_a_default_time_to_live_is_a_problem_because_messages_would_expire() -> None:
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
def test_each_column_that_differs_is_a_finding_of_its_own(change: Change, fact: str, severity: Severity) -> None:
    [finding] = verify_table("jobs", WANTED, kept()._replace(columns=change(dict(WANTED.columns))))
    assert finding.fact.startswith(fact)
    assert finding.severity is severity


def test_the_name_of_a_column_on_a_server_is_quoted_in_the_statement_of_a_remedy() -> None:
    columns = {**WANTED.columns, 'x; DROP TABLE "prod"': "text, regular"}
    [finding] = verify_table("jobs", WANTED, kept()._replace(columns=columns))
    assert finding.remedy == 'ALTER TABLE "jobs"."entries" DROP "x; DROP TABLE ""prod""";'


def test_another_time_to_live_of_the_history_is_a_warning_and_no_problem() -> None:
    (statement,) = parts("jobs")[2].statements
    history = declared(statement)
    assert (history.name, history.options["default_time_to_live"]) == ("history", "2592000")
    [finding] = verify_table(
        "jobs", history, StoredTable(history.columns, {**history.options, "default_time_to_live": "600"})
    )
    assert (finding.severity, finding.reason) == (Severity.WARNING, "")


LOCAL, GLOBAL = Levels(), Levels("quorum", "serial")
TWO = ("dc1", "dc2")
DC1 = HomeDataCentre.of("dc1", LOCAL)


@pytest.mark.parametrize(
    ("copies", "home", "client"),
    [
        ((), None, Client("dc1", LOCAL, chosen=False)),
        (("dc1",), None, Client("dc1", LOCAL, chosen=False)),
        (("dc1",), DC1, Client("dc1", LOCAL, chosen=False)),
        (TWO, None, Client("dc2", LOCAL)),
        (TWO, DC1, Client("dc1", LOCAL)),
        (TWO, DC1, Client("dc1", Levels(reads="local_one"))),
        (TWO, HomeDataCentre.of("dc1", GLOBAL), Client("dc2", GLOBAL, chosen=False)),
        (TWO, None, Client("dc2", GLOBAL, chosen=False)),
    ],
)
def test_a_client_in_the_home_data_centre_may_work(
    copies: tuple[str, ...], home: HomeDataCentre | None, client: Client
) -> None:
    assert objection("jobs", copies, home, client) is None


@pytest.mark.parametrize(
    ("copies", "home", "client", "told"),
    [
        (TWO, DC1, Client("dc2", LOCAL), "the home of keyspace jobs is data centre dc1, and this client works in dc2"),
        ((), DC1, Client("dc2", LOCAL), "Put dc=dc1 into the URL"),
        (TWO, DC1, Client("dc1", LOCAL, chosen=False), "this client names none of them"),
        (TWO, None, Client("dc1", LOCAL, chosen=False), "run 'astyqueue migrate --home NAME'"),
        (("dc1",), None, Client("dc3", LOCAL), "has no copies in data centre dc3: its copies are in dc1. Put dc=dc1"),
        (
            TWO,
            DC1,
            Client("dc1", GLOBAL),
            "used with consistency=local_quorum&serial=local_serial, and this client has consistency=quorum",
        ),
        (TWO, HomeDataCentre.of("", GLOBAL), Client("dc1", LOCAL), "used with consistency=quorum&serial=serial"),
        (TWO, DC1, Client("dc1", Levels("all")), "this client has consistency=all&serial=local_serial"),
    ],
)
def test_a_client_in_another_data_centre_or_with_other_levels_is_refused_and_told_what_to_do(
    copies: tuple[str, ...], home: HomeDataCentre | None, client: Client, told: str
) -> None:
    assert told in str(objection("jobs", copies, home, client))


def test_a_home_is_read_as_it_was_stored() -> None:
    assert HomeDataCentre.parse("dc1", DC1.levels) == DC1
    assert str(DC1) == "data centre dc1, consistency=local_quorum, serial=local_serial"
    assert HomeDataCentre.of("dc1", GLOBAL) == HomeDataCentre.parse("", "quorum/serial")
