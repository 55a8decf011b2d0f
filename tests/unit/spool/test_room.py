"""A spool on a disk that is full: what a send does then, and that what it refused is never forwarded."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from astyqueue import Hook, Message, MessageQueue, Vetoed, aio
from astyqueue.errors import BadInput
from astyqueue.files import for_owner
from astyqueue.journal.disk import LocalDisk, LocalFile
from astyqueue.journal_errors import JournalFailed, JournalFull, SpoolFull
from astyqueue.model.envelope import MessageId
from astyqueue.spool import ConnectionSpools, SpoolOptions
from astyqueue.spool import folder as folder_module
from astyqueue.spool.process_journal import ProcessJournal
from astyqueue.testing import TimeMachine
from tests.support.forks import beside_threads
from tests.support.places import ONE_ROW, Place
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.journal.conftest import until_true
from tests.unit.spool.conftest import Gate, Opening, bodies

FOLDER: Final = Path("/spool/queue-emails/1")
DEADLINE: Final = 20
RECORD: Final = b"x" * 90
PAGES_OF_256: Final = 8 * 256


@contextmanager
def opened(disk: SimulatedDisk, clock: TimeMachine, **options: Any) -> Iterator[ProcessJournal]:  # noqa: ANN401 - the options of a spool
    journal = ProcessJournal(FOLDER, SpoolOptions.of("/spool", disk=disk, **options), clock)
    yield journal
    disk.room = None
    journal.close()


def left(journal: ProcessJournal) -> list[bytes]:
    return [record.value for record in journal.pending(())]


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
def test_an_append_that_a_full_disk_refuses_is_not_forwarded_later(
    durability: str, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    with opened(disk, clock, durability=durability, when_full="raise") as journal:
        journal.append([b"before"])
        disk.room = 20
        for _ in range(3):
            with pytest.raises(JournalFull) as full:
                journal.append([b"refused" * 20])
            assert full.value.appended == 0
        disk.room = None
        journal.append([b"after"])
        assert left(journal) == [b"before", b"after"]


def test_an_append_of_which_a_full_disk_keeps_a_part_is_not_said_to_be_refused(
    disk: SimulatedDisk, clock: TimeMachine
) -> None:
    def uncut() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with opened(disk, clock, when_full="raise") as journal:
        journal.append([b"before"])
        disk.room, disk.before_truncate = 140, uncut
        with pytest.raises(JournalFailed, match="a part of a write cannot be cut"):
            journal.append([b"kept on the disk".ljust(90), b"torn".ljust(90)])
        with pytest.raises(JournalFailed):
            journal.append([b"after"])
        disk.room, disk.before_truncate = None, int
        journal.discard(JournalFailed("journal", "its disk failed"))
        with opened(disk, clock) as again:
            again.append([b"after"])
            assert left(again) == [b"before", b"kept on the disk".ljust(90), b"after"]


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
def test_the_error_of_a_full_disk_says_how_many_of_the_call_are_in_the_spool(
    durability: str, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    options: dict[str, Any] = {"cap": PAGES_OF_256, "durability": durability, "when_full": "raise"}
    with opened(disk, clock, **options) as journal:
        disk.room = 1_000
        with pytest.raises(JournalFull) as full:
            journal.append([RECORD] * 9)
        disk.room = None
        assert 0 < full.value.appended < 9
        assert left(journal) == [RECORD] * full.value.appended


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
def test_an_append_drops_the_oldest_page_when_the_disk_is_full(
    durability: str, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    options: dict[str, Any] = {"cap": PAGES_OF_256, "durability": durability, "when_full": "drop_oldest"}
    with opened(disk, clock, **options) as journal:
        for number in range(4):
            journal.append([b"%d" % number * 90])
        disk.room = 100
        for number in range(4, 8):
            journal.append([b"%d" % number * 90])
        assert left(journal)[-2:] == [b"6" * 90, b"7" * 90]
        assert b"0" * 90 not in left(journal)


@pytest.mark.parametrize("was_read_before", [True, False])
def test_a_message_of_which_pages_made_room_for_others_is_no_damage(
    tmp_path: Path, clock: TimeMachine, *, was_read_before: bool
) -> None:
    options = SpoolOptions.of(tmp_path, cap=PAGES_OF_256, when_full="drop_oldest", durability="none")
    with closing(ProcessJournal(tmp_path / "1", options, clock)) as journal:
        journal.append([RECORD])
        if was_read_before:
            assert left(journal) == [RECORD]
        journal.append([b"y" * 500])
        for _ in range(6):
            journal.append([b"z" * 90])
        assert left(journal)[-6:] == [b"z" * 90] * 6
        assert b"y" * 500 not in left(journal)
        assert (journal.damage(), journal.unreadable) == ([], 0)


class FullFile(LocalFile):
    def __init__(self, descriptor: int, disk: FullDisk) -> None:
        super().__init__(descriptor)
        self._disk = disk

    def write_at(self, offset: int, data: bytes) -> None:
        if self._disk.is_full and offset + len(data) > self.size():
            super().write_at(offset, data[:7])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write_at(offset, data)


class FullDisk(LocalDisk):
    """The disk of this machine, on which no file grows while it is full."""

    is_full = False

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> LocalFile:
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return FullFile(for_owner(str(path), flags | os.O_CLOEXEC), self)


def test_a_send_that_raises_on_a_full_disk_may_be_repeated_without_doubling(
    store: Gate, plain: MessageQueue, folder: Path
) -> None:
    full_disk = FullDisk()
    spools = ConnectionSpools(SpoolOptions.of(folder, when_full="raise", disk=full_disk))
    with MessageQueue.builder().store(store).name("emails").spooled(spools).build() as queue:
        queue.send("a")
        full_disk.is_full = True
        for _ in range(3):
            with pytest.raises(JournalFull):
                queue.send("b")
        full_disk.is_full = False
        queue.send("b")
        assert queue.spool.drain("20s")
        assert queue.spool.status().messages == 0
    assert bodies(plain, 2) == ["a", "b"]
    assert plain.counts().waiting == 0


@pytest.fixture
def full_disk() -> FullDisk:
    return FullDisk()


@pytest.fixture
def waiting_queue(
    place: Place, clock: TimeMachine, folder: Path, full_disk: FullDisk
) -> Iterator[Callable[[str], MessageQueue]]:
    """Opens a queue whose sends wait for room, on a disk that a test makes full."""
    with ExitStack() as stack:

        def build(durability: str) -> MessageQueue:
            spools = ConnectionSpools(SpoolOptions.of(folder, durability=durability, disk=full_disk, drain=0))
            builder = MessageQueue.builder().store(place.store(clock)).name("emails").clock(clock).options(**ONE_ROW)
            return stack.enter_context(builder.spooled(spools).build())

        yield build
        full_disk.is_full = False


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
def test_a_send_waits_until_a_full_disk_has_room(
    waiting_queue: Callable[[str], MessageQueue],
    full_disk: FullDisk,
    clock: TimeMachine,
    durability: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = waiting_queue(durability)
    queue.send("before")
    assert queue.spool.drain("20s")
    full_disk.is_full = True
    ended: list[object] = []
    sending = threading.Thread(target=lambda: ended.append(queue.send("waits").new), daemon=True)
    sending.start()
    until_true(lambda: "spool_full queue=emails" in caplog.text or clock.advance("1s") is None)
    assert not ended
    full_disk.is_full = False
    until_true(lambda: not sending.is_alive() or clock.advance("1s") is None)
    assert ended == [True]
    assert caplog.messages.count("spool_has_room queue=emails") == caplog.text.count("spool_full") == 1
    assert queue.spool.drain("20s")
    assert bodies(queue, 2) == ["before", "waits"]


def test_settings_that_cannot_be_read_any_more_stop_no_message(
    opened: Opening, store: Gate, plain: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: folder_module.SpoolFolder) -> None:
        raise PermissionError

    queue = opened(drain=0)
    with MessageQueue.builder().store(store.behind).name(plain.name).build() as operated:
        operated.configure(max_attempts=7)
    monkeypatch.setattr(folder_module.SpoolFolder, "load_settings", denied)
    queue.send("a")
    assert queue.spool.drain("20s")
    assert bodies(plain, 1) == ["a"]


def test_settings_that_a_full_disk_does_not_take_stop_no_message_and_are_saved_later(
    opened: Opening,
    store: Gate,
    plain: MessageQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(path: Path, _: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    queue = opened(drain=0)
    before = queue.spool.folder.load_settings()
    store.is_away = True
    queue.send("a")
    with MessageQueue.builder().store(store.behind).name(plain.name).build() as operated:
        operated.configure(max_attempts=7)
    monkeypatch.setattr(folder_module, "replace_file", full)
    store.is_away = False
    assert queue.spool.drain("20s")
    queue.send("b")
    assert queue.spool.drain("20s")
    assert queue.spool.folder.load_settings() == before
    assert caplog.text.count("spool_settings_not_saved queue=emails") == 1
    monkeypatch.undo()
    queue.send("c")
    assert queue.spool.drain("20s")
    assert b'"max_attempts":7' in (queue.spool.folder.load_settings() or b"")
    assert bodies(plain, 3) == ["a", "b", "c"]


@contextmanager
def living_child(act: Callable[[], object] = lambda: None) -> Iterator[None]:
    """A forked child that lives until the block ends, after it did this."""
    told, tells = os.pipe()
    waits, ends = os.pipe()
    child = os.fork()
    if child == 0:
        act()
        os.write(tells, b".")
        os.close(ends)
        os.read(waits, 1)
        os._exit(0)
    try:
        assert os.read(told, 1) == b"."
        yield
    finally:
        for descriptor in (ends, waits, told, tells):
            os.close(descriptor)
        os.waitpid(child, 0)


@beside_threads
@pytest.mark.parametrize("refused", [False, True])
def test_the_room_of_what_was_forwarded_comes_back_while_a_forked_child_lives(
    *, refused: bool, opened: Opening, store: Gate, folder: Path
) -> None:
    queue = opened(cap="64KiB", when_full="raise")
    store.refuses = lambda value: BadInput("no") if b'"poison"' in value else None
    queue.send("poison" if refused else "before")
    assert queue.spool.drain("20s")
    with living_child():
        for number in range(150):
            queue.send([number, "x" * 1_000])
            if number % 30 == 0:
                assert queue.spool.drain("20s")
        assert queue.spool.drain("20s")
        assert len(list((folder / "queue-emails" / "1").glob("journal-*.page"))) == 1
        queue.close()
        assert [one.number for one in opened().spool.status().journals if one.in_use] == [1]


def test_send_many_into_a_full_spool_reports_what_it_sent_so_that_the_rest_can_be_sent_again(
    store: Gate, plain: MessageQueue, folder: Path
) -> None:
    told: list[object] = []

    class Noting(Hook):
        def before_send(self, message: Message) -> None:
            if message.body in (3, 1_503):
                reason = "not this one"
                raise Vetoed(reason)

        def after_send(self, message: Message, sent: MessageId) -> None:
            told.append((message.body, sent))

    items = list(range(4_000))
    builder = MessageQueue.builder().store(store).name("emails").hook(Noting())
    with builder.spool(folder, cap="256KiB", when_full="raise", drain=0).build() as queue:
        store.is_away = True
        with pytest.raises(SpoolFull, match=r"spool of queue 'emails' is full \(its cap is 262144 bytes\)") as full:
            queue.send_many(items)
        report = full.value.report
        assert 1_000 < len(report.ids) < 4_000
        assert report.sent == full.value.appended == queue.stats.spooled == queue.spool.status().messages
        assert report.vetoed.keys() == {place for place in (3, 1_503) if place < len(report.ids)}
        assert told == [(body, id_) for body, id_ in enumerate(report.ids) if id_ is not None]
        store.is_away = False
        sent, left = report.sent, items[len(report.ids) :]
        while left:
            assert queue.spool.drain("20s")
            try:
                report = queue.send_many(left)
            except SpoolFull as again:
                report = again.report
            sent, left = sent + report.sent, left[len(report.ids) :]
        assert queue.spool.drain("20s")
    wanted = [item for item in items if item not in (3, 1_503)]
    assert sent == len(wanted)
    assert bodies(plain, len(wanted)) == wanted
    assert plain.counts().waiting == 0


def test_the_error_of_a_full_spool_says_what_empties_it(opened: Opening, store: Gate) -> None:
    queue = opened(cap="64KiB", when_full="raise")
    store.is_away = True
    with pytest.raises(SpoolFull, match=r"0 messages of this call are in it.*The store empties it") as full:  # noqa: PT012 - which of the sends raises depends on the size of a page
        for number in range(1_000):
            queue.send([number, "x" * 1_000])
    assert full.value.appended == 0
    assert full.value.report is None
    assert "cursors" not in str(full.value)


def test_a_generator_of_a_task_has_one_report_of_all_that_was_sent_before_the_spool_was_full(
    store: Gate, plain: MessageQueue, folder: Path
) -> None:
    async def items() -> AsyncIterator[int]:
        for number in range(4_000):
            yield number

    async def scene() -> None:
        builder = aio.MessageQueue.builder().store(store).name(plain.name)
        queue = await builder.spool(folder, cap="256KiB", when_full="raise", drain=0).build()
        store.is_away = True
        with pytest.raises(SpoolFull) as full:
            await queue.send_many(items())
        assert 1_000 < len(full.value.report.ids) == (await queue.spool.status()).messages
        await queue.close()

    asyncio.run(scene())
