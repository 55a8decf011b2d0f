"""What a process leaves that dies at any step of its forwarder, and what the next one makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from astyqueue import MessageQueue
from astyqueue.errors import Closed
from astyqueue.files import for_owner
from astyqueue.journal.disk import LocalDisk, LocalFile
from astyqueue.protocol.steps import Request
from astyqueue.store import Store
from astyqueue.testing.faults import Faulty
from astyqueue.units import SECOND
from tests.unit.spool.conftest import Gate
from tests.unit.spool.killed_producers import PROGRAM, consumed, on_sqlite

MESSAGES: Final = 3


class Stop:
    """A step at which a process stops for good, before or after it took place."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.steps = 0
        self.reached = threading.Event()
        self.released = threading.Event()
        self._at = at
        self._after = after

    def before(self) -> None:
        self.steps += 1
        if self.steps >= self._at and not (self.steps == self._at and self._after):
            self.stop()

    def after(self) -> None:
        if self.steps >= self._at:
            self.stop()

    def stop(self) -> None:
        self.reached.set()
        self.released.wait()
        message = "the process is dead"
        raise Closed(message)


class StoppingStore(Faulty):
    def __init__(self, store: Store, stop: Stop) -> None:
        super().__init__(store)
        self._stop = stop

    def perform(self, request: Request) -> object:
        self._stop.before()
        answer = super().perform(request)
        self._stop.after()
        return answer

    def close(self) -> None:
        """The test closes the store."""


class StoppingFile(LocalFile):
    def __init__(self, descriptor: int, stop: Stop) -> None:
        super().__init__(descriptor)
        self._stop = stop

    def write_at(self, offset: int, data: bytes) -> None:
        self._stop.before()
        super().write_at(offset, data)
        self._stop.after()


class StoppingDisk(LocalDisk):
    """Stops at a write to the forwarder's cursor."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> LocalFile:
        if not (path.name.endswith(".cursor") and create):
            return super().open(path, write=write, create=create)
        return StoppingFile(for_owner(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC), self._stop)


@contextmanager
def dying(queue: MessageQueue, stop: Stop) -> Iterator[bool]:
    """Wait until its process is at the step, then let go of its files as the system does when it is killed.

    False if it is never at this step, because all was forwarded before.
    """
    ended = threading.Event()

    def drain() -> None:
        with suppress(Closed):  # the process may die before this thread asks
            queue.spool.drain("20s")
        ended.set()
        stop.reached.set()

    draining = threading.Thread(target=drain)
    draining.start()
    stop.reached.wait(20)
    died = not ended.is_set()
    if died:
        queue.spool.abandon()
    try:
        yield died
    finally:
        stop.released.set()
        forwarder = queue.spool._forwarder  # noqa: SLF001 - a dead process does not close its spool, but its thread must end
        assert forwarder is not None
        assert forwarder.close(20 * SECOND)
        draining.join(20)
        queue.close()


def recovered(store: Gate, folder: Path) -> None:
    with MessageQueue.builder().store(store).name("emails").spool(folder).build() as queue:
        assert queue.spool.drain("20s")
        assert queue.spool.status().messages == 0


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize("after", [False, True])
def test_a_process_that_dies_at_a_request_of_its_forwarder_loses_and_doubles_nothing(
    *, after: bool, store: Gate, plain: MessageQueue, tmp_path: Path
) -> None:
    for at in range(1, 40):
        folder, stop = tmp_path / str(at), Stop(at, after=after)
        queue = MessageQueue.builder().store(StoppingStore(store, stop)).name("emails")
        with MessageQueue.builder().store(store).name("emails").spool(folder).build():
            pass  # the folder knows the queue, so that the forwarder makes the first request
        dead = queue.spool(folder, drain=0).build()
        dead.send_many([at, number] for number in range(MESSAGES))
        with dying(dead, stop) as died:
            found = consumed(plain)
            recovered(store, folder)
            assert [*found, *consumed(plain)] == [[at, number] for number in range(MESSAGES)]
        if not died:
            break
    assert 5 < at < 39


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize("after", [False, True])
def test_a_process_that_dies_as_it_saves_its_cursor_sends_the_batch_again_without_effect(
    *, after: bool, store: Gate, plain: MessageQueue, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop(2, after=after)  # the first write creates the cursor
    with monkeypatch.context() as patched:
        patched.setattr("astyqueue.spool.options.LocalDisk", lambda: StoppingDisk(stop))
        dead = MessageQueue.builder().store(store).name("emails").spool(folder, drain=0).build()
    dead.send_many(range(MESSAGES))
    with dying(dead, stop) as died:
        assert died
        assert consumed(plain) == list(range(MESSAGES))
        recovered(store, folder)
        assert consumed(plain) == []


def test_a_forked_child_has_a_journal_of_its_own(tmp_path: Path) -> None:
    url, folder = f"sqlite:///{tmp_path}/q.db", tmp_path / "spool"
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), "fork", url, str(folder)], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "1 2\n", ran.stderr
    with MessageQueue.builder().store(url).name("emails").build() as queue:
        assert sorted(map(str, consumed(queue))) == ["child", "parent"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("messages", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_a_producer_killed_twice_loses_and_doubles_nothing_over_an_outage(messages: int, tmp_path: Path) -> None:
    on_sqlite(tmp_path, messages).check()
