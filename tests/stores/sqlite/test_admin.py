"""What the administration finds wrong with a database file: each fault is a real one, where a test can cause it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from astyqueue.clock import SystemClock
from astyqueue.errors import BadSetting, StoreCorrupt, WrongSchema
from astyqueue.findings import Finding, Severity
from astyqueue.queue import health_check
from astyqueue.queue.connection import connect
from astyqueue.stores.admin import administer
from astyqueue.stores.sqlite import filesystems
from astyqueue.stores.sqlite.admin import room
from astyqueue.stores.sqlite.schema import newest

CLOCK = SystemClock()
MEBIBYTE = 1 << 20
MOUNTS = r"""
24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
31 24 0:27 / /mnt rw - nfs4 server:/export rw
32 31 0:28 / /mnt/local rw shared:2 - xfs /dev/sdb1 rw
33 24 0:29 / /with\040space rw - fuse.sshfs host:/ rw
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a queue in it."""
    path = tmp_path / "mail.db"
    with connect(f"sqlite:///{path}") as store:
        store.queue("emails").send("hello")
    return path


def found(file: Path, options: str = "") -> dict[str, Finding]:
    with administer(f"sqlite:///{file}{options}", clock=CLOCK) as looked_after:
        return {finding.subject: finding for finding in looked_after.examine({})}


@pytest.fixture
def shell(file: Path) -> Iterator[sqlite3.Connection]:
    """The connection of another program to the file."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        yield connection


def test_a_file_that_is_well_has_nothing_to_tell(file: Path) -> None:
    seen = found(file)
    assert {finding.severity for finding in seen.values()} == {Severity.OK}
    assert seen.keys() == {
        f"file {file}",
        "file system",
        "journal mode",
        "lock to write",
        "synchronous",
        "write-ahead log",
        "room on the disk",
        "pages of the file",
    }


def test_a_file_that_all_may_read_is_noted(file: Path) -> None:
    for mode, noted in ((0o644, True), (0o660, False), (0o600, False)):
        file.chmod(mode)
        assert ("mode of the file" in found(file)) is noted


@pytest.mark.parametrize("mode", [0o666, 0o602])
def test_a_file_that_all_may_write_to_is_a_warning(file: Path, mode: int) -> None:
    file.chmod(mode)
    seen = found(file)["mode of the file"]
    assert (seen.severity, "change and remove its messages" in seen.reason) == (Severity.WARNING, True)


def test_looking_makes_no_file(tmp_path: Path) -> None:
    seen = found(tmp_path / "none.db")
    assert seen[f"file {tmp_path / 'none.db'}"].severity is Severity.WARNING
    assert [*health_check.examine(f"sqlite:///{tmp_path / 'none.db'}", clock=CLOCK)] == [*seen.values()]
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_one_in_which_a_store_makes_its_tables(tmp_path: Path) -> None:
    file = tmp_path / "mail.db"
    file.touch(0o660)
    file.chmod(0o660)
    fact = "is empty; opening a store creates its tables"
    with administer(f"sqlite:///{file}", clock=CLOCK) as looked_after:
        [finding] = looked_after.verify()
        assert (finding.severity, finding.fact) == (Severity.WARNING, fact)
        assert looked_after.migrate() == [f"nothing to do: {file} {fact}"]
        assert not looked_after.ready()
    seen = health_check.examine(f"sqlite:///{file}", clock=CLOCK)
    assert {one.subject: one.severity for one in seen} == {
        f"file {file}": Severity.WARNING,
        "file system": Severity.OK,
    }
    assert ([*tmp_path.iterdir()], file.stat().st_size) == ([file], 0)
    with connect(f"sqlite:///{file}") as store:
        store.queue("emails").send("hello")
    assert found(file)[f"file {file}"].severity is Severity.OK


def test_a_file_needs_no_migration_and_a_keyspace_is_not_for_it(file: Path) -> None:
    url = f"sqlite:///{file}"
    with administer(url, clock=CLOCK) as looked_after:
        assert looked_after.migrate() == [f"nothing to do: {file} has format {newest()}, the newest"]
        assert looked_after.statements() == []
    with pytest.raises(BadSetting, match="has no replication"):
        administer(url, clock=CLOCK, replication="3")


def test_a_file_of_a_newer_astyqueue_is_a_problem(file: Path, shell: sqlite3.Connection) -> None:
    shell.execute(f"PRAGMA user_version = {newest() + 1}")
    with administer(f"sqlite:///{file}", clock=CLOCK) as looked_after:
        assert not looked_after.ready()
        assert looked_after.verify()[0].severity is Severity.PROBLEM
        with pytest.raises(WrongSchema, match="upgrade this process"):
            looked_after.migrate()
    seen = health_check.examine(f"sqlite:///{file}", clock=CLOCK)
    assert [finding.severity for finding in seen] == [Severity.PROBLEM, Severity.OK, Severity.NOTE]
    assert (seen[-1].subject, seen[-1].fact) == ("queues", "were not examined")


def test_a_database_of_another_application_is_a_problem(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE theirs (a)")
    assert found(tmp_path / "other.db")[f"file {tmp_path / 'other.db'}"].fact == "is a database of another application"


def test_another_journal_mode_is_reported(file: Path, shell: sqlite3.Connection) -> None:
    shell.execute("PRAGMA journal_mode = DELETE")
    assert (found(file)["journal mode"].severity, found(file)["journal mode"].fact) == (Severity.WARNING, "delete")


def test_waiting_less_for_the_disk_is_a_note(file: Path) -> None:
    assert found(file, "?synchronous=normal")["synchronous"].severity is Severity.NOTE


def test_a_log_that_somebody_keeps_from_being_written_back_is_reported(file: Path, shell: sqlite3.Connection) -> None:
    shell.execute("BEGIN")
    shell.execute("SELECT count(*) FROM entries").fetchone()
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("PRAGMA synchronous = OFF")
        for number in range(65):
            writer.execute("INSERT INTO entries VALUES ('r', ?, 0, NULL, zeroblob(?))", (number.to_bytes(19), MEBIBYTE))
    log = found(file)["write-ahead log"]
    assert (log.severity, "fuser -v" in log.remedy) == (Severity.WARNING, True)


def test_a_process_that_keeps_all_others_from_writing_is_a_problem(file: Path, shell: sqlite3.Connection) -> None:
    url = f"sqlite:///{file}?busy_timeout=0"
    shell.execute("BEGIN IMMEDIATE")
    seen = {finding.subject: finding for finding in health_check.examine(url, clock=CLOCK)}
    assert (seen["lock to write"].severity, seen["queue emails"].severity) == (Severity.PROBLEM, Severity.OK)
    shell.execute("ROLLBACK")
    assert found(file)["lock to write"].severity is Severity.OK


def test_damaged_pages_are_a_problem(file: Path) -> None:
    with closing(sqlite3.connect(file)) as shell:
        shell.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(file.read_bytes())
    content[16384 + 100 : 2 * 16384] = b"\x99" * (16384 - 100)
    file.write_bytes(bytes(content))
    [damage] = [finding for finding in found(file).values() if finding.severity is Severity.PROBLEM]
    assert damage.subject in {f"file {file}", "pages of the file"}  # whichever of the two SQLite notices first
    assert "restore a backup" in damage.remedy


@pytest.mark.parametrize("kept", [16384 * 2, 100, 5])
def test_what_is_left_of_a_file_is_a_problem_and_no_end_of_the_examination(file: Path, kept: int) -> None:
    with closing(sqlite3.connect(file)) as shell:
        shell.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.write_bytes(file.read_bytes()[:kept])
    damage = found(file)[f"file {file}"]
    assert damage.severity is Severity.PROBLEM
    assert "restore a backup" in damage.remedy
    assert f"file {file}" in {finding.subject for finding in health_check.examine(f"sqlite:///{file}", clock=CLOCK)}
    with (
        administer(f"sqlite:///{file}", clock=CLOCK) as looked_after,
        pytest.raises(StoreCorrupt, match="restore a backup"),
    ):
        looked_after.migrate()


@pytest.mark.parametrize(
    ("free", "size", "severity"),
    [
        (600, 10, Severity.OK),
        (500, 10, Severity.WARNING),
        (0, 10, Severity.PROBLEM),
        (4000, 9000, Severity.WARNING),
        (5000, 9000, Severity.OK),
    ],
)
def test_a_disk_without_room_for_half_the_file_again_is_reported(free: int, size: int, severity: Severity) -> None:
    assert room(free * MEBIBYTE, size * MEBIBYTE).severity is severity


@pytest.mark.parametrize(
    ("path", "kind", "severity"),
    [
        ("/srv/mail.db", "ext4", Severity.OK),
        ("/mnt/mail.db", "nfs4, a network file system", Severity.PROBLEM),
        ("/mnt/local/mail.db", "xfs", Severity.OK),
        ("/mntx/mail.db", "ext4", Severity.OK),
        ("/with space/mail.db", "fuse.sshfs, a network file system", Severity.PROBLEM),
    ],
)
def test_a_file_system_that_machines_share_is_a_problem(path: str, kind: str, severity: Severity) -> None:
    seen = filesystems.finding(Path(path), MOUNTS.strip())
    assert (seen.fact, seen.severity) == (kind, severity)


def test_a_machine_that_does_not_tell_its_mounts_is_no_problem() -> None:
    assert filesystems.finding(Path("/srv/mail.db"), "").severity is Severity.NOTE
