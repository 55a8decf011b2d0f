"""The queues of an app and the connection they share: opened when they are first used, by one thread of a process."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from astyqueue.errors import Closed
from astyqueue.queue.connection import Connection, connect
from astyqueue.tasks import base_app
from astyqueue.tasks.app import App
from tests.support.forks import beside_threads, in_a_fork
from tests.unit.tasks.test_app import app

__all__ = ["app"]


def test_a_closed_app_sends_nothing(app: App) -> None:
    @app.task
    def welcome() -> None: ...

    welcome.send()
    app.close()
    with pytest.raises(Closed, match="this app was closed"):
        welcome.send()


def test_a_queue_that_was_closed_is_opened_again_by_what_uses_it_next(app: App) -> None:
    @app.task(queue="emails")
    def welcome() -> None: ...

    welcome.send()
    with app.open("emails") as queue:
        assert queue.counts().waiting == 1
    welcome.send()
    assert app.open("emails").counts().waiting == 2
    assert app.open("emails") is app.open("emails")


@beside_threads
def test_a_forked_child_opens_a_queue_although_a_thread_of_its_parent_was_opening_one(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def welcome() -> None: ...

    opening, forked = threading.Event(), threading.Event()
    parent = os.getpid()

    def connects(url: str, **options: object) -> Connection:
        if os.getpid() == parent:
            opening.set()
            assert forked.wait(60)
        return connect(url, **options)  # type: ignore[arg-type]  # as the app gives them

    def sends() -> bool:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # ends a child that waits for a lock which no thread of it has
        return welcome.send().new

    monkeypatch.setattr(base_app, "connect", connects)
    other = threading.Thread(target=app.open)
    other.start()
    assert opening.wait(60)
    held = in_a_fork(sends)
    forked.set()
    other.join()
    assert held


def test_two_threads_that_open_the_store_at_once_share_one_connection(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of a pattern lists the queues of the store while another thread sends."""
    made: list[Connection] = []
    again = threading.Event()
    other = threading.Thread(target=app.core.connected)

    def connects(url: str, **options: object) -> Connection:
        if made:
            again.set()
        made.append(connect(url, **options))  # type: ignore[arg-type]  # as the app gives them
        if len(made) == 1:
            other.start()
            again.wait(0.2)  # in vain: the other thread waits for this one
        return made[-1]

    monkeypatch.setattr(base_app, "connect", connects)
    opened = app.open("emails")
    other.join()
    assert [one.store for one in made] == [opened.store]
