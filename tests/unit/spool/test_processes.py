"""Several processes with one folder: each has a journal of its own, and the living forward what the dead left."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from astyqueue import MessageQueue
from astyqueue.files import for_owner
from astyqueue.journal.disk import LocalDisk, LocalFile
from astyqueue.journal_errors import JournalFailed
from astyqueue.spool import ConnectionSpools, JournalState, SpoolFolder, SpoolOptions
from astyqueue.spool.folder import Traces
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.spool.conftest import Gate, Opening, bodies

PROGRAM: Final = Path(__file__).with_name("spool_process.py")


@contextmanager
def killed(url: str, folder: Path, name: str, count: int) -> Iterator[None]:
    """A process that was killed after it sent this number of messages, none of which it could forward."""
    words = [sys.executable, str(PROGRAM), "send", url, str(folder), name, "0", str(count)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if int(line.split()[0]) >= count - 50)
        yield
        process.kill()


def test_two_processes_have_two_journals(opened: Opening, plain: MessageQueue) -> None:
    one, two = opened(), opened()
    one.send("one")
    two.send("two")
    assert one.spool.drain("20s")
    assert two.spool.drain("20s")
    assert {journal.number for journal in one.spool.status().journals if journal.in_use} == {1, 2}
    assert sorted(map(str, bodies(plain, 2))) == ["one", "two"]


def test_a_journal_that_another_process_is_about_to_open_is_left_to_it(opened: Opening, folder: Path) -> None:
    one = opened()
    numbered = SpoolFolder(folder, "emails").path / "2"
    numbered.mkdir()
    assert one.spool.drain("20s")
    assert list(numbered.iterdir()) == []
    two = opened()
    assert {journal.number for journal in two.spool.status().journals if journal.in_use} == {1, 2}


def test_a_queue_whose_thread_cannot_start_leaves_its_journal_to_the_next(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: Thread) -> None:
        message = f"can't start new thread: {thread.name}"
        raise RuntimeError(message)

    monkeypatch.setattr(Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread: astyqueue-spool:emails"):
        opened()
    monkeypatch.undo()
    assert [one.number for one in opened().spool.status().journals if one.in_use] == [1]


def test_a_living_process_forwards_what_dead_ones_left_and_not_what_living_ones_have(
    store: Gate, opened: Opening, plain: MessageQueue
) -> None:
    dead, living = opened(drain=0), opened()
    store.is_away = True
    dead.send_many(["a", "b"])
    living.send("c")
    assert not living.spool.drain("1s")
    dead.close()
    assert living.spool.status().messages == 3
    store.is_away = False
    assert living.spool.drain("20s")
    assert sorted(map(str, bodies(plain, 3))) == ["a", "b", "c"]
    assert [journal.in_use for journal in living.spool.status().journals] == [False, True]


def test_a_journal_that_was_left_empty_and_used_again_at_the_same_moment_is_forwarded(
    store: Gate, opened: Opening, plain: MessageQueue, folder: Path
) -> None:
    living = opened()
    lock = folder / "queue-emails" / "2" / "journal.lock"

    def left_by_a_dead_process(body: str, opened_ns: int | None) -> int:
        """Have a message forwarded that a process left; returns when that opened its journal, or shall have."""
        with opened(drain=0) as dead:
            if opened_ns is not None:
                os.utime(lock, ns=(opened_ns, opened_ns))
            store.is_away = True
            dead.send(body)
        store.is_away = False
        assert living.spool.drain("20s")
        assert bodies(plain, 1) == [body]
        return lock.stat().st_mtime_ns

    left_by_a_dead_process("second", left_by_a_dead_process("first", None))


def test_a_process_killed_while_the_store_was_away_is_succeeded_by_the_next(tmp_path: Path) -> None:
    file, aside, folder = tmp_path / "q.db", tmp_path / "aside.db", tmp_path / "spool"
    url = f"sqlite:///{file}?synchronous=normal"
    with MessageQueue.builder().store(url).name("emails").spool(folder).build():
        pass
    file.rename(aside)
    file.mkdir()
    with killed(url, folder, "a", 200), killed(url, folder, "b", 200):
        assert [(one.number, one.in_use) for one in SpoolFolder(folder, "emails").states()] == [(1, True), (2, True)]
    states = SpoolFolder(folder, "emails").states()
    assert [one.in_use for one in states] == [False, False]
    assert all(150 < one.messages <= 200 for one in states)
    file.rmdir()
    aside.rename(file)
    with MessageQueue.builder().store(url).name("emails").spool(folder).build() as queue:
        assert queue.spool.drain("30s")
        found = bodies(queue, sum(one.messages for one in states))
        for name in "ab":
            numbers = [body[1] for body in found if isinstance(body, list) and body[0] == name]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) > 150
        assert queue.spool.status().messages == 0


def test_a_journal_that_cannot_be_opened_stops_no_other(
    opened: Opening, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = opened()
    (folder / "queue-emails" / "7").mkdir()
    (folder / "queue-emails" / "7" / "journal.lock").mkdir()
    (folder / "queue-emails" / "7" / "journal-1.page").touch()
    queue.send("a")
    assert queue.spool.drain("20s")
    assert "spool_journal_unreadable queue=emails journal=7" in caplog.text


def test_a_folder_of_another_user_stops_no_other_and_no_look_at_them(
    opened: Opening, plain: MessageQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(folder: SpoolFolder, number: int) -> None:
        if number == 2:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder.path / "2"))

    def traces(folder: SpoolFolder, number: int) -> Traces:
        denied(folder, number)
        looks.append(number)
        return traces_as_before(folder, number)

    def state(folder: SpoolFolder, number: int) -> JournalState:
        denied(folder, number)
        return state_as_before(folder, number)

    looks: list[int] = []
    traces_as_before, state_as_before = SpoolFolder.traces, SpoolFolder.state
    queue = opened()
    for number in (2, 3):
        (queue.spool.folder.path / str(number)).mkdir()
    monkeypatch.setattr(SpoolFolder, "traces", traces)
    monkeypatch.setattr(SpoolFolder, "state", state)
    for body in ("a", "b"):
        queue.send(body)
        assert queue.spool.drain("20s")
    assert looks.count(3) >= 2
    assert [one.number for one in queue.spool.status().journals] == [1, 3]
    assert caplog.text.count("spool_journal_unreadable queue=emails journal=2") == 1
    assert bodies(plain, 2) == ["a", "b"]


class _BadSector(LocalFile):
    def read_at(self, offset: int, size: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO), f"{size} bytes at {offset}")


class _BadDisk(LocalDisk):
    """The disk of this machine, with a bad sector in the pages of journal 1."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> LocalFile:
        if path.parent.name == "1" and path.suffix == ".page":
            return _BadSector(for_owner(str(path), os.O_RDONLY | os.O_CLOEXEC))
        return super().open(path, write=write, create=create)


def test_a_process_starts_beside_a_journal_that_cannot_be_read(
    store: Gate, opened: Opening, plain: MessageQueue, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = opened(drain=0)
    store.is_away = True
    first.send("a")
    first.close()
    store.is_away = False
    spools = ConnectionSpools(SpoolOptions.of(folder, disk=_BadDisk()))
    with MessageQueue.builder().store(store).name("emails").spooled(spools).build() as queue:
        queue.send("b")
        assert queue.spool.drain("20s")
    assert bodies(plain, 1) == ["b"]
    assert caplog.text.count("spool_journal_unreadable queue=emails journal=1") == 1
    assert opened().spool.drain("20s")
    assert bodies(plain, 1) == ["a"]


def test_a_process_does_not_start_where_no_new_journal_can_be_opened(
    store: Gate, plain: MessageQueue, folder: Path, disk: SimulatedDisk
) -> None:
    disk.room = 0
    spools = ConnectionSpools(SpoolOptions.of(folder, disk=disk))
    with pytest.raises(JournalFailed, match="No space left on device"):
        MessageQueue.builder().store(store).name(plain.name).spooled(spools).build()


class _LookedAtFile(LocalFile):
    """A lock file at which another process takes a look, as `spool status` does, while this one locks it first."""

    def __init__(self, descriptor: int, path: Path, disk: _LookedAt) -> None:
        super().__init__(descriptor)
        self._path = path
        self._disk = disk

    def lock(self, *, exclusive: bool) -> bool:
        if self._path.name != "journal.lock" or self._disk.looks:
            return super().lock(exclusive=exclusive)
        self._disk.looks += 1
        with closing(LocalDisk().open(self._path)) as look:
            assert look.lock(exclusive=False)
            return super().lock(exclusive=exclusive)


class _LookedAt(LocalDisk):
    looks = 0

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> LocalFile:
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return _LookedAtFile(for_owner(str(path), flags | os.O_CLOEXEC), path, self)


def test_a_process_takes_its_journal_although_another_one_looks_at_the_lock(
    store: Gate, opened: Opening, folder: Path
) -> None:
    opened().close()
    disk = _LookedAt()
    spools = ConnectionSpools(SpoolOptions.of(folder, disk=disk))
    with MessageQueue.builder().store(store).name("emails").spooled(spools).build() as queue:
        assert disk.looks == 1
        assert [one.number for one in queue.spool.status().journals if one.in_use] == [1]


def test_queues_share_a_directory(store: Gate, folder: Path) -> None:
    for name in ("orders", ".."):
        with MessageQueue.builder().store(store).name(name).spool(folder).build() as queue:
            queue.send(name)
            assert queue.spool.drain("20s")
            assert bodies(queue, 1) == [name]


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
def test_what_was_sent_survives_a_kill_at_every_durability(
    durability: str, opened: Opening, store: Gate, plain: MessageQueue
) -> None:
    dead = opened(durability=durability, drain=0)
    store.is_away = True
    dead.send_many(range(5))
    dead.send(5)
    dead.spool.abandon()  # closes its files without a write, as the system does
    store.is_away = False
    queue = opened()
    assert queue.spool.drain("20s")
    assert bodies(plain, 6) == list(range(6))
