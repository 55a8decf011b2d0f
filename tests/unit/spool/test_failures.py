"""What fails for a part of a spool only: a row, a journal, the disk, some bytes. The rest goes on, and all is told."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.errors import BadInput, BadSetting, SliceTooLong, StoreUnavailable
from astyqueue.files import for_owner
from astyqueue.journal.disk import LocalDisk, LocalFile
from astyqueue.journal_errors import JournalFailed
from astyqueue.protocol.steps import Commit, Request
from astyqueue.spool import ConnectionSpools, SpoolFolder, SpoolOptions, backlog_of
from astyqueue.spool.outage import Outage, load_outage
from astyqueue.store import Store
from astyqueue.stores.lazy_store import LazyStore
from tests.unit.spool.conftest import Gate, Opening, bodies


class TwoRows:
    """A queue of two rows with a spool, of which one row cannot be written while it is `stuck`."""

    def __init__(self, store: Gate, folder: Path, **options: object) -> None:
        self.store = store
        self.folder = folder
        self.stuck = ""
        store.answers = self._answer
        builder = MessageQueue.builder().store(store.behind).name("many").concurrency_shards(2).time_shards(1)
        self.plain = builder.build()
        self.queue = self.opened(**options)

    def opened(self, **options: object) -> MessageQueue:
        return MessageQueue.builder().store(self.store).name("many").spool(self.folder, **options).build()  # type: ignore[arg-type]  # options

    def _answer(self, request: Request) -> None:
        if isinstance(request, Commit) and request.batch.row == self.stuck:
            raise SliceTooLong(self.stuck)

    def forward_but_stuck(self, count: int) -> None:
        """Have the spool forward all but the stuck row, until as many messages wait in the store."""
        for _ in range(100):
            assert not self.queue.spool.drain("200ms")
            if self.plain.counts().waiting == count:
                return
        assert self.plain.counts().waiting == count

    def received(self, count: int) -> list[int]:
        return [int(str(body)) for body in bodies(self.plain, count)]

    def close(self) -> None:
        self.queue.close()
        self.plain.close()


@pytest.fixture
def rows(store: Gate, folder: Path) -> Iterator[TwoRows]:
    made = TwoRows(store, folder, drain=0)
    yield made
    made.close()


def test_a_row_that_cannot_be_written_holds_up_no_other_and_comes_in_order_later(rows: TwoRows) -> None:
    [first] = rows.queue.send_many([0]).ids
    assert first is not None
    assert rows.queue.spool.drain("20s")
    rows.stuck = first.row
    sent = [one for _ in range(3) for one in rows.queue.send_many(range(1_000)).ids if one]
    free = sum(one.row != first.row for one in sent)
    assert 0 < free < 3_000
    rows.forward_but_stuck(1 + free)
    status = rows.queue.spool.status()
    assert "SliceTooLong" in status.last_error
    assert status.failing_since is not None
    assert status.refused == 0
    rows.stuck = ""
    assert rows.queue.spool.drain("20s")
    order = {str(one): number for number, one in enumerate(sent)}
    found: dict[str, list[int]] = {}
    while received := rows.plain.receive(200):
        for delivery in received:
            if (number := order.get(str(delivery.message_id))) is not None:
                found.setdefault(delivery.message_id.row, []).append(number)
        received.ack()
    assert sum(map(len, found.values())) == 3_000
    assert all(numbers == sorted(numbers) for numbers in found.values())


def test_other_rows_go_on_also_if_drain_is_called_at_every_try_of_the_row_that_cannot_be_written(
    rows: TwoRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.store.is_away = True
    sent = [one for _ in range(3) for one in rows.queue.send_many(range(1_000)).ids if one]
    tries = 0

    def refused(request: Request) -> None:
        nonlocal tries
        if isinstance(request, Commit) and request.batch.row == sent[0].row:
            tries += 1
            assert not rows.queue.spool.drain(0)
            raise SliceTooLong(sent[0].row)

    monkeypatch.setattr(rows.store, "answers", refused)
    rows.store.is_away = False
    free = sum(one.row != sent[0].row for one in sent)
    assert len(rows.received(free)) == free
    assert tries > 1


def test_what_was_forwarded_behind_a_held_row_is_not_doubled_by_the_next_process(rows: TwoRows) -> None:
    [first] = rows.queue.send_many([0]).ids
    assert first is not None
    assert rows.queue.spool.drain("20s")
    rows.stuck = first.row
    rows.queue.send_many(range(1, 500))
    rows.queue.send_many(range(500, 1_000))
    assert not rows.queue.spool.drain("1s")
    before = rows.received(rows.plain.counts().waiting)
    rows.queue.close()
    rows.stuck = ""
    with rows.opened() as again:
        assert again.spool.drain("20s")
        assert again.spool.status().messages == 0
    assert sorted(before + rows.received(1_000 - len(before))) == list(range(1_000))
    assert rows.plain.counts().waiting == 0


def test_a_journal_of_a_dead_process_is_forwarded_while_a_row_of_the_own_one_cannot_be_written(rows: TwoRows) -> None:
    dead = rows.opened(drain=0)
    rows.store.is_away = True
    left = [one for one in dead.send_many(range(1_000)).ids if one]
    row = left[0].row
    own = [one for one in rows.queue.send_many(range(1_000)).ids if one]
    dead.close()
    rows.stuck, rows.store.is_away = row, False
    rows.forward_but_stuck(sum(one.row != row for one in [*left, *own]))


def test_a_full_journal_of_refused_messages_holds_up_only_their_row(store: Gate, folder: Path) -> None:
    rows = TwoRows(store, folder, drain=0, cap="64KiB")
    store.refuses = lambda value: BadInput("no") if b'"poison' in value else None
    poison = rows.queue.send("poison", key="a").id
    for _ in range(20):
        rows.queue.send("poison" + "x" * 3_800, key="a")
        if not rows.queue.spool.drain("1s"):
            break
    sent = {key: rows.queue.send(key, key=key).id for key in map(str, range(20))}
    assert not rows.queue.spool.drain("1s")
    status = rows.queue.spool.status()
    assert "JournalFull" in status.last_error
    assert 4 < status.refused < 20
    behind = {key for key, id_ in sent.items() if id_.row == poison.row}
    assert 0 < len(behind) < 20
    assert {key for key in sent if rows.plain.find(key)} == sent.keys() - behind
    rows.close()


class BrokenFile(LocalFile):
    def __init__(self, descriptor: int, path: Path, disk: BrokenDisk) -> None:
        super().__init__(descriptor)
        self._path = path
        self._disk = disk

    def write_at(self, offset: int, data: bytes) -> None:
        if self._disk.refuses_writes:
            self._check()
        super().write_at(offset, data)

    def sync(self) -> None:
        self._check()
        super().sync()

    def _check(self) -> None:
        if self._disk.is_broken and str(self._path).endswith(self._disk.broken):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class BrokenDisk(LocalDisk):
    """The disk of this machine, of which some files cannot be synced, or not even written, while it is broken."""

    def __init__(self, broken: str, *, refuses_writes: bool = False) -> None:
        self.broken = broken
        self.refuses_writes = refuses_writes
        self.refuses_opens = False
        self.is_broken = False

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> LocalFile:
        if self.is_broken and self.refuses_opens and str(path).endswith(self.broken):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return BrokenFile(for_owner(str(path), flags | os.O_CLOEXEC), path, self)


def on_disk(store: Gate, folder: Path, disk: BrokenDisk, durability: str = "each") -> MessageQueue:
    spools = ConnectionSpools(SpoolOptions.of(folder, durability=durability, disk=disk))
    return MessageQueue.builder().store(store).name("emails").spooled(spools).build()


def test_a_disk_that_failed_takes_messages_again_without_a_restart(
    store: Gate, plain: MessageQueue, folder: Path
) -> None:
    disk = BrokenDisk(".page")
    with on_disk(store, folder, disk) as queue:
        queue.send("a")
        assert queue.spool.drain("20s")
        disk.is_broken = True
        for _ in range(2):
            with pytest.raises(JournalFailed):
                queue.send("not known to be sent")
        assert not queue.spool.drain("1s")
        disk.is_broken = False
        assert queue.spool.drain("20s")
        queue.send("b")
        assert queue.spool.drain("20s")
        status = queue.spool.status()
        assert (status.messages, status.last_error, status.failing_since) == (0, "", None)
        assert [one.number for one in status.journals if one.in_use] == [1]
    found = bodies(plain, 2)
    assert (found[0], found[-1]) == ("a", "b")


def test_a_journal_that_fails_as_its_cursor_is_saved_is_opened_again(
    store: Gate, plain: MessageQueue, folder: Path
) -> None:
    disk = BrokenDisk(".page")
    with on_disk(store, folder, disk, durability="none") as queue:
        disk.is_broken = True
        queue.send("a")
        assert not queue.spool.drain("1s")
        assert "Input/output error" in queue.spool.status().last_error
        disk.is_broken = False
        assert queue.spool.drain("20s")
        queue.send("b")
        assert queue.spool.drain("20s")
    assert bodies(plain, 2) == ["a", "b"]
    assert plain.counts().waiting == 0


def test_an_own_journal_that_cannot_be_opened_again_holds_up_no_other(
    store: Gate, plain: MessageQueue, folder: Path
) -> None:
    disk = BrokenDisk("1/journal-1.page")
    with on_disk(store, folder, disk) as queue, on_disk(store, folder, disk) as dead:
        queue.send("own")
        assert queue.spool.drain("20s")
        store.is_away = True
        dead.send("left by a dead process")
        dead.close()
        disk.is_broken = True
        with pytest.raises(JournalFailed):
            queue.send("not known to be sent")
        store.is_away = False
        assert not queue.spool.drain("100ms")
        assert "Input/output error" in queue.spool.status().last_error
        assert bodies(plain, 2) == ["own", "left by a dead process"]
        disk.is_broken = False


@pytest.mark.parametrize("refuses_opens", [False, True])
def test_a_spool_is_not_drained_while_the_disk_fails_for_the_journal_of_a_dead_process(
    store: Gate, plain: MessageQueue, folder: Path, *, refuses_opens: bool
) -> None:
    disk = BrokenDisk("2/journal.forwarded.cursor", refuses_writes=True)
    disk.refuses_opens = refuses_opens
    with on_disk(store, folder, disk) as queue, on_disk(store, folder, disk) as dead:
        store.is_away = True
        dead.send("left by a dead process")
        dead.close()
        assert not queue.spool.drain("200ms")
        disk.is_broken = True
        store.is_away = False
        assert not queue.spool.drain("1s")
        assert "Input/output error" in queue.spool.status().last_error
        disk.is_broken = False
        assert queue.spool.drain("20s")
        assert (queue.spool.status().messages, queue.spool.status().last_error) == (0, "")
    assert bodies(plain, 1) == ["left by a dead process"]
    assert plain.counts().total == 0


def test_damaged_messages_are_counted_and_logged_and_the_others_arrive(
    opened: Opening, store: Gate, plain: MessageQueue, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = opened(drain=0)
    store.is_away = True
    queue.send_many(["a", "damaged", "b"])
    queue.close()
    [page] = (folder / "queue-emails" / "1").glob("journal-*.page")
    page.write_bytes(page.read_bytes().replace(b"damaged", b"dAmaged"))
    store.is_away = False
    with caplog.at_level(logging.ERROR, "astyqueue.spool"):
        again = opened()
        assert again.spool.drain("20s")
    status = again.spool.status()
    assert (status.messages, status.refused, status.unreadable) == (0, 0, 1)
    [line] = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert line.startswith("spool_messages_unreadable queue=emails")
    assert "checksum" in line
    assert bodies(plain, 2) == ["a", "b"]


def test_looks_at_a_spool_log_the_damage_of_waiting_messages_once(
    opened: Opening, store: Gate, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = opened(drain=0)
    store.is_away = True
    queue.send_many(["damaged", "a"])
    queue.close()
    [page] = (folder / "queue-emails" / "1").glob("journal-*.page")
    page.write_bytes(page.read_bytes().replace(b"damaged", b"dAmaged"))
    for _ in range(3):
        assert backlog_of(folder).messages == 2
        [state] = SpoolFolder(folder, "emails").states()
        assert state.oldest is not None
    assert caplog.text.count("journal_records_unreadable") == 1


def test_looks_at_a_spool_log_a_journal_that_cannot_be_read_once(
    opened: Opening, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened().close()
    lock = folder / "queue-emails" / "1" / "journal.lock"
    lock.unlink()
    lock.symlink_to("/nowhere")
    for _ in range(3):
        assert backlog_of(folder).messages == 0
        assert SpoolFolder(folder, "emails").states() == []
    assert caplog.text.count("spool_journal_unreadable queue=emails journal=1") == 1


def test_a_queue_whose_spool_cannot_be_looked_at_commits_what_was_acked_when_it_is_closed(
    opened: Opening, plain: MessageQueue, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain.send("a")
    queue = opened(drain=0)
    for delivery in queue.receive():
        delivery.ack()
    shutil.rmtree(folder)
    queue.close()
    assert plain.counts().total == 0
    assert "spool_journal_unreadable queue=emails journal=1" in caplog.text
    assert "spool_closed_with_messages" not in caplog.text


def test_dropped_messages_are_no_damage(opened: Opening, store: Gate) -> None:
    queue = opened(cap="64KiB", when_full="drop_oldest")
    queue.send("before")
    assert queue.spool.drain("20s")
    store.is_away = True
    for number in range(200):
        queue.send([number, "x" * 1_000])
    store.is_away = False
    assert queue.spool.drain("20s")
    status = queue.spool.status()
    assert status.dropped > 0
    assert status.unreadable == 0


def test_messages_wait_while_settings_are_wrong_with_which_the_store_is_opened(opened: Opening, folder: Path) -> None:
    def fail() -> Store:
        message = "password_file '/run/secrets/queue' cannot be read"
        raise BadSetting(message)

    opened().close()
    with opened(store=LazyStore(fail), drain=0) as queue:
        queue.send_many(range(3))
        assert not queue.spool.drain("1s")
        status = queue.spool.status()
        assert (status.messages, status.refused) == (3, 0)
        assert status.failing_since is not None
        assert "password_file" in status.last_error
    mended = opened()
    assert mended.spool.drain("20s")
    assert mended.spool.status().refused == 0
    assert not list((folder / "queue-emails").rglob("refused*"))
    assert bodies(mended, 3) == [0, 1, 2]


def test_to_store_an_outage_for_others_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    Outage("emails", SystemClock()).failed(StoreUnavailable("away"), tmp_path)
    stored = load_outage(tmp_path)
    assert stored is not None
    assert stored.error == "StoreUnavailable: away"
    assert synced == []


def test_an_outage_is_shown_to_other_processes_until_it_ends(opened: Opening, store: Gate, folder: Path) -> None:
    queue = opened()
    other = SpoolFolder(folder, "emails")
    assert [(one.last_error, one.failing_since) for one in other.states()] == [("", None)]
    store.is_away = True
    queue.send("a")
    assert not queue.spool.drain("1s")
    [state] = other.states()
    assert state.last_error == queue.spool.status().last_error != ""
    assert state.failing_since == queue.spool.status().failing_since is not None
    store.is_away = False
    assert queue.spool.drain("20s")
    assert queue.spool.status().last_error == ""
    assert [(one.last_error, one.failing_since) for one in other.states()] == [("", None)]
