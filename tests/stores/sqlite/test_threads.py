"""Many threads and one SQLite store: which thread waits for which, what each sees when, and what is left behind."""

from __future__ import annotations

import _thread
import contextlib
import gc
import itertools
import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest

from astyqueue import ids
from astyqueue.errors import BadInput, Closed
from astyqueue.store import Batch, Name, Put, Slice, Store
from astyqueue.stores import open_store
from astyqueue.stores.sqlite import SQLiteStore
from astyqueue.stores.sqlite.connection import Writers
from astyqueue.stores.sqlite.database import DatabaseFile
from astyqueue.testing import TimeMachine
from tests.support.interrupting import Interrupting

ROW = "emails:0:0"
WANTED = (Slice(ROW, 2),)
PATIENCE = 60


def name(order: int) -> Name:
    return Name(2, 0, ids.first_at(order), 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mail.db"


@pytest.fixture
def store(path: Path, clock: TimeMachine) -> Iterator[SQLiteStore]:
    with closing(SQLiteStore(DatabaseFile(path, synchronous="normal"), clock)) as store:
        yield store


def test_a_send_waits_as_long_as_another_writes(store: Store, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other, ThreadPoolExecutor(1) as threads:
        other.execute("BEGIN IMMEDIATE")
        sending = threads.submit(store.send, Batch(ROW, puts=(Put(name(0), b""),)))
        assert not wait([sending], timeout=0.2).done
        other.execute("COMMIT")
        sending.result(PATIENCE)
    assert len(store.read(WANTED)[0]) == 1


def test_reads_go_on_while_another_writes(store: Store, path: Path) -> None:
    store.send(Batch(ROW, puts=(Put(name(0), b""),)))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM entries")
        assert len(store.read(WANTED)[0]) == 1
        other.execute("COMMIT")
    assert store.read(WANTED) == [[]]


def test_who_keeps_asking_sees_what_other_threads_and_stores_wrote(
    store: Store, path: Path, clock: TimeMachine
) -> None:
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as other, ThreadPoolExecutor(1) as threads:
        for count in range(0, 10, 2):
            assert [len(store.read(WANTED)[0]) for _ in range(3)] == [count] * 3
            other.send(Batch(ROW, puts=(Put(name(count), b""),)))
            assert [len(store.read(WANTED)[0]) for _ in range(3)] == [count + 1] * 3
            threads.submit(store.send, Batch(ROW, puts=(Put(name(count + 1), b""),))).result(PATIENCE)


@pytest.mark.parametrize("attempt", range(10))
def test_many_that_open_a_new_file_at_once_make_it_once(path: Path, clock: TimeMachine, attempt: int) -> None:
    start = threading.Barrier(8)

    def use(number: int) -> None:
        start.wait(PATIENCE)
        with closing(open_store(f"sqlite:///{path}", clock=clock)) as mine:
            mine.send(Batch(ROW, puts=(Put(name(number), b"%d" % attempt),)))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(8), timeout=PATIENCE))
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as store:
        assert len(store.read(WANTED)[0]) == 8


def test_writers_go_in_the_order_in_which_they_came() -> None:
    writers, order = Writers(), list[int]()

    def write(number: int) -> None:
        turn = writers.turn()
        order.append(number)
        turn.release()

    last = first = writers.turn()
    with ThreadPoolExecutor(10) as threads:
        for number in range(10):
            threads.submit(write, number)
            last = joined(writers, last)
        assert order == []
        first.release()
    assert order == list(range(10))


def test_a_write_that_is_interrupted_wherever_it_can_be_keeps_no_other_thread_from_writing(store: Store) -> None:
    store.send(Batch(ROW, puts=(Put(name(0), b""),)))
    with ThreadPoolExecutor(1) as threads:
        for at in itertools.count(1):
            interrupting = Interrupting(at)
            with contextlib.suppress(KeyboardInterrupt), interrupting:
                store.send(Batch(ROW, puts=(Put(name(1), b""),)))
            if interrupting.points < at:
                break
            threads.submit(store.send, Batch(ROW, puts=(Put(name(2), b""),))).result(PATIENCE)


def test_a_thread_that_is_interrupted_while_it_waits_for_its_turn_lets_those_behind_it_have_theirs() -> None:
    writers, me, interrupted = Writers(), threading.get_ident(), list[threading.Lock]()
    first = writers.turn()

    def interrupt() -> threading.Lock:
        interrupted.append(joined(writers, first))
        signal.pthread_kill(me, signal.SIGINT)
        return writers.turn()

    with ThreadPoolExecutor(1) as threads:
        behind = threads.submit(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                writers.turn()
            joined(writers, interrupted[0])
            assert not behind.done()
        finally:
            first.release()
        behind.result(PATIENCE).release()


def joined(writers: Writers, last: threading.Lock) -> threading.Lock:
    """Block until another writer has joined the line behind `last`; returns its turn."""
    looking = threading.Condition()
    with looking:
        for _ in range(1000 * PATIENCE):
            if (now := writers._last) is not last:  # noqa: SLF001 - seen nowhere else
                return now
            looking.wait(0.001)
    pytest.fail("no other writer waits")


def test_a_write_that_is_interrupted_while_it_begins_leaves_no_transaction_open(
    path: Path, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[sqlite3.Connection] = []
    connect = DatabaseFile.connect

    def connected(file: DatabaseFile) -> sqlite3.Connection:
        connections.append(connect(file))
        return connections[-1]

    monkeypatch.setattr(DatabaseFile, "connect", connected)
    url = f"sqlite:///{path}?busy_timeout=0"
    with closing(open_store(url, clock=clock)) as store, closing(open_store(url, clock=clock)) as other:
        store.send(Batch(ROW, puts=(Put(name(0), b""),)))
        # The signal comes while SQLite runs the statement: Python calls its handler when `execute` has returned.
        connections[0].set_progress_handler(_thread.interrupt_main, 1)
        with pytest.raises(KeyboardInterrupt):
            store.send(Batch(ROW, puts=(Put(name(1), b""),)))
        connections[0].set_progress_handler(None, 1)
        other.send(Batch(ROW, puts=(Put(name(2), b""),)))
        store.send(Batch(ROW, puts=(Put(name(3), b""),)))
        assert [column.name for column in store.read(WANTED)[0]] == [name(0), name(2), name(3)]


def test_a_thread_that_ends_leaves_no_connection(store: Store, path: Path) -> None:
    def use() -> None:
        store.send(Batch(ROW, puts=(Put(name(0), b""),)))

    use()
    before = open_files(path)
    for _ in range(20):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join(PATIENCE)
    gc.collect()
    # SQLite keeps one descriptor open while others of this process are on the file: closing it would end their locks.
    assert open_files(path) <= before + 1


def test_close_lets_go_of_the_connections_of_all_threads(store: Store, path: Path) -> None:
    done = threading.Barrier(4)

    def use() -> None:
        store.send(Batch(ROW, puts=(Put(name(0), b""),)))
        done.wait(PATIENCE)
        done.wait(PATIENCE)
        with pytest.raises(Closed):
            store.read(WANTED)

    with ThreadPoolExecutor(3) as threads:
        users = [threads.submit(use) for _ in range(3)]
        done.wait(PATIENCE)
        assert open_files(path) > 0
        store.close()
        assert open_files(path) == 0
        done.wait(PATIENCE)
        for user in users:
            user.result(PATIENCE)


def test_close_waits_for_the_transaction_of_another_thread(store: SQLiteStore, path: Path) -> None:
    inside, leave, events = threading.Event(), threading.Event(), list[str]()

    def write() -> None:
        with store.transaction() as transaction:
            inside.set()
            leave.wait(PATIENCE)
            transaction.send(Batch(ROW, puts=(Put(name(0), b""),)))
        events.append("committed")

    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(write)
        assert inside.wait(PATIENCE)
        closing_it = threads.submit(store.close)
        try:
            assert not wait([closing_it], timeout=0.2).done
        finally:
            leave.set()
        closing_it.result(PATIENCE)
        assert open_files(path) == 0
        writing.result(PATIENCE)
    assert events == ["committed"]


def test_close_inside_a_transaction_leaves_it_to_end_with_its_block(
    store: SQLiteStore, path: Path, clock: TimeMachine
) -> None:
    with store.transaction() as transaction:
        store.close()
        transaction.send(Batch(ROW, puts=(Put(name(0), b""),)))
    with closing(open_store(f"sqlite:///{path}", clock=clock)) as other:
        assert len(other.read(WANTED)[0]) == 1


def test_a_send_in_a_transaction_applies_none_of_its_batches_if_one_is_refused(store: SQLiteStore) -> None:
    both = Batch(ROW, puts=(Put(name(1), b""),), deletes=(name(1),))
    with store.transaction() as transaction, pytest.raises(BadInput):
        transaction.send(Batch(ROW, puts=(Put(name(0), b""),)), both)
    assert store.read(WANTED) == [[]]


def test_a_connection_that_cannot_be_prepared_is_closed(store: SQLiteStore, path: Path) -> None:
    store.close()
    path.write_bytes(b"not a database, and long enough for SQLite to see that".ljust(1000))
    with pytest.raises(sqlite3.DatabaseError) as raised:
        DatabaseFile(path).connect()
    assert open_files(path) == 0
    del raised  # until here, for its traceback keeps what the function held


def open_files(path: Path) -> int:
    """How many descriptors of this process are open on the file or the files beside it."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("this system does not tell which files a process has open")
    return sum(os.path.realpath(each).startswith(str(path.resolve())) for each in descriptors.iterdir())
