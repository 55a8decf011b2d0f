"""Looking at a file changes nothing: neither the file nor what lies beside it, whoever looks."""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.findings import Finding, Severity, worst
from astyqueue.queue.connection import Connection, connect
from astyqueue.queue.health_check import examine
from astyqueue.stores.admin import administer
from astyqueue.stores.schema_files import parts
from astyqueue.stores.sqlite.database import APPLICATION_ID

CLOCK: Final = SystemClock()
NOBODY: Final = 65_534
FIRST: Final = 7_001
SECOND: Final = 7_002
GROUP: Final = 7_003
MEBIBYTE: Final = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a queue in it, in a folder of its own."""
    folder = tmp_path / "data"
    folder.mkdir()
    with connect(f"sqlite:///{folder}/mail.db") as store:
        store.queue("emails").send("hello")
    return folder / "mail.db"


def looked(file: Path) -> dict[str, Finding]:
    """What `doctor` finds."""
    return {finding.subject: finding for finding in examine(f"sqlite:///{file}", clock=CLOCK)}


def marks(file: Path) -> tuple[object, ...]:
    """The format and the journal mode of a file."""
    with closing(sqlite3.connect(file)) as shell:
        return tuple(shell.execute(f"PRAGMA {mark}").fetchone()[0] for mark in ("user_version", "journal_mode"))


def test_doctor_does_not_bring_a_file_of_an_earlier_release_to_the_new_format(tmp_path: Path) -> None:
    file = tmp_path / "old.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as shell:
        shell.execute("PRAGMA journal_mode = WAL")
        for statement in parts("sqlite")[0].statements:
            shell.execute(statement)
        shell.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        shell.execute("PRAGMA user_version = 1")
    found = looked(file)[f"file {file}"]
    assert marks(file) == (1, "wal")
    assert (found.severity, found.fact) == (Severity.NOTE, "has format 1; opening a store upgrades it to 2")
    assert "queues were not examined" in found.reason
    with connect(f"sqlite:///{file}") as store:
        store.queue("emails")
    assert "queue emails" in looked(file)


def test_doctor_reports_another_journal_mode_and_leaves_it(file: Path) -> None:
    with closing(sqlite3.connect(file)) as shell:
        shell.execute("PRAGMA journal_mode = DELETE")
    found = looked(file)["journal mode"]
    assert marks(file) == (2, "delete")
    assert (found.severity, found.fact) == (Severity.WARNING, "delete")
    assert "queues were not examined" in found.reason


def test_doctor_leaves_no_log_beside_the_file(file: Path) -> None:
    assert looked(file)[f"file {file}"].severity is Severity.OK
    assert [path.name for path in file.parent.iterdir()] == ["mail.db"]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A file that another user may read and not write, in a folder in which that user may make files."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with connect(f"sqlite:///{folder}/mail.db") as store:
            store.queue("emails").send("hello")
        folder.chmod(0o777)
        (folder / "mail.db").chmod(0o644)
        yield folder / "mail.db"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_user_who_may_only_read_the_file_leaves_no_log_that_its_owner_cannot_write(shared: Path) -> None:
    os.seteuid(NOBODY)
    try:
        with (
            administer(f"sqlite:///{shared}", clock=CLOCK) as looked_after,
            pytest.raises(StoreUnavailable, match="run this as its owner"),
        ):
            looked_after.verify()
    finally:
        os.seteuid(0)
    assert [path.name for path in shared.parent.iterdir()] == ["mail.db"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_user_who_may_only_read_the_file_is_not_told_that_no_process_can_use_its_queues(shared: Path) -> None:
    with connect(f"sqlite:///{shared}") as store:
        store.queue("emails")
        os.seteuid(NOBODY)
        try:
            found = looked(shared)
        finally:
            os.seteuid(0)
    assert worst(found.values()) is Severity.NOTE
    assert (found["queues"].fact, found["queues"].remedy) == ("were not examined", "run this as the owner of the file")


def test_the_log_of_a_file_behind_a_link_is_measured_where_it_lies(tmp_path: Path, file: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(file)
    with file.with_name("mail.db-wal").open("wb") as log:
        log.truncate(65 * MEBIBYTE)
    with closing(sqlite3.connect(file)) as shell:
        shell.execute("SELECT count(*) FROM entries").fetchone()
        assert looked(link)["write-ahead log"].severity is Severity.WARNING


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_link_may_lie_in_a_folder_that_is_not_writable(shared: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "link.db").symlink_to(shared)
        folder.chmod(0o755)
        shared.chmod(0o666)
        os.seteuid(NOBODY)
        try:
            with connect(f"sqlite:///{folder}/link.db") as store:
                assert store.queues() == ["emails"]
        finally:
            os.seteuid(0)


def test_a_log_that_was_long_once_is_no_warning_for_ever(file: Path) -> None:
    with connect(f"sqlite:///{file}") as store, closing(sqlite3.connect(file, isolation_level=None)) as reader:
        queue = store.queue("emails")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        with closing(sqlite3.connect(file, isolation_level=None)) as writer:
            writer.execute("PRAGMA synchronous = OFF")
            for number in range(65):
                values = (number.to_bytes(19), MEBIBYTE)
                writer.execute("INSERT INTO history VALUES ('r', ?, 0, NULL, zeroblob(?))", values)
        assert looked(file)["write-ahead log"].severity is Severity.WARNING
        reader.execute("COMMIT")
        for number in range(3):
            queue.send(number)
        assert looked(file)["write-ahead log"].severity is Severity.OK


def of_page(page: str) -> list[list[str]]:
    """The commands of a page that change groups and modes."""
    text = (Path(__file__).parents[3] / "docs" / page).read_text()
    return [line.split() for line in re.findall(r"^    (ch(?:grp|mod) .*)$", text, re.MULTILINE)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_two_users_of_a_group_share_a_file_as_the_page_says(shared: Path) -> None:
    """SQLite makes the log with the group of the user who opens the file first."""
    os.chown(shared.parent, FIRST, FIRST)
    os.chown(shared, FIRST, FIRST)
    for command, value, *places in of_page("explanation/files.md"):
        for place in (shared if name.endswith(".db") else shared.parent for name in places):
            if command == "chgrp":
                os.chown(place, -1, GROUP)
            else:
                place.chmod(int(value, 8))
    groups = os.getgroups()
    opened: list[Connection] = []
    try:
        for user in (FIRST, SECOND):
            become(user, [GROUP])
            opened.append(connect(f"sqlite:///{shared}?busy_timeout=1"))
            opened[-1].queue("emails").send(user)
            become(0, groups)
        logs = [path for path in shared.parent.iterdir() if path != shared]
        assert [path.stat().st_gid for path in logs] == [GROUP, GROUP]
    finally:
        become(0, groups)
        for one in opened:
            one.close()


def become(user: int, groups: list[int]) -> None:
    """Have this process act as a user of these groups."""
    os.seteuid(0)
    os.setgroups(groups)
    os.setegid(user)
    os.seteuid(user)
