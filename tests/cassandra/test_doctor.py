"""What the doctor finds on real nodes that are really ill."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cassandra.cluster import Session
from click.testing import CliRunner, Result

from astyqueue.cli import main
from astyqueue.clock import SystemClock
from astyqueue.findings import Finding, Severity
from astyqueue.queue import health_check
from astyqueue.queue.connection import connect
from astyqueue.stores.admin import administer
from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra import Contacts
from astyqueue.units import SECOND

ROOT = Path(__file__).parents[2]
HOUR = 3600 * SECOND
CLOCK = SystemClock()
DEAD = 1500


class Wrong(SystemClock):
    """A clock that is so far ahead."""

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead

    def now(self) -> int:
        return super().now() + self._ahead


@pytest.fixture
def ill(cassandra: Contacts, session: Session) -> Iterator[str]:
    """The URL of a store to be made ill."""
    with made(cassandra, session) as url:
        yield url


@pytest.fixture(scope="module")
def well(cassandra: Contacts, session: Session) -> Iterator[str]:
    """The URL of a store that nobody changes."""
    with made(cassandra, session) as url:
        yield url


@contextmanager
def made(cassandra: Contacts, session: Session) -> Iterator[str]:
    name = f"astyqueue_test_{secrets.token_hex(4)}"
    url = cassandra.url(name)
    with administer(url, clock=CLOCK, replication="1") as looked_after:
        looked_after.migrate()
    yield url
    session.execute(f'DROP KEYSPACE IF EXISTS "{name}"', timeout=60)


def table(url: str) -> str:
    return f'"{url.rpartition("/")[2]}"."entries"'


def found(url: str, *, ahead: int = 0, **rests: int) -> dict[str, Finding]:
    with administer(url, clock=Wrong(ahead)) as looked_after:
        return {finding.subject: finding for finding in looked_after.examine(rests)}


def doctor(url: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--url", url, *options], prog_name="astyqueue")


def test_a_node_that_is_well_has_nothing_worse_than_a_note(well: str) -> None:
    assert {finding.severity for finding in found(well, emails=29 * HOUR).values()} == {Severity.OK, Severity.NOTE}


def test_deleted_columns_that_are_forgotten_too_soon_are_a_problem(session: Session, ill: str) -> None:
    session.execute(f"ALTER TABLE {table(ill)} WITH gc_grace_seconds = 60", timeout=60)
    seen = found(ill, emails=29 * HOUR)[f"table {table(ill)}"]
    assert (seen.severity, seen.fact) == (Severity.PROBLEM, "gc_grace_seconds is 60 and should be 86400")
    assert doctor(ill).exit_code == 20


def test_another_compaction_is_a_warning(session: Session, ill: str) -> None:
    session.execute(
        f"ALTER TABLE {table(ill)} WITH compaction = {{'class': 'SizeTieredCompactionStrategy'}}", timeout=60
    )
    assert found(ill)[f"table {table(ill)}"].severity is Severity.WARNING
    assert doctor(ill).exit_code == 10


def test_rows_that_are_used_again_too_soon_are_told_of_the_queue_that_has_them(ill: str) -> None:
    with connect(ill) as store:
        store.queue("hasty", time_shards=4, every="1h")
        store.queue("patient", time_shards=30, every="1h")
    seen = {finding.subject: finding for finding in health_check.examine(ill, clock=CLOCK)}
    assert seen["rest of the rows of queue hasty"].fact == "3h between two turns"
    assert seen["rest of the rows of queue hasty"].severity is Severity.WARNING
    assert seen["rest of the rows of queue patient"].severity is Severity.OK


@pytest.mark.parametrize(
    ("seconds", "severity"), [(0, Severity.OK), (5, Severity.WARNING), (-5, Severity.WARNING), (3600, Severity.PROBLEM)]
)
def test_a_clock_that_is_wrong_here_is_reported(well: str, seconds: int, severity: Severity) -> None:
    seen = found(well, ahead=seconds * SECOND)["clock of this machine"]
    assert seen.severity is severity
    assert not seconds or ("ahead of" if seconds > 0 else "behind") in seen.fact


def test_reads_that_pass_what_was_deleted_are_reported(session: Session, ill: str) -> None:
    where = "WHERE row = 'r' AND type = 2 AND priority = 0"
    names = "row, type, priority, id, state, value"
    put = session.prepare(f"INSERT INTO {table(ill)} ({names}) VALUES ('r', 2, 0, now(), 1, 0x)")  # noqa: S608 - our own table
    for _ in range(DEAD):
        session.execute(put)
    for row in session.execute(f"SELECT id FROM {table(ill)} {where}"):  # noqa: S608 - our own table
        session.execute(f"DELETE FROM {table(ill)} {where} AND id = %s AND state = 1", (row.id,))  # noqa: S608 - our own table
    for _ in range(5):
        session.execute(f"SELECT id FROM {table(ill)} {where} LIMIT 1")  # noqa: S608 - our own table
    [seen] = [finding for subject, finding in found(ill).items() if re.match("tombstones per read.* entries", subject)]
    assert seen.severity is Severity.WARNING
    assert "99th percentile" in seen.fact


def test_a_queue_that_nobody_works_on_is_told_beside_the_store(ill: str) -> None:
    with connect(ill, clock=Wrong(-5 * 60 * SECOND)) as store:
        store.queue("emails").send("left alone")
    seen = [json.loads(line) for line in doctor(ill, "--json").stdout.splitlines()]
    [left] = [one for one in seen if one["subject"] == "queue emails"]
    assert (left["severity"], "no worker takes from 1 row of " in left["fact"]) == ("warning", True)


def test_a_keyspace_that_is_not_there_is_a_problem_and_nothing_is_made(cassandra: Contacts, session: Session) -> None:
    result = doctor(cassandra.url("nobody_made_it"))
    assert result.exit_code == 20
    assert "problem  keyspace nobody_made_it: does not exist" in result.stdout
    assert "do:  run 'astyqueue migrate' on this URL" in result.stdout
    assert not list(session.execute("SELECT * FROM system_schema.keyspaces WHERE keyspace_name = 'nobody_made_it'"))


@pytest.mark.full
def test_the_older_paxos_and_limits_under_which_queues_cannot_work_are_reported() -> None:
    strict = {
        "user_timestamps_enabled": False,
        "minimum_timestamp_fail_threshold": "30m",
        "in_select_cartesian_product_fail_threshold": 100,
    }
    with (
        LocalCassandra(settings={"paxos_variant": "v1", **strict}) as node,
        administer(node.url("jobs"), clock=CLOCK) as looked_after,
    ):
        looked_after.migrate()
        seen = looked_after.examine({})
    [paxos] = [one for one in seen if one.subject == "paxos variant"]
    assert (paxos.severity, paxos.fact.partition("127.")[0]) == (Severity.PROBLEM, "v1 on ")
    assert {one.fact.split()[0] for one in seen if one.subject == "guardrails"} == strict.keys()


@pytest.mark.full
def test_what_the_compose_file_says_to_java_chooses_the_newer_paxos() -> None:
    (options,) = re.findall(r"JVM_EXTRA_OPTS: (.*)", (ROOT / "docker-compose.yml").read_text())
    with LocalCassandra(settings={"paxos_variant": "v1"}, java_options=options.split()) as old:
        assert found(old.url("jobs"))["paxos variant"].fact == "v2 on every node"


@pytest.mark.full
def test_nodes_that_are_away_are_named_and_what_that_means_for_the_copies(ring: LocalCassandra) -> None:
    for name, copies in (("three", "3"), ("one", "1")):
        with administer(ring.url(name), clock=CLOCK, replication=copies) as looked_after:
            looked_after.migrate()
    assert found(ring.url("three"))["nodes of datacenter1"].severity is Severity.OK
    assert found(ring.url("three"))["copies in datacenter1"].severity is Severity.OK
    assert found(ring.url("one"))["copies in datacenter1"].severity is Severity.WARNING
    ring.kill(3)
    one, three = (found(ring.url(name))["nodes of datacenter1"] for name in ("one", "three"))
    assert ring.contact_points[2] in three.fact
    assert (one.severity, three.severity) == (Severity.PROBLEM, Severity.WARNING)
    ring.kill(2)
    result = doctor(ring.url("three"))
    assert result.exit_code == 20
    assert f"{ring.contact_points[1]}, {ring.contact_points[2]} of 3 nodes" in result.stdout
