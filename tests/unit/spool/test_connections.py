"""Spools of connections and apps: one folder for all their queues, for threads and for tasks of an event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NamedTuple

import pytest

from astyqueue import aio
from astyqueue.errors import BadInput, BadSetting, Closed, StoreUnavailable
from astyqueue.queue.connection import connect
from astyqueue.spool import Spool, SpoolFolder, SpoolOptions
from astyqueue.spool.spool import ConnectionSpools
from astyqueue.tasks.app import App
from tests.unit.spool.conftest import bodies

DEADLINE: Final = 10


class Disk(NamedTuple):
    """A store in a file, and the folder of a spool in front of it."""

    file: Path
    spool: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.file}?synchronous=normal"

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nothing can open the store meanwhile."""
        aside = self.file.with_suffix(".aside")
        self.file.rename(aside)
        self.file.mkdir()
        yield
        self.file.rmdir()
        aside.rename(self.file)

    def delivered(self, queue: str, count: int) -> list[object]:
        with connect(self.url) as connection:
            return bodies(connection.queue(queue), count)

    def waiting(self, queue: str) -> int:
        return sum(one.messages for one in SpoolFolder(self.spool, queue).states())


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "q.db", tmp_path / "spool")


def test_queues_of_a_connection_are_opened_and_sent_to_while_the_store_is_away(disk: Disk) -> None:
    with connect(disk.url, spool=disk.spool) as connection:
        for name in ("emails", "orders"):
            connection.queue(name)
    with disk.away(), connect(disk.url, spool=disk.spool) as connection:
        connection.queue("emails").send("a")
        connection.queue("orders").send("b")
        with pytest.raises(StoreUnavailable):
            connection.queues()
    assert (disk.waiting("emails"), disk.waiting("orders")) == (1, 1)
    with connect(disk.url, spool=disk.spool) as connection:
        for name in ("emails", "orders"):
            connection.queue(name)
    assert (disk.waiting("emails"), disk.waiting("orders")) == (0, 0)
    assert (disk.delivered("emails", 1), disk.delivered("orders", 1)) == (["a"], ["b"])


def test_closing_a_connection_forwards_what_waits_and_ends_the_sends(disk: Disk) -> None:
    connection = connect(disk.url, spool=SpoolOptions.of(disk.spool, durability="each"))
    queue = connection.queue("emails")
    queue.send_many(range(2_000))
    connection.close()
    assert disk.waiting("emails") == 0
    with pytest.raises(Closed):
        queue.send("late")
    assert disk.delivered("emails", 2_000) == list(range(2_000))


def test_a_connection_whose_close_is_interrupted_while_its_spool_forwards_closes_its_store(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: ConnectionSpools) -> None:
        raise KeyboardInterrupt

    connection = connect(disk.url, spool=disk.spool)
    connection.queue("emails")
    with monkeypatch.context() as patched:
        patched.setattr(ConnectionSpools, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connection.close()
    with pytest.raises(Closed):
        connection.queues()
    connection.close()


def test_a_connection_of_tasks_whose_close_is_cancelled_while_its_spool_forwards_closes_its_store(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, closed = Event(), Event()

    def forward(_: Spool) -> None:
        closing.set()
        assert closed.wait(DEADLINE)

    async def scene() -> None:
        connection = await aio.connect(disk.url, spool=disk.spool)
        await connection.queue("emails")
        task = asyncio.create_task(connection.close())
        assert await asyncio.to_thread(closing.wait, DEADLINE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(Closed):
            await connection.queues()
        closed.set()

    monkeypatch.setattr(Spool, "close", forward)
    asyncio.run(scene())


def test_a_forked_child_forwards_what_it_sent_when_it_closes_the_connection(disk: Disk) -> None:
    connection = connect(disk.url, spool=disk.spool)
    queue = connection.queue("emails")
    queue.send("parent")
    child = os.fork()
    if child == 0:
        queue.send("child")
        connection.close()
        os._exit(disk.waiting("emails"))
    assert os.waitpid(child, 0)[1] == 0
    connection.close()
    assert sorted(map(str, disk.delivered("emails", 2))) == ["child", "parent"]


def test_a_malformed_url_or_spool_is_refused_at_once(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="unknown kind of store"):
        connect("nosql://there", spool=disk.spool)
    (tmp_path / "file").touch()
    with pytest.raises(BadSetting, match=r"the spool needs a folder, and .*/file is a file: name another one"):
        connect("memory://", spool=tmp_path / "file")
    with pytest.raises(BadSetting, match="the folder of the spool is empty: name a folder, such as /var/spool/shop"):
        connect("memory://", spool="")
    with pytest.raises(BadSetting, match="when_full"):
        SpoolOptions.of(disk.spool, when_full="hope")


def test_tasks_are_sent_while_the_store_is_away_and_the_next_process_of_the_app_forwards_all_of_them(
    disk: Disk,
) -> None:
    def program() -> App:
        app = App(disk.url, spool=disk.spool)
        app.task(name="welcome", queue="emails")(print)
        app.task(name="count", queue="numbers")(print)
        return app

    with program() as app:
        app.tasks["welcome"].send("first")  # type: ignore[attr-defined]  # tasks of an app for threads have it
        app.tasks["count"].send(1)  # type: ignore[attr-defined]  # the same
    with disk.away(), program() as app:
        app.tasks["welcome"].send("second")  # type: ignore[attr-defined]  # the same
        app.tasks["count"].send(2)  # type: ignore[attr-defined]  # the same
        with pytest.raises(BadInput, match="unique='reject' needs an answer of the store"):
            app.tasks["count"].using(unique="reject", key="once").send(3)  # type: ignore[attr-defined]  # the same
    assert (disk.waiting("emails"), disk.waiting("numbers")) == (1, 1)
    with program() as app:
        app.open("emails")
    assert (disk.waiting("emails"), disk.waiting("numbers")) == (0, 0)
    assert [len(disk.delivered(name, 2)) for name in ("emails", "numbers")] == [2, 2]


def test_messages_of_a_queue_that_the_app_no_longer_declares_are_reported_when_it_opens(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    with App(disk.url, spool=disk.spool) as app:
        for name in ("emails", "renamed", "empty"):
            app.task(name=name, queue=name)(print)
            app.open(name)
    with disk.away(), App(disk.url, spool=disk.spool) as app:
        app.task(name="renamed", queue="renamed")(print).send()
    caplog.clear()
    with App(disk.url, spool=disk.spool) as app:
        app.task(name="emails", queue="emails")(print).send()
        [line] = [one for one in caplog.messages if "undeclared" in one]
    assert line.startswith("spool_queue_undeclared queue=renamed messages=1")
    assert disk.waiting("renamed") == 1


def test_a_queue_that_an_app_cannot_open_does_not_keep_it_from_the_others(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("emails", "numbers", "orders")
    with App(disk.url, spool=disk.spool) as app:
        for name in names:
            app.open(name)
    with disk.away(), App(disk.url, spool=disk.spool) as app:
        for name in names:
            app.task(name=name, queue=name)(print).send()
    with App(disk.url, spool=disk.spool) as app:
        app.queue("numbers", priorities=3)
        app.queue("orders")
        app.task(name="emails", queue="emails")(print).send()
    [line] = [one for one in caplog.messages if "not_opened" in one]
    assert line.startswith("spool_queue_not_opened queue=numbers error=\"queue 'numbers' exists with another layout")
    assert "undeclared" not in caplog.text
    assert [disk.waiting(name) for name in names] == [0, 1, 0]


def test_a_connection_without_a_thread_for_each_spool_closes_all_of_them_and_the_store(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: Thread) -> None:
        message = f"can't start new thread: {thread.name}"
        raise RuntimeError(message)

    connection = connect(disk.url, spool=disk.spool)
    queues = [connection.queue(name) for name in ("emails", "orders")]
    for queue in queues:
        queue.send("a")
    with monkeypatch.context() as without_threads:
        without_threads.setattr(Thread, "start", refuse)
        connection.close()
    assert [disk.waiting(queue.name) for queue in queues] == [0, 0]
    assert not any(one.in_use for queue in queues for one in SpoolFolder(disk.spool, queue.name).states())
    with pytest.raises(Closed):
        connection.queues()


def test_the_folder_comes_from_the_environment_and_child_processes_get_it(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert App(disk.url).spool is None
    monkeypatch.setenv("ASTYQUEUE_SPOOL", str(disk.spool))
    with App(disk.url) as app:
        app.task(name="welcome")(print).send()
        assert app.core.environment == {"ASTYQUEUE_URL": disk.url, "ASTYQUEUE_SPOOL": str(disk.spool)}
        assert app.open().stats.spooled == 1
        with pytest.raises(BadInput, match="set its spool before the first send"):
            app.spool = disk.spool
    given = App(disk.url, spool=SpoolOptions.of(disk.spool, cap="4GiB"))
    assert given.spool is not None
    assert given.spool.cap == 4 << 30


def test_a_relative_folder_stays_where_it_was_when_the_process_changes_its_directory(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = SpoolOptions.of("spool", drain=0)
    with connect(disk.url, spool=options) as connection:
        connection.queue("emails")
    with disk.away(), connect(disk.url, spool=options) as connection:
        connection.queue("emails").send("a")
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    assert disk.waiting("emails") == 1
    with connect(disk.url, spool=options) as connection:
        assert connection.queue("emails").spool.drain("20s")
    assert (disk.waiting("emails"), list(elsewhere.iterdir())) == (0, [])
    assert disk.delivered("emails", 1) == ["a"]


def test_child_processes_of_an_app_get_its_relative_folder_as_an_absolute_one(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = App(disk.url, spool="spool")
    monkeypatch.setenv("ASTYQUEUE_SPOOL", "spool")
    with App(disk.url) as of_environment:
        of_environment.open()
        (elsewhere := tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(elsewhere)
        for app in (named, of_environment):
            assert app.core.environment["ASTYQUEUE_SPOOL"] == str(disk.spool)


def test_a_queue_that_was_created_again_is_sent_to_by_a_spool_of_its_own(disk: Disk) -> None:
    with App(disk.url, spool=disk.spool) as app, connect(disk.url) as other:
        before = app.open()
        other.queue("default").drop()
        other.queue("default", priorities=3)
        after = app.core.open_again("default")
        assert after.settings.layout.priorities == 3
        with pytest.raises(Closed):
            before.send("lost")
        after.send("kept", priority=2)
    assert disk.delivered("default", 1) == ["kept"]


def _played(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), timeout=60))


def test_connections_of_tasks_send_into_a_spool(disk: Disk) -> None:
    async def scene() -> None:
        async with await aio.connect(disk.url, spool=disk.spool) as connection:
            queue = await connection.queue("emails")
            await queue.send_many(range(700))
            connection.blocking.queue("emails").send(700)
        assert disk.waiting("emails") == 0

    _played(scene)
    assert sorted(map(int, map(str, disk.delivered("emails", 701)))) == list(range(701))


def test_an_app_for_tasks_sends_while_the_store_is_away(disk: Disk) -> None:
    app = aio.App(disk.url, spool=disk.spool)

    @app.task
    def welcome(name: str) -> None: ...

    async def scene() -> None:
        async with app:
            await welcome.send("first")

    async def outage() -> None:
        async with aio.App(disk.url, spool=disk.spool) as other:
            await other.task(name="welcome")(print).send("second")
            with pytest.raises(BadInput, match="needs an answer of the store"):
                await other.task(name="once")(print).using(unique="reject", key="once").send()

    _played(scene)
    with disk.away():
        _played(outage)
    assert disk.waiting("default") == 1
    with App(disk.url, spool=disk.spool) as restarted:
        assert restarted.open().spool.drain("20s")
    assert len(disk.delivered("default", 2)) == 2
