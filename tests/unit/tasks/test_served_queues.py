"""Which queues the worker of an app serves, with how many threads, and how many of their messages it claims ahead."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from astyqueue.errors import BadInput, NotFound
from astyqueue.observe import ObservedEvent
from astyqueue.observe.events import Claimed
from astyqueue.queue.connection import connect
from astyqueue.tasks import App
from astyqueue.testing import TimeMachine
from tests.support.places import Place
from tests.unit.dispatch.test_queues_of_patterns import watch_of
from tests.unit.tasks.test_worker import DEADLINE, Seen, app, seen

__all__ = ["app", "seen"]


class Claims:
    """Counts the messages that were claimed."""

    def __init__(self) -> None:
        self._claimed = threading.Semaphore(0)

    def observe(self, event: ObservedEvent) -> None:
        if isinstance(event, Claimed):
            self._claimed.release(len(event.messages))

    def wait_for(self, messages: int) -> None:
        for _ in range(messages):
            assert self._claimed.acquire(timeout=DEADLINE)


def test_one_queue_has_all_threads_although_there_might_be_a_default_one(app: App) -> None:
    eight = threading.Barrier(8)
    done = threading.Semaphore(0)

    @app.task(queue="emails")
    def welcome() -> None:
        eight.wait(DEADLINE)
        done.release()

    welcome.send_many(welcome.call() for _ in range(16))
    with app.worker(concurrency=8):
        for _ in range(16):
            assert done.acquire(timeout=DEADLINE)
    assert app.open("emails").stats.rejected == app.open("emails").stats.released == 0


def test_one_thread_is_enough_for_an_app_with_one_queue(app: App, seen: Seen) -> None:
    @app.task(queue="emails")
    def welcome() -> None:
        seen.note("welcome")

    welcome.send()
    with app.worker(concurrency=1):
        assert seen.first() == ["welcome"]


def test_the_default_queue_is_served_when_it_is_declared_or_used_or_the_only_one(place: Place) -> None:
    with App(place.url) as app:
        assert app.queues == ["default"]
        app.queue("emails")
        assert app.queues == ["emails"]
        app.task(lambda: None)
        assert app.queues == ["emails", "default"]


def test_a_worker_says_what_it_serves_with_how_many_threads(
    app: App, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "astyqueue.worker")
    for number in range(22):
        app.task(queue="emails", name=f"mail.{number:02}")(lambda: None)
    app.task(name="other")(lambda: None)
    with app.worker({"emails": 3, "default": 1}, concurrency=8):
        pass
    [ready] = [vars(record)["facts"] for record in caplog.records if vars(record).get("event") == "ready"]
    assert (ready["queues"], ready["threads"]) == ("emails:3,default", 8)
    assert ready["worker"] == ",".join(app.open(name).core.process.name for name in ("emails", "default"))
    assert ready["tasks"].startswith("mail.00,mail.01,")
    assert ready["tasks"].endswith(",mail.19,and 3 more")
    if place.kind == "sqlite":
        assert ready["store"].endswith("/work.db")


def test_a_queue_that_the_app_does_not_have_is_refused(app: App) -> None:
    with pytest.raises(BadInput, match="this app has no queue 'emials', it has emails"):
        app.worker({"emials": 3})


def test_one_thread_runs_the_tasks_of_all_queues(app: App, seen: Seen) -> None:
    for name in ("emails", "reports", "default"):
        app.task(queue=name, name=f"{name}.note")(lambda name=name: seen.note(name)).send()
    with app.worker(concurrency=1):
        assert sorted(map(str, seen.first(3))) == ["default", "emails", "reports"]


def test_a_pattern_stands_for_the_queues_of_the_store_that_match_and_every_task_runs_from_them(
    app: App, seen: Seen
) -> None:
    @app.task(queue="emails")
    def note(text: str) -> None:
        seen.note(text)

    note.send("not from here")
    for name in ("mail.one", "mail.two"):
        app.open(name).send({"args": [name], "kwargs": {}}, headers={"task": note.name})
    with app.worker({"mail.*": 2}) as worker:
        assert sorted(map(str, seen.first(2))) == ["mail.one", "mail.two"]
        assert sorted(queue.name for queue in worker.queues) == ["mail.one", "mail.two"]
    assert app.open("emails").counts().waiting == 1


def test_a_queue_that_its_app_opened_and_closed_joins_the_worker_of_a_pattern(
    place: Place, clock: TimeMachine, seen: Seen
) -> None:
    with App(place.url, clock=clock) as app:

        @app.task
        def note(text: str) -> None:
            seen.note(text)

        with app.worker(["mail.*"], concurrency=1) as worker:
            with app.open("mail.one") as queue:
                queue.send({"args": ["hello"], "kwargs": {}}, headers={"task": note.name})
            watch_of(worker).look()
            assert seen.first() == ["hello"]


@pytest.mark.parametrize("queues", ["emails", b"emails"])
def test_one_queue_in_the_place_of_several_is_refused(app: App, queues: Any) -> None:  # noqa: ANN401 - wrong types are the point
    with pytest.raises(
        BadInput, match=r'app\.worker serves several queues.*: give a list of them, such as \["emails"\]'
    ):
        app.worker(queues)


def test_a_weight_of_nothing_is_refused(app: App) -> None:
    with pytest.raises(BadInput, match="weight is 0"):
        app.worker({"emails": 0, "default": 1})


@pytest.mark.parametrize("queues", [["emails"], ["email*"]], ids=["by name", "by pattern"])
@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_worker_claims_as_many_messages_ahead_as_its_prefetch_says(
    place: Place, queues: list[str], prefetch: int
) -> None:
    claims, begun, go_on = Claims(), threading.Event(), threading.Event()
    with App(place.url, observers=[claims]) as app:

        @app.task(queue="emails")
        def hold() -> None:
            begun.set()
            assert go_on.wait(DEADLINE)

        hold.send_many(hold.call() for _ in range(10))
        with app.worker(queues, concurrency=1, prefetch=prefetch):
            assert begun.wait(DEADLINE)
            claims.wait_for(1 + prefetch)
            assert app.open("emails").counts().in_flight == 1 + prefetch
            go_on.set()


def test_a_worker_opens_a_queue_anew_that_was_dropped_since_its_app_opened_it(
    place: Place, clock: TimeMachine, seen: Seen
) -> None:
    with App(place.url, clock=clock) as app, connect(place.url, clock=clock) as another:

        @app.task(queue="emails")
        def welcome() -> None:
            seen.note("welcome")

        dropped = app.open("emails")
        another.existing_queue("emails").drop()
        clock.advance("11s")
        with pytest.raises(NotFound):
            dropped.send("to nobody")
        worker = app.worker(["emails"], max_messages=1)
        welcome.send()
        worker.run()
        assert (seen.notes, app.open("emails") is dropped) == (["welcome"], False)
