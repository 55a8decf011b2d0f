"""Appending: what is kept, in which order, and when it is on the disk."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from astyqueue.errors import BadSetting, Closed
from astyqueue.journal import BYTES, Journal, ReadOnlyJournal
from astyqueue.journal_errors import JournalError, JournalFailed, JournalInUse
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening, until_true

DEADLINE: Final = 20
#: The process is written into the file of the lock.
LOCK_WRITES: Final = 1


def values(journal: Journal[bytes] | ReadOnlyJournal[bytes]) -> list[bytes]:
    return [record.value for record in journal.read()]


def test_values_come_back_in_order_with_rising_sequences_and_the_moment_they_arrived(
    opened: Opening, clock: TimeMachine
) -> None:
    journal = opened()
    places = [journal.append(value) for value in (b"a", b"b")]
    clock.advance("1s")
    places.append(journal.append(b"c"))
    records = list(journal.read())
    assert [record.value for record in records] == [b"a", b"b", b"c"]
    assert [(record.sequence, record.arrived) for record in records] == [(place[0], place.arrived) for place in places]
    assert [place.sequence for place in places] == [1, 2, 3]
    assert records[2].arrived == clock.instant


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
@pytest.mark.parametrize("size", [0, 1, 3, 81, 100, 2000])
def test_a_value_of_any_size_comes_back_whole_also_after_reopening(size: int, durability: str, opened: Opening) -> None:
    payloads = [bytes([number]) * size for number in range(20)]
    journal = opened(durability=durability)
    for payload in payloads:
        journal.append(payload)
    assert values(journal) == payloads
    journal.close()
    assert values(opened()) == payloads


def test_payloads_of_every_length_cross_pages_unchanged(opened: Opening) -> None:
    payloads = [bytes(number % 256 for number in range(size)) for size in range(1, 500, 3)]
    journal = opened(durability="batch")
    journal.append_many(payloads)
    assert values(journal) == payloads


def test_an_empty_journal_reads_as_empty(opened: Opening) -> None:
    journal = opened()
    assert values(journal) == []
    assert journal.append_many([]) is None
    journal.close()
    assert values(opened()) == []


def test_a_journal_keeps_the_page_size_that_it_was_created_with(opened: Opening, disk: SimulatedDisk) -> None:
    opened(page_size=300).append(b"a")
    disk = disk.rebooted(keep_unsynced=True)
    journal = opened(page_size=4096, disk=disk)
    journal.append_many([b"x" * 100] * 10)
    sizes = [len(node.seen) for path, node in disk.names_seen.items() if path.suffix == ".page"]
    assert len(sizes) == 10
    assert max(sizes) <= 300


def test_a_record_is_on_the_disk_when_an_append_returns_with_durability_each(
    opened: Opening, disk: SimulatedDisk
) -> None:
    journal = opened(durability="each")
    for number in range(5):
        journal.append(bytes([number]))
        assert len(values(opened(disk=disk.rebooted(keep_unsynced=False)))) == number + 1


def test_the_folders_that_were_made_for_a_journal_survive_the_machine(disk: SimulatedDisk, clock: TimeMachine) -> None:
    folder = Path("/var/spool/shop/journal")
    with Journal.open(folder, codec=BYTES, disk=disk, clock=clock, durability="each") as journal:
        journal.append(b"a")
        rebooted = disk.rebooted(keep_unsynced=False)
    assert values(ReadOnlyJournal.open(folder, codec=BYTES, disk=rebooted, clock=clock)) == [b"a"]


def test_a_batch_is_synced_after_its_number_of_records(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened(durability="batch", batch_records=3, page_size="1MiB")
    for number in range(1, 8):
        journal.append(b"a")
        assert journal.stat().synced_sequence == number // 3 * 3
    assert disk.syncs == 2
    assert disk.writes < 6


def test_a_batch_is_synced_after_its_delay_though_nothing_follows(opened: Opening, clock: TimeMachine) -> None:
    journal = opened(durability="batch", batch_records=100, batch_delay="10ms")
    journal.append(b"a")
    clock.when_waiting(1, DEADLINE)
    assert journal.stat().synced_sequence == 0
    clock.advance("10ms")
    until_true(lambda: journal.stat().synced_sequence == 1)


@pytest.mark.parametrize("durability", ["batch", "none"])
def test_without_a_thread_for_its_batches_a_journal_writes_each_append_until_one_can_be_started(
    opened: Opening, disk: SimulatedDisk, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    def refuse(_: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    journal = opened(durability=durability, page_size="1MiB")
    other = ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk, clock=clock)
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", refuse)
        assert journal.append(b"a").sequence == 1
        assert values(other) == [b"a"]
    journal.append(b"b")
    assert values(other) == [b"a"]
    clock.when_waiting(1, DEADLINE)
    clock.advance("10ms")
    until_true(lambda: values(other) == [b"a", b"b"])
    journal.append(b"c")
    journal.close()
    assert values(other) == [b"a", b"b", b"c"]


class Refusing(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        raise KeyError(record.name)


def test_a_log_filter_that_raises_keeps_no_batch_from_its_end(
    opened: Opening, disk: SimulatedDisk, clock: TimeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    log, refusing = logging.getLogger("astyqueue.journal"), Refusing()
    log.addFilter(refusing)
    try:
        journal = opened(durability="batch", page_size="1MiB")
        disk.room = 0
        journal.append(b"a")
        until_true(lambda: "KeyError" in capsys.readouterr().err or clock.advance("10ms") is None)
        disk.room = None
        until_true(lambda: journal.stat().synced_sequence == 1 or clock.advance("10ms") is None)
    finally:
        log.removeFilter(refusing)


def test_without_durability_nothing_is_synced_and_other_processes_see_it_after_the_delay(
    opened: Opening, disk: SimulatedDisk, clock: TimeMachine
) -> None:
    journal = opened(durability="none", batch_delay="10ms", page_size="1MiB")
    journal.append(b"a")
    other = ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=disk, clock=clock)
    assert values(other) == []
    clock.when_waiting(1, DEADLINE)
    clock.advance("10ms")
    until_true(lambda: values(other) == [b"a"])
    assert disk.syncs == 0
    journal.sync()
    assert disk.syncs > 0
    assert values(opened(disk=disk.rebooted(keep_unsynced=False))) == [b"a"]


def test_a_sync_without_durability_reaches_pages_that_were_finished_before(
    opened: Opening, disk: SimulatedDisk
) -> None:
    journal = opened(durability="none")
    journal.append_many([b"x" * 60] * 10)
    journal.sync()
    assert values(opened(disk=disk.rebooted(keep_unsynced=False))) == [b"x" * 60] * 10


def test_threads_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    count, each = 8, 25
    with Journal.open(tmp_path, codec=BYTES, durability="each") as journal:
        threads = [
            threading.Thread(target=lambda name=name: [journal.append(b"%d" % name) for _ in range(each)])
            for name in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        found = values(journal)
        assert journal.stat().synced_sequence == count * each
    assert sorted(found) == sorted(b"%d" % name for name in range(count) for _ in range(each))


def test_records_that_are_appended_while_the_disk_syncs_share_the_next_sync(
    opened: Opening, disk: SimulatedDisk
) -> None:
    journal = opened(page_size="1MiB")
    first_syncs, others_wrote = threading.Event(), threading.Event()

    def hold() -> None:
        first_syncs.set()
        assert others_wrote.wait(DEADLINE)

    disk.before_sync = hold
    threads = [threading.Thread(target=journal.append, args=(b"%d" % number,)) for number in range(8)]
    threads[0].start()
    assert first_syncs.wait(DEADLINE)
    for thread in threads[1:]:
        thread.start()
    until_true(lambda: disk.writes == len(threads) + LOCK_WRITES)
    others_wrote.set()
    for thread in threads:
        thread.join(DEADLINE)
    assert disk.syncs == 2
    assert journal.stat().synced_sequence == len(threads)


def test_a_second_writer_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    with Journal.open(tmp_path), pytest.raises(JournalInUse, match=f"process {os.getpid()}"):
        Journal.open(tmp_path)
    Journal.open(tmp_path).close()
    with Journal.open(tmp_path), Journal.open(tmp_path, prefix="other"):
        pass


def test_a_closed_journal_refuses_appends_and_syncs_and_may_be_closed_again(opened: Opening) -> None:
    journal = opened()
    journal.close()
    journal.close()
    with pytest.raises(Closed, match="open it again"):
        journal.append(b"a")
    with pytest.raises(Closed):
        journal.cursor("a").commit(journal.append(b"a"))


def test_a_clock_that_is_an_hour_behind_the_last_record_is_logged_once_for_each_opening(
    opened: Opening, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened()
    before = clock.now()
    clock.advance("10d")
    ahead = journal.append(b"a").arrived_us
    clock.set(ahead - 3_600 * 1_000_000)
    journal.append(b"b")
    assert caplog.messages == []
    clock.set(before)
    for _ in range(2):
        assert journal.append(b"c").arrived_us == ahead
    [message] = caplog.messages
    assert "journal_clock_behind" in message
    assert "2026-01-11T00:00:00" in message
    journal.close()
    opened().append(b"d")
    assert len(caplog.messages) == 2


def test_an_append_beside_a_close_is_kept_or_refused(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened(durability="batch", page_size="1MiB")
    journal.append(b"before")
    accepted = [b"before"]

    def append_beside() -> None:
        disk.before_sync = lambda: None
        with contextlib.suppress(Closed):
            journal.append(b"beside")
            accepted.append(b"beside")

    def append_while_the_disk_syncs() -> None:
        beside = threading.Thread(target=append_beside, daemon=True)
        beside.start()
        beside.join(DEADLINE)
        assert not beside.is_alive()

    disk.before_sync = append_while_the_disk_syncs
    journal.close()
    assert values(opened()) == accepted


def test_a_second_close_returns_when_the_first_has_written_all(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened(durability="batch")
    journal.append(b"a")
    second = threading.Thread(target=journal.close, daemon=True)

    def close_twice() -> None:
        disk.before_sync = lambda: None
        second.start()
        with pytest.raises(JournalInUse):
            opened()

    disk.before_sync = close_twice
    journal.close()
    second.join(DEADLINE)
    assert not second.is_alive()
    assert values(opened()) == [b"a"]


@pytest.mark.parametrize("durability", ["none", "batch"])
@pytest.mark.parametrize("kept", ["", "journal = "])
def test_a_program_that_ends_without_a_close_writes_what_it_appended(
    kept: str, durability: str, tmp_path: Path
) -> None:
    program = (
        "from astyqueue.journal import Journal\n"
        f"{kept}Journal.open({str(tmp_path)!r}, durability={durability!r}, batch_delay='1h')"
    )
    program += ".append(1)" if not kept else "\njournal.append(1)"
    subprocess.run([sys.executable, "-c", program], check=True)
    with Journal.open(tmp_path) as journal:
        assert [record.value for record in journal.read()] == [1]


def test_after_a_failed_sync_the_journal_takes_nothing_more(opened: Opening, disk: SimulatedDisk) -> None:
    journal = opened()
    journal.append(b"a")
    disk.sync_error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(JournalFailed, match="Input/output error"):
        journal.append(b"b")
    disk.sync_error = None
    with pytest.raises(JournalFailed):
        journal.append(b"c")
    journal.close()
    assert values(opened())[0] == b"a"


@pytest.mark.filterwarnings(
    "ignore:This process:DeprecationWarning"
)  # Python 3.12 warns of what is shown to be safe here
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_is_refused_and_does_not_write_what_its_parent_buffered(tmp_path: Path) -> None:
    with Journal.open(tmp_path, codec=BYTES, durability="batch", batch_delay="1h") as journal:
        journal.append(b"parent")
        child = os.fork()
        if child == 0:
            try:
                journal.append(b"child")
            except Closed:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    with Journal.open(tmp_path, codec=BYTES) as journal:
        assert values(journal) == [b"parent"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"page_size": "16 apples"}, "16 apples"),
        ({"page_size": 100}, "page_size is 100 bytes"),
        ({"page_size": "2GiB"}, "to 1GiB"),
        ({"durability": "always"}, "'none', 'batch', 'each'"),
        ({"when_full": "explode"}, "'block', 'raise', 'drop_oldest'"),
        ({"batch_records": 0}, "at least 1"),
        ({"batch_delay": "soon"}, "batch_delay"),
        ({"cap": "20MiB"}, "at least two pages"),
        ({"prefix": "../escape"}, "is not a name"),
        ({"durabilty": "each"}, "unknown option 'durabilty': a journal has batch_delay, .* codec, durability, page"),
    ],
)
def test_a_wrong_setting_is_named(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=message):
        Journal.open(tmp_path / "new", **options)  # type: ignore[call-overload]  # wrong on purpose


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "new" / "journal") as journal:
        journal.append(1)
        journal.cursor("a")
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "new" / "journal").iterdir()}
    assert modes == {0o600}


def test_a_page_of_a_newer_format_is_refused_by_name(opened: Opening, disk: SimulatedDisk) -> None:
    from zlib import crc32  # noqa: PLC0415 - the checksum of this one header

    opened().append(b"a")
    disk = disk.rebooted(keep_unsynced=True)
    page = disk.names_seen[FOLDER / "journal-1.page"].seen
    page[8] = 2
    page[60 - 4 : 60] = crc32(page[: 60 - 4]).to_bytes(4, "little")
    with pytest.raises(JournalError, match="format 2"):
        opened(disk=disk)


@pytest.mark.parametrize("write", ["flush", "sync", "close"])
def test_a_journal_that_cannot_cut_a_part_of_a_write_takes_nothing_more(
    write: str, opened: Opening, disk: SimulatedDisk
) -> None:
    def uncut() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    journal = opened(durability="none", batch_delay="1h")
    journal.append(b"a")
    disk.room, disk.before_truncate = 10, uncut
    with pytest.raises(JournalFailed, match="a part of a write cannot be cut"):
        getattr(journal, write)()
    disk.room, disk.before_truncate = None, int
    with pytest.raises((JournalFailed, Closed)):
        journal.append(b"b")
