"""A rolling upgrade: senders and workers of the previous version and of this one share a store.

Beside a repeating message with a unique key the previous version fails clearly or does no harm: it never frees the key.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

from astyqueue import KeyTaken, MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.store import Slice
from astyqueue.triggers import Every
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.support.places import Place
from tests.upgrade import upgrade_process
from tests.upgrade.upgrade_process import KEY, QUEUE

pytestmark = pytest.mark.stores("sqlite", "cassandra")
#: The version to upgrade from: the last one whose processes refuse settings that they do not know.
PREVIOUS: Final = "e22f3c00195e358e4670cdc3c4b5b6d23b291191"
ROOT: Final = Path(__file__).parents[2]
CLOCK: Final = SystemClock()
PATIENCE: Final = 240 * SECOND
#: Messages that each sender sends unless `--upgraded` says otherwise: enough for both versions to send and work at the
#: same time; and with `--all-stores`.
MESSAGES: Final = 300
ALL_MESSAGES: Final = 1_000
#: Does operations in a process of the previous version; returns their outcomes.
RunsPrevious = Callable[..., list[str]]
#: Two of each version, before the first worker ends and after.
SENDERS: Final = 4


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The previous version, taken from the history of this repository; whole, because its tables may be in `schema`."""
    git = shutil.which("git") or "git"
    archive = subprocess.run([git, "archive", PREVIOUS], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the previous version is not in the history of this copy: {archive.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


@dataclass
class UpgradeProcesses:
    """The processes of one upgrade."""

    url: str
    folder: Path
    previous: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, version: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a process of this version; its standard error stream goes to a file."""
        what, *rest = arguments
        errors = (self.folder / "errors").open("ab")
        command = [sys.executable, str(Path(upgrade_process.__file__)), what, self.url, *rest]
        environment = {**os.environ, "PYTHONPATH": str(version), "PYTHONWARNINGS": "ignore"}
        with errors:
            pipe = subprocess.PIPE
            return subprocess.Popen(command, cwd=self.folder, env=environment, stdin=pipe, stdout=pipe, stderr=errors)

    def start_worker(self, version: Path) -> subprocess.Popen[bytes]:
        """Start a worker, and return when it is ready; it prints which version's package it has loaded."""
        worker = self.start(version, "work", str(self.folder / "journal"))
        self.workers.append(worker)
        assert worker.stdout is not None
        assert worker.stdout.readline().decode().strip() == str(version / "astyqueue"), self.errors()
        return worker

    def send(self, version: Path, first: int, count: int) -> subprocess.Popen[bytes]:
        return self.start(version, "send", str(first), str(count))

    def send_from(self, versions: list[Path], first: int, count: int) -> None:
        """Have each version send `count` messages, and wait until all are sent."""
        for sender in [self.send(version, first + place * count, count) for place, version in enumerate(versions)]:
            self.end(sender)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Have a process finish; it must do so without an error."""
        process.communicate(timeout=PATIENCE / SECOND)
        assert process.returncode == 0, self.errors()

    def errors(self) -> str:
        return (self.folder / "errors").read_text()

    def done(self) -> Counter[str]:
        journal = self.folder / "journal"
        return Counter(journal.read_text().splitlines() if journal.exists() else ())

    def wait_for(self, lines: int) -> None:
        """Block until the journal has this many lines."""
        wakeup, until = Wakeup(CLOCK), CLOCK.monotonic() + PATIENCE
        while (seen := self.done().total()) < lines:
            assert CLOCK.monotonic() < until, f"{seen} of {lines}; {self.errors()}"
            wakeup.wait(CLOCK.monotonic() + SECOND // 10)


@pytest.fixture
def processes(place: Place, previous: Path, tmp_path: Path) -> Iterator[UpgradeProcesses]:
    processes = UpgradeProcesses(place.url, tmp_path, previous)
    yield processes
    for worker in processes.workers:
        with worker:
            worker.kill()


@pytest.fixture
def messages(pytestconfig: pytest.Config) -> int:
    default = ALL_MESSAGES if pytestconfig.getoption("--all-stores") else MESSAGES
    return int(pytestconfig.getoption("--upgraded") or default)


def expected(count: int) -> Counter[str]:
    """The lines of the journal at the end: each message is done or rejected, once."""
    return Counter(
        f"{'rejected' if number % upgrade_process.KINDS == upgrade_process.REJECTED else 'done'} {number}"
        for number in range(count)
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", ["previous", pytest.param("new", marks=pytest.mark.full)])
@pytest.mark.every_store
def test_workers_and_senders_of_two_versions_share_a_queue(
    processes: UpgradeProcesses, messages: int, first: str
) -> None:
    """Whichever version made the queue: all is handled once, and no process of either version reports an error."""
    versions = [processes.previous, ROOT] if first == "previous" else [ROOT, processes.previous]
    for version in versions:
        processes.start_worker(version)
    processes.send_from(versions, 0, messages)
    with MessageQueue.builder().store(processes.url).name(upgrade_process.QUEUE).build() as queue:
        queue.configure(max_attempts=7)
        processes.end(processes.workers.pop(0))
        processes.send_from(versions, 2 * messages, messages)
        processes.wait_for(SENDERS * (messages + upgrade_process.FIRINGS))
        processes.end(processes.workers.pop())
        counts = queue.counts()
    done = processes.done()
    firings = Counter({line: number for line, number in done.items() if line.startswith("schedule")})
    assert done - firings == expected(SENDERS * messages)
    assert sorted(firings.values()) == SENDERS * [upgrade_process.FIRINGS]
    assert counts.total == counts.dead == SENDERS * messages // upgrade_process.KINDS
    # Those of handlers are indented, below the line that says what became of the message.
    printed = processes.errors()
    assert [line for line in printed.splitlines() if line.startswith("Traceback")] == [], printed
    assert "ERROR" not in processes.errors()


@pytest.fixture
def queue(place: Place) -> Iterator[MessageQueue]:
    with MessageQueue.builder().store(place.url).name(QUEUE).concurrency_shards(1).build() as opened:
        yield opened


@pytest.fixture
def previous_client_does(place: Place, previous: Path) -> RunsPrevious:
    """Does operations in a process of the previous version; returns their outcomes."""

    def run(*operations: str) -> list[str]:
        environment = {**os.environ, "PYTHONPATH": str(previous), "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, str(Path(upgrade_process.__file__)), "use", place.url, *operations]
        return subprocess.run(
            command, env=environment, capture_output=True, check=True, text=True, timeout=120
        ).stdout.split()

    return run


def keys(queue: MessageQueue) -> list[bytes]:
    return [column.value for column in queue.store.read((Slice(f"{QUEUE}:home:0", 1),))[0]]


def test_the_previous_version_neither_takes_nor_frees_the_key_and_says_so(
    queue: MessageQueue, previous_client_does: RunsPrevious
) -> None:
    queue.send("work", key=KEY, unique="reject", trigger=Every("1h"))
    held = keys(queue)
    assert previous_client_does("reject", "keep", "replace") == ["StoreCorrupt"] * 3
    assert previous_client_does("receive") == ["1"]
    assert keys(queue) == held
    with pytest.raises(KeyTaken):
        queue.send("work", key=KEY, unique="reject")


def test_the_previous_version_clears_runs_and_leaves_the_key(
    queue: MessageQueue, previous_client_does: RunsPrevious
) -> None:
    queue.send("work", key=KEY, unique="reject", trigger=Every("1h"))
    held = keys(queue)
    assert previous_client_does("clear") == ["1"]
    assert keys(queue) == held


@pytest.mark.every_store
def test_the_key_of_a_schedule_that_the_previous_version_removed_or_ended_is_taken_over(
    queue: MessageQueue, previous_client_does: RunsPrevious
) -> None:
    queue.send("work", key=KEY, unique="reject", trigger=Every("1h"))
    assert previous_client_does("stop", "reject") == ["True", "StoreCorrupt"]
    assert len(keys(queue)) == 1
    assert queue.send("again", key=KEY, unique="reject", trigger=Every("1h", count=1)).new
    assert previous_client_does("receive") == ["1"]
    assert queue.send("once more", key=KEY, unique="keep").new
