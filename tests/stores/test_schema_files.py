"""The numbered files of the tables: what they say, that they stay as they were released, and how they run by hand."""

from __future__ import annotations

import hashlib
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from astyqueue.findings import Severity
from astyqueue.stores import open_store
from astyqueue.stores.admin import administer
from astyqueue.stores.schema_files import folder, parts
from astyqueue.testing import TimeMachine

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "schema" / "README.md").read_text()

#: The first digits of the SHA-256 of the statements without whitespace: keyspaces and files have been made with these.
RELEASED: Final = {
    ("cassandra", "0000_schema_versions"): "61d4495f98da9318",
    ("cassandra", "0001_entries"): "67111bf6263d15dc",
    ("cassandra", "0002_history"): "edfc894ddb19e227",
    ("sqlite", "0001_entries"): "84da63f225858a23",
    ("sqlite", "0002_history"): "d63accd1d4d42ef9",
}
#: What a file has that was made before the definitions were in files of their own, with the spaces of that time.
EARLIER: Final = """
CREATE TABLE entries (
        row TEXT NOT NULL, name BLOB NOT NULL, stamp INTEGER NOT NULL, expires INTEGER, value BLOB NOT NULL,
        PRIMARY KEY (row, name)
    ) WITHOUT ROWID
    ;
CREATE INDEX entries_expiring ON entries (expires) WHERE expires IS NOT NULL;
PRAGMA application_id = 0x61737471;
PRAGMA user_version = 1;
"""


def definitions(path: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        marks = [
            connection.execute(f"PRAGMA {mark}").fetchone()[0]
            for mark in ("application_id", "user_version", "page_size")
        ]
        return [*connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid"), tuple(marks)]


@pytest.mark.parametrize("store", ["cassandra", "sqlite"])
def test_files_that_were_released_have_the_statements_that_they_had(store: str) -> None:
    digests = {
        (store, part.file): hashlib.sha256("".join("".join(part.statements).split()).encode()).hexdigest()[:16]
        for part in parts(store)
    }
    assert digests == {key: digest for key, digest in RELEASED.items() if key[0] == store}


@pytest.mark.parametrize("store", ["cassandra", "sqlite"])
def test_versions_have_no_gap_and_each_file_has_statements(store: str) -> None:
    found = parts(store)
    assert [part.version for part in found] == list(range(found[0].version, found[0].version + len(found)))
    assert all(part.statements for part in found)


def test_the_page_on_the_files_lists_them_all() -> None:
    listed = re.findall(r"^\| `(\w+/\w+\.[cs]ql)` \|", README, re.MULTILINE)
    assert listed == sorted(
        f"{store}/{each.name}" for store in ("cassandra", "sqlite") for each in folder(store).iterdir()
    )


def test_a_file_made_by_hand_is_the_file_that_a_store_makes(tmp_path: Path, clock: TimeMachine) -> None:
    opened, by_hand = tmp_path / "opened.db", tmp_path / "by_hand.db"
    open_store(f"sqlite:///{opened}", clock=clock).close()
    (command,) = re.findall(r"^sqlite3 mail\.db .*", README, re.MULTILINE)
    typed = shlex.split(command)[2:]
    steps = [(ROOT / step.split()[1]).read_text() if step.startswith(".read ") else step for step in typed]
    with closing(sqlite3.connect(by_hand)) as shell:
        shell.executescript(";\n".join(steps))
    assert definitions(by_hand) == definitions(opened)
    with administer(f"sqlite:///{by_hand}", clock=clock) as administration:
        assert [finding.severity for finding in administration.verify()] == [Severity.OK]


def test_a_file_made_before_the_definitions_moved_opens_and_is_upgraded(tmp_path: Path, clock: TimeMachine) -> None:
    path = tmp_path / "mail.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(EARLIER)
    (before,) = [each for each in definitions(path) if each[1] == "entries"]
    open_store(f"sqlite:///{path}", clock=clock).close()
    assert before in definitions(path)
    assert "history" in {each[1] for each in definitions(path)}
    with administer(f"sqlite:///{path}", clock=clock) as administration:
        assert [finding.severity for finding in administration.verify()] == [Severity.OK]
