"""Several processes write the tables of one folder: one after the other, and no day is ever lost."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from typing import NoReturn

import pytest

from astyqueue.errors import AstyqueueError
from astyqueue.spark.pipeline import manifest
from astyqueue.spark.pipeline.folder_lock import FolderInUse, locked
from astyqueue.spark.pipeline.manifest import Manifest
from astyqueue.spark.pipeline.parquet_store import FilesLost, publish
from astyqueue.units import SECOND

ROOT = Path(__file__).parents[3]
DAY = Path("queue=emails", "day=2026-03-14")
OTHER_DAY = Path("queue=emails", "day=2026-03-15")
#: Adds numbers to the day's file one by one, as the batch job adds events to a day's files: read, stage, publish.
ADDING = """
import sys
from pathlib import Path
from uuid import uuid4
from astyqueue.spark.pipeline.folder_lock import locked
from astyqueue.spark.pipeline.parquet_store import publish
folder, day, numbers = Path(sys.argv[1]), Path(sys.argv[2]), range(int(sys.argv[3]), int(sys.argv[4]))
for number in numbers:
    with locked(folder, "batch", wait=None):
        known = [line for file in (folder / "events" / day).glob("*") for line in file.read_text().split()]
        staged = folder / "_staged" / uuid4().hex
        (staged / day).mkdir(parents=True)
        (staged / day / f"{uuid4().hex}.parquet").write_text(" ".join([*known, str(number)]))
        publish(staged, folder / "events", {day}, lasting=True)
"""
#: Takes the lock, says so, and holds it until it is killed.
HOLDING = """
import sys
from pathlib import Path
from astyqueue.spark.pipeline.folder_lock import locked
with locked(Path(sys.argv[1]), "batch"):
    print("held", flush=True)
    sys.stdin.read()
"""


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    """A process of its own that runs this."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def staged(folder: Path, *days: Path) -> Path:
    """A folder with a file for each of these days."""
    folder.mkdir()
    for day in days:
        (folder / day).mkdir(parents=True)
        (folder / day / f"{folder.name}.parquet").write_text("new")
    return folder


def contents(table: Path) -> dict[str, list[str]]:
    return {str(day.relative_to(table)): [file.read_text() for file in day.iterdir()] for day in table.glob("*/*")}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table that holds something of two days."""
    made = staged(tmp_path / "events", DAY, OTHER_DAY)
    for file in made.rglob("*.parquet"):
        file.write_text("old")
    return made


def test_processes_that_add_to_one_day_lose_nothing_of_each_other(tmp_path: Path) -> None:
    writers = [started(ADDING, tmp_path, DAY, first, first + 25) for first in (0, 25, 50)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    [held] = contents(tmp_path / "events").values()
    assert sorted(map(int, " ".join(held).split())) == list(range(75))


def test_who_writes_is_told_to_the_second_writer(tmp_path: Path) -> None:
    with started(HOLDING, tmp_path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        told = re.escape(f"written by process {holder.pid} on {socket.gethostname()}; nothing was changed")
        with pytest.raises(FolderInUse, match=told), locked(tmp_path, "batch"):
            pass
        with locked(tmp_path, "live"):
            pass
        holder.kill()


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    with started(HOLDING, tmp_path) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with locked(tmp_path, "batch"):
        pass


def test_a_folder_on_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> NoReturn:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    told = re.escape(f"{tmp_path} is on a file system without file locks (No locks available): keep it on another one")
    with pytest.raises(AstyqueueError, match=told), locked(tmp_path, "batch", wait=None):
        pass


def test_a_writer_that_may_wait_comes_next(tmp_path: Path) -> None:
    written: list[str] = []
    begun = Event()

    def second() -> None:
        begun.set()
        with locked(tmp_path, "batch", wait=60 * SECOND):
            written.append("second")

    with locked(tmp_path, "batch"):
        waiting = Thread(target=second)
        waiting.start()
        begun.wait()
        written.append("first")
    waiting.join()
    assert written == ["first", "second"]


def test_files_take_the_place_of_those_of_their_day(tmp_path: Path, table: Path) -> None:
    publish(staged(tmp_path / "staged", DAY), table, {DAY}, lasting=True)
    assert contents(table) == {str(DAY): ["new"], str(OTHER_DAY): ["old"]}


@pytest.mark.parametrize("lasting", [True, False])
def test_a_folder_of_new_files_that_was_removed_meanwhile_costs_no_day(
    tmp_path: Path, table: Path, *, lasting: bool
) -> None:
    before = contents(table)
    with pytest.raises(FilesLost, match="the table was left as it was"):
        publish(tmp_path / "staged", table, {DAY, OTHER_DAY}, lasting=lasting)
    assert contents(table) == before


def test_a_day_without_new_files_is_kept_in_a_table_that_cannot_be_built_again(tmp_path: Path, table: Path) -> None:
    before = contents(table)
    with pytest.raises(FilesLost, match=OTHER_DAY.name):
        publish(staged(tmp_path / "staged", DAY), table, {DAY, OTHER_DAY}, lasting=True)
    assert contents(table) == before


def test_a_day_whose_new_files_vanished_is_kept(tmp_path: Path, table: Path) -> None:
    before = contents(table)
    fresh = staged(tmp_path / "staged", DAY)
    (fresh / OTHER_DAY).mkdir()
    with pytest.raises(FilesLost, match=OTHER_DAY.name):
        publish(fresh, table, {DAY, OTHER_DAY}, lasting=False)
    assert contents(table) == before


def test_a_folder_that_is_made_is_its_owners_alone_and_so_is_all_in_it(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with locked(lake, "batch"):
        publish(staged(tmp_path / "staged", DAY), lake / "events", {DAY}, lasting=True)
        manifest.store(lake, Manifest())
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in lake.rglob("*") if path.is_file()}
    assert (stat.S_IMODE(lake.stat().st_mode), found) == (
        0o700,
        {"_batch.lock": 0o600, "_manifest.json": 0o600, "staged.parquet": 0o600},
    )


def test_who_may_read_a_folder_may_read_its_tables(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    lake.chmod(0o750)
    publish(staged(tmp_path / "staged", DAY), lake / "events", {DAY}, lasting=True)
    assert [stat.S_IMODE(file.stat().st_mode) for file in lake.rglob("*.parquet")] == [0o640]


def test_a_manifest_is_for_those_who_may_read_the_folder(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    modes = []
    for mode in (0o700, 0o750, 0o700):
        lake.mkdir(exist_ok=True)
        lake.chmod(mode)
        manifest.store(lake, Manifest())
        modes.append(stat.S_IMODE((lake / "_manifest.json").stat().st_mode))
    assert modes == [0o600, 0o640, 0o600]


def test_new_files_are_on_the_disk_before_old_ones_are_removed(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    rename, unlink, sync = Path.rename, Path.unlink, os.fsync

    def renamed(path: Path, target: Path) -> Path:
        steps.append(f"rename {path.name}")
        return rename(path, target)

    def unlinked(path: Path) -> None:
        steps.append(f"unlink {path.name}")
        unlink(path)

    def synced(descriptor: int) -> None:
        names = {path.stat().st_ino: path.name for path in (tmp_path, *tmp_path.rglob("*"))}
        steps.append(f"sync {names[os.fstat(descriptor).st_ino]}")
        sync(descriptor)

    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(Path, "unlink", unlinked)
    monkeypatch.setattr(os, "fsync", synced)
    publish(staged(tmp_path / "staged", DAY), table, {DAY}, lasting=True)
    file = "staged.parquet"
    moved = [f"sync {file}", f"rename {file}", f"sync {DAY.name}"]
    assert steps[:5] == [*moved, "unlink events.parquet", f"sync {DAY.name}"]
    assert {"sync queue=emails", "sync events"} <= set(steps[5:])


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("precious")
    (tmp_path / "_batch.lock").symlink_to(theirs)
    with pytest.raises(OSError, match="symbolic"), locked(tmp_path, "batch"):
        pass
    assert theirs.read_text() == "precious"


def test_a_table_without_rows_is_an_empty_folder(tmp_path: Path) -> None:
    publish(staged(tmp_path / "staged"), tmp_path / "schedules", set(), lasting=False)
    assert list((tmp_path / "schedules").iterdir()) == []


def test_a_day_of_which_nothing_is_left_is_removed_from_a_table_that_can_be_built_again(
    tmp_path: Path, table: Path
) -> None:
    publish(staged(tmp_path / "staged", DAY), table, {DAY, OTHER_DAY}, lasting=False)
    assert contents(table) == {str(DAY): ["new"]}
