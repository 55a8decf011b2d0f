"""The file of a SQLite store: what it contains, and the errors when it is not as it should be."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from astyqueue import ids
from astyqueue.errors import BadSetting, StoreCorrupt, StoreFull, StoreUnavailable, WrongSchema
from astyqueue.findings import Severity
from astyqueue.store import HISTORY, Batch, Name, Named, Put, Slice
from astyqueue.stores import open_store
from astyqueue.stores.admin import administer
from astyqueue.stores.sqlite import SQLiteStore
from astyqueue.stores.sqlite.database import APPLICATION_ID, DatabaseFile
from astyqueue.stores.sqlite.schema import newest
from astyqueue.testing import TimeMachine

ROW = "emails:0:0"
NOBODY = 65534


def name(order: int) -> Name:
    return Name(2, 0, ids.first_at(order), 1)


def filled(path: Path, clock: TimeMachine, count: int = 1000) -> None:
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        store.send(Batch(ROW, puts=tuple(Put(name(order), bytes(200)) for order in range(count))))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mail.db"


def refusal(path: Path, clock: TimeMachine, kind: type[Exception]) -> str:
    with pytest.raises(kind) as raised:
        open_store(f"sqlite:///{path}", clock=clock)
    assert str(path) in str(raised.value)
    return str(raised.value)


def test_a_directory_is_no_file(tmp_path: Path, clock: TimeMachine) -> None:
    assert "is a directory; name a file" in refusal(tmp_path, clock, StoreUnavailable)


def test_a_missing_directory_is_not_made(tmp_path: Path, clock: TimeMachine) -> None:
    assert "create it" in refusal(tmp_path / "missing" / "mail.db", clock, StoreUnavailable)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_taken_for_a_new_one(path: Path, clock: TimeMachine) -> None:
    path.touch()
    filled(path, clock)
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        assert len(store.read((Slice(ROW, 2),))[0]) == 1000


@pytest.mark.parametrize("size", [20, 100, 5000])
def test_a_file_that_is_no_database_is_left_as_it_is(path: Path, clock: TimeMachine, size: int) -> None:
    path.write_bytes(b"dear diary " * size)
    assert "not a database" in refusal(path, clock, StoreCorrupt)
    assert path.read_bytes() == b"dear diary " * size


def test_a_garbled_header_is_reported(path: Path, clock: TimeMachine) -> None:
    filled(path, clock)
    path.write_bytes(b"\xff" * 64 + path.read_bytes()[64:])
    assert "keep a copy" in refusal(path, clock, StoreCorrupt)


def test_a_page_damaged_in_the_middle_is_reported_by_whoever_reads_it(path: Path, clock: TimeMachine) -> None:
    filled(path, clock)
    whole = path.read_bytes()
    path.write_bytes(whole[: 5 * 16384] + b"\xa5" * 16384 + whole[6 * 16384 :])
    with (
        closing(open_store(f"sqlite:///{path}", clock=clock)) as store,
        pytest.raises(StoreCorrupt, match="keep a copy"),
    ):
        store.read((Slice(ROW, 2),))


def test_a_file_cut_short_is_reported_by_whoever_reads_it(path: Path, clock: TimeMachine) -> None:
    filled(path, clock)
    os.truncate(path, 6 * 16384)
    with pytest.raises(StoreCorrupt), closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        store.read((Slice(ROW, 2),))


def test_a_table_that_somebody_dropped_is_reported_by_whoever_opens_the_file(path: Path, clock: TimeMachine) -> None:
    filled(path, clock)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE entries")
    assert "lacks table 'entries'" in refusal(path, clock, StoreCorrupt)


def test_a_table_that_is_dropped_meanwhile_is_reported_by_whoever_reads_it(path: Path, clock: TimeMachine) -> None:
    filled(path, clock)
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP TABLE entries")
        with pytest.raises(StoreCorrupt, match="entries"):
            store.read((Slice(ROW, 2),))


ENDLESS = (
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) "
    "SELECT 'r' AS row, x'' AS name, n AS stamp FROM t WHERE n < 0"
)
TABLE = "(row TEXT NOT NULL, name BLOB NOT NULL, stamp INTEGER NOT NULL, expires INTEGER, value BLOB NOT NULL"
GENERATED = "extra AS (zeroblob(1e9))"


@pytest.mark.parametrize(
    ("meddling", "told"),
    [
        (f"DROP TABLE entries; CREATE VIEW entries AS {ENDLESS}", "has view 'entries'"),
        (f"DROP TABLE history; CREATE VIEW History AS {ENDLESS}", "has view 'History'"),
        (f"CREATE TRIGGER t AFTER INSERT ON entries BEGIN INSERT INTO history {ENDLESS}; END", "has trigger 't'"),
        (f"CREATE TRIGGER t INSTEAD OF INSERT ON readable BEGIN INSERT INTO history {ENDLESS}; END", "has trigger 't'"),
        (
            "CREATE TABLE theirs (it); CREATE TRIGGER entries AFTER INSERT ON theirs BEGIN DELETE FROM theirs; END",
            "has trigger 'entries'",
        ),
        (f"CREATE TRIGGER t AFTER INSERT ON History BEGIN INSERT INTO entries {ENDLESS}; END", "has trigger 't'"),
        ("CREATE INDEX other ON entries (hex(value))", "has index 'other'"),
        ("DROP INDEX entries_expiring", "lacks index 'entries_expiring'"),
        (
            f"DROP TABLE entries; CREATE TABLE entries {TABLE}, {GENERATED}, PRIMARY KEY (row, name)) WITHOUT ROWID",
            "has table",
        ),
        ("DROP TABLE history; CREATE VIRTUAL TABLE history USING fts5(row, name)", "has table 'history'"),
        ("PRAGMA user_version = 0", "has the invalid format 0"),
        ("PRAGMA user_version = -1", "has the invalid format -1"),
    ],
)
def test_a_file_that_only_looks_like_ours_is_refused_before_anything_in_it_is_read(
    path: Path, clock: TimeMachine, meddling: str, told: str
) -> None:
    filled(path, clock, count=2)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(meddling)
    before = path.read_bytes()
    assert told in refusal(path, clock, StoreCorrupt)
    assert path.read_bytes() == before
    with administer(f"sqlite:///{path}", clock=clock) as looked_after:
        [finding] = looked_after.verify()
        assert (finding.severity, told in finding.fact) == (Severity.PROBLEM, True)
        assert not looked_after.ready()


def test_what_people_add_beside_our_tables_is_let_be(path: Path, clock: TimeMachine) -> None:
    filled(path, clock, count=2)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE VIEW mine AS SELECT count(*) FROM entries; CREATE TABLE theirs (it); DROP VIEW readable; ANALYZE;"
            "CREATE TABLE log (it); CREATE VIEW shown AS SELECT it FROM theirs;"
            "CREATE TRIGGER logged AFTER INSERT ON theirs BEGIN INSERT INTO log VALUES (new.it); END;"
            "CREATE TRIGGER shown_too INSTEAD OF INSERT ON shown BEGIN INSERT INTO theirs VALUES (new.it); END;"
        )
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        assert len(store.read((Slice(ROW, 2),))[0]) == 2
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("INSERT INTO shown VALUES (1)")
            assert connection.execute("SELECT it FROM log").fetchall() == [(1,)]
    with administer(f"sqlite:///{path}", clock=clock) as looked_after:
        assert looked_after.verify()[0].severity is Severity.OK


def test_a_copy_that_sqlite_makes_is_one_of_ours(path: Path, clock: TimeMachine) -> None:
    filled(path, clock, count=2)
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    with closing(open_store(f"sqlite:///{copy}", clock=clock)) as store:
        assert len(store.read((Slice(ROW, 2),))[0]) == 2


def test_a_statement_that_takes_long_ends_at_ctrl_c(path: Path, clock: TimeMachine) -> None:
    filled(path, clock, count=2)
    waits = (
        "import pathlib, signal, sys; from astyqueue.stores.sqlite.errors import failure; "
        "from astyqueue.stores.sqlite.database import DatabaseFile; import sqlite3\n"
        # SIGINT is ignored where the tests run in a shell's background.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "path = pathlib.Path(sys.argv[1]); connection = DatabaseFile(path).connect(); print('at it', flush=True)\n"
        f'try: connection.execute("{ENDLESS}").fetchall()\n'
        "except sqlite3.Error as error: raise failure(error, path)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", waits, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at it\n"
        process.send_signal(signal.SIGINT)
        try:
            _, told = process.communicate(timeout=30)
        finally:
            process.kill()
    assert told.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_nobody_but_its_owner_may_read_a_file_that_is_made(path: Path, clock: TimeMachine, umask: int) -> None:
    before = os.umask(umask)
    try:
        with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
            store.send(Batch(ROW, puts=(Put(name(0), b""),)))
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"mail.db": 0o600, "mail.db-wal": 0o600, "mail.db-shm": 0o600}


def test_a_file_that_was_given_to_others_stays_theirs_too(path: Path, clock: TimeMachine) -> None:
    path.touch()
    path.chmod(0o660)
    filled(path, clock, count=2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_threads_that_make_one_file_at_once_all_use_it(path: Path, clock: TimeMachine) -> None:
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(filled, path, clock, 3) for _ in range(8)]:
            done.result()
    assert stored(path) == 3
    assert {each.name for each in path.parent.iterdir()} <= {"mail.db", "mail.db-wal", "mail.db-shm"}


@pytest.mark.parametrize("mark", ["CREATE TABLE theirs (it)", "PRAGMA application_id = 7", "PRAGMA user_version = 7"])
def test_a_database_of_another_application_is_left_as_it_is(path: Path, clock: TimeMachine, mark: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(mark)
    before = path.read_bytes()
    assert "another application" in refusal(path, clock, BadSetting)
    assert path.read_bytes() == before


def test_a_file_of_a_newer_astyqueue_is_left_as_it_is(path: Path, clock: TimeMachine) -> None:
    filled(path, clock)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {newest() + 1}")
    before = path.read_bytes()
    assert "upgrade this process" in refusal(path, clock, WrongSchema)
    assert path.read_bytes() == before


def test_a_file_is_marked_as_ours(path: Path, clock: TimeMachine) -> None:
    filled(path, clock)
    with closing(sqlite3.connect(path)) as connection:
        marks = [
            connection.execute(f"PRAGMA {mark}").fetchone()[0]
            for mark in ("application_id", "user_version", "journal_mode", "page_size")
        ]
    assert marks == [APPLICATION_ID, newest(), "wal", 16384]


def test_a_file_that_is_gone_is_reported_and_not_made_anew(path: Path, clock: TimeMachine) -> None:
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        path.unlink()
        with pytest.raises(StoreUnavailable, match="no longer exists"):
            store.read((Slice(ROW, 2),))
        assert not path.exists()


@pytest.mark.parametrize("replaced", [True, False])
def test_nothing_is_sent_to_a_file_that_was_taken_away(path: Path, clock: TimeMachine, *, replaced: bool) -> None:
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        store.send(Batch(ROW, puts=(Put(name(0), b""),)))
        path.rename(path.with_suffix(".old"))
        if replaced:
            filled(path, clock, count=2)
        with pytest.raises(StoreUnavailable, match="estart this process"):
            store.send(Batch(ROW, puts=(Put(name(1), b""),)))
        with pytest.raises(StoreUnavailable, match="estart this process"):
            store.commit(Batch(ROW, puts=(Put(name(1), b""),)), ())


@pytest.fixture
def unprivileged() -> Iterator[Callable[[Path], None]]:
    """Gives up root's rights, for which no file is read-only, after giving away a directory."""
    root = os.geteuid() == 0

    def become(directory: Path) -> None:
        for path in (directory, *directory.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        os.seteuid(NOBODY)

    yield become if root else lambda _: None
    if root:
        os.seteuid(0)


@pytest.mark.parametrize("locked", ["file", "directory"])
def test_what_is_not_writable_is_reported(
    locked: str, unprivileged: Callable[[Path], None], clock: TimeMachine
) -> None:
    with tempfile.TemporaryDirectory() as made:
        directory, path = Path(made), Path(made) / "mail.db"
        filled(path, clock)
        path.chmod(0o400 if locked == "file" else 0o600)
        directory.chmod(0o500 if locked == "directory" else 0o700)
        unprivileged(directory)
        assert "writable" in refusal(path, clock, StoreUnavailable)
        directory.chmod(0o700)


class SmallFile(DatabaseFile):
    """A file on a disk that is nearly full: SQLite itself reports a full disk at this many pages."""

    def connect(self) -> sqlite3.Connection:
        connection = super().connect()
        connection.execute("PRAGMA max_page_count = 20")
        return connection


def test_a_full_disk_changes_nothing_and_once_there_is_room_work_goes_on(path: Path, clock: TimeMachine) -> None:
    with closing(SQLiteStore(SmallFile(path), clock)) as store:
        large = tuple(name(order) for order in range(5))
        store.send(Batch(ROW, puts=tuple(Put(each, bytes(30_000)) for each in large)))
        with pytest.raises(StoreFull, match="free disk space"):
            store.send(
                Batch(ROW, puts=tuple(Put(name(100 + order), bytes(30_000)) for order in range(10)), deletes=large[:1])
            )
        with pytest.raises(StoreFull):
            store.commit(Batch(ROW, puts=(Put(name(200), bytes(300_000)),), deletes=large[:1]), ())
        assert [column.name for column in store.read((Slice(ROW, 2, values=False),))[0]] == list(large)
        store.send(Batch(ROW, deletes=large[:4]))
        store.send(Batch(ROW, puts=tuple(Put(name(100 + order), bytes(30_000)) for order in range(3))))
        assert len(store.read((Slice(ROW, 2, values=False),))[0]) == 4


def test_people_can_read_it_with_the_sqlite_shell(path: Path, clock: TimeMachine) -> None:
    column = Name(2, 9, ids.at(clock.now()), 1)
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        store.send(Batch(ROW, puts=(Put(column, b"hello", ttl=60),)))
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        (row,) = connection.execute("SELECT * FROM readable").fetchall()
    assert dict(row) == {
        "row": ROW,
        "type": 2,
        "priority": 9,
        "id": ids.text(column.id),
        "state": 1,
        "bytes": 5,
        "written": "2026-01-01T00:00:00.000Z",
        "expires": "2026-01-01T00:01:00.000Z",
    }


def test_what_has_expired_leaves_the_file_with_those_who_write_what_will(path: Path, clock: TimeMachine) -> None:
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        store.send(Batch(ROW, puts=tuple(Put(name(order), b"short", ttl=10) for order in range(50))))
        clock.advance("2m")
        store.send(Batch(ROW, puts=(Put(name(100), b"for good"),)))
        assert stored(path) == 51
        store.send(Batch(ROW, puts=(Put(name(101), b"short", ttl=10),)))
        assert stored(path) == 2


def stored(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        count: int = connection.execute("SELECT count(*) FROM entries").fetchone()[0]
    return count


def test_a_clock_set_back_finds_what_had_expired_also_for_who_keeps_asking(path: Path, clock: TimeMachine) -> None:
    wanted, start = (Named(ROW, (name(0),)), Slice(ROW, 2)), clock.now()
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        store.send(Batch(ROW, puts=(Put(name(0), b"short", ttl=10),)))
        for moment, count in ((0, 1), (20, 0), (5, 1), (10, 0)):
            clock.set(start + moment * 1_000_000)
            assert [[len(columns) for columns in store.read(wanted)] for _ in range(3)] == [[count, count]] * 3


def test_a_file_of_the_first_format_gets_what_it_lacks_and_keeps_what_it_has(path: Path, clock: TimeMachine) -> None:
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        store.send(Batch(ROW, (Put(name(0), b"kept"),)))
    with closing(sqlite3.connect(path)) as older, older:
        older.execute("DROP TABLE history")
        older.execute("PRAGMA user_version = 1")
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        store.send(Batch(ROW, (Put(name(0), b"new"),), table=HISTORY))
        found = store.read((Slice(ROW, 2), Slice(ROW, 2, table=HISTORY)))
    assert [[column.value for column in columns] for columns in found] == [[b"kept"], [b"new"]]


def test_what_was_deleted_is_overwritten(path: Path, clock: TimeMachine) -> None:
    secret = b"4111 1111 1111 1111"
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        store.send(Batch(ROW, puts=(Put(name(0), secret), Put(name(1), b"stays"))))
        store.send(Batch(ROW, deletes=(name(0),)))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"stays" in path.read_bytes()
    assert secret not in path.read_bytes()


def test_the_history_of_a_queue_that_keeps_none_any_longer_leaves_the_file_too(path: Path, clock: TimeMachine) -> None:
    """Nothing is written to the table of the history then; the reports of workers, beside the messages, expire too."""
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store, closing(sqlite3.connect(path)) as shell:
        store.send(Batch(ROW, puts=(Put(name(0), b"told", ttl=10),), table=HISTORY))
        clock.advance("5m")
        store.send(Batch(ROW, puts=(Put(name(1), b"report", ttl=10),)))
        assert shell.execute("SELECT count(*) FROM history").fetchone() == (0,)
        assert shell.execute("SELECT count(*) FROM entries").fetchone() == (1,)


def test_a_transaction_that_could_not_write_a_batch_stores_nothing_although_its_caller_goes_on(
    path: Path, clock: TimeMachine
) -> None:
    def go_on(store: SQLiteStore) -> None:
        with store.transaction() as opened:
            opened.send(Batch(ROW, puts=(Put(name(0), b"stored"),)))
            opened.connection.execute("PRAGMA query_only = ON")
            with pytest.raises(StoreUnavailable):
                opened.send(Batch(ROW, puts=(Put(name(1), b"not stored"),)))
            opened.connection.execute("PRAGMA query_only = OFF")

    with closing(SQLiteStore(DatabaseFile(path), clock)) as store:
        with pytest.raises(StoreUnavailable, match="attempt to write a readonly database"):
            go_on(store)
        assert store.read((Slice(ROW, 2),)) == [[]]
