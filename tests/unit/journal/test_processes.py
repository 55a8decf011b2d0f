"""Real processes: a writer that is killed with SIGKILL, and readers beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from astyqueue.findings import Severity
from astyqueue.journal import BYTES, Journal, ReadOnlyJournal
from astyqueue.journal_errors import JournalInUse

PROGRAM: Final = Path(__file__).with_name("journal_process.py")


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, str(PROGRAM), *words], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def acknowledged(process: subprocess.Popen[str], lines: int) -> int:
    assert process.stdout is not None
    return int([process.stdout.readline() for _ in range(lines)][-1])


def test_a_relative_folder_stays_the_same_folder_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Journal.open("journal", codec=BYTES, page_size=256) as journal:
        other = ReadOnlyJournal.open("journal", codec=BYTES)
        monkeypatch.chdir("elsewhere")
        values = [b"x" * 90] * 4
        journal.append_many(values)
        journal.cursor("mail").commit(next(journal.read()))
        assert [record.value for record in journal.read()] == values
        assert [record.value for record in other.read()] == values
        assert other.stat().pages == len(values)
    assert list(tmp_path.glob("elsewhere/*")) == []


@pytest.mark.parametrize("durability", ["none", "batch", "each"])
def test_a_writer_killed_at_any_moment_loses_nothing_that_it_acknowledged(durability: str, tmp_path: Path) -> None:
    ends = [0]
    for kill in range(4):
        with started("write", str(tmp_path), durability) as process:
            known = acknowledged(process, 7 + 11 * kill)
            with pytest.raises(JournalInUse, match=f"process {process.pid}"):
                Journal.open(tmp_path)
            process.kill()
            process.wait()
            assert process.stdout is not None
            known = max([known, *(int(line) for line in process.stdout if line.endswith("\n"))])
        with ReadOnlyJournal.open(tmp_path, codec=BYTES) as other:
            records = list(other.read())
            assert records[-1].sequence >= known
            ends.append(records[-1].sequence)
        with Journal.open(tmp_path, codec=BYTES) as journal:
            sequences = [record.sequence for record in journal.read()]
            assert sequences == sorted(set(sequences))
            # A write that the kill tore leaves bytes behind the last record, whose sequences are left out.
            missing = set(range(1, ends[-1] + 1)) - set(sequences)
            assert all(sequence - 1 in {*ends[:-1], *missing} for sequence in missing)
            assert all(int(r.value.split()[0]) == r.sequence - 1 for r in records)
            assert all(len(r.value) == len(b"%d " % (r.sequence - 1)) + (r.sequence - 1) * 37 % 300 for r in records)
            assert [finding.severity for finding in journal.verify()] == [Severity.OK]


def test_a_reader_in_another_process_follows_over_pages_and_a_new_writer(tmp_path: Path) -> None:
    with Journal.open(tmp_path, codec=BYTES, page_size="4KiB") as journal:
        journal.append_many(b"%d " % number for number in range(300))
    with started("follow", str(tmp_path)) as process:
        assert process.stdout is not None
        for number in range(300):
            assert process.stdout.readline() == f"{number + 1} {number}\n"
        with Journal.open(tmp_path, codec=BYTES, durability="batch") as journal:
            for number in range(300, 700):
                journal.append(b"%d " % number)
            for number in range(300, 700):
                assert process.stdout.readline() == f"{number + 1} {number}\n"


@contextmanager
def forked(work: Callable[[], object]) -> Iterator[None]:
    """A child that does this and then lives on until the block ends."""
    done, ends = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ends[1])
        work()
        os.write(done[1], b"done")
        os.read(ends[0], 1)
        os._exit(0)
    os.close(done[1])
    try:
        assert os.read(done[0], 4) == b"done"
        yield
    finally:
        for end in (done[0], *ends):
            os.close(end)
        os.waitpid(child, 0)


@pytest.mark.filterwarnings(
    "ignore:This process:DeprecationWarning"
)  # Python 3.12 warns of what is shown to be safe here
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_abandoned_journal_of_a_forked_child_keeps_no_page_and_no_lock(elsewhere: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    with Journal.open(tmp_path, codec=BYTES, page_size=256, durability="each") as journal:
        journal.append_many([b"x" * 90] * 4)
        other = ReadOnlyJournal.open(tmp_path, codec=BYTES) if elsewhere else journal
        cursor = other.cursor("mail")
        reader = other.read(cursor=cursor)
        with forked(other.abandon):
            for _ in range(3):
                cursor.commit(next(reader))
            reader.close()
            assert journal.reclaim() == 3
            cursor.close()
            assert journal.cursor("mail").position is not None
            journal.close()
            if not elsewhere:
                Journal.open(tmp_path).close()


LOSES_AT_EXIT: Final = """
import resource, sys
from astyqueue.journal import BYTES, Journal
journal = Journal.open(sys.argv[1], codec=BYTES, durability="batch", batch_delay="1h")
journal.append(b"kept")
journal.sync()
journal.append(b"lost")
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
"""


def test_records_that_the_disk_does_not_take_when_the_program_ends_are_logged(tmp_path: Path) -> None:
    program = [sys.executable, "-c", LOSES_AT_EXIT, str(tmp_path)]
    done = subprocess.run(program, stderr=subprocess.PIPE, text=True, timeout=60, check=True)
    [told] = [line for line in done.stderr.splitlines() if line.startswith("journal_records_lost_at_exit ")]
    assert "File too large" in told
    with Journal.open(tmp_path, codec=BYTES) as journal:
        assert [record.value for record in journal.read()] == [b"kept"]
