"""Tasks on their way through a worker in this process."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Unpack, cast

import pytest

from astyqueue import aio
from astyqueue.dispatch.processes.forwarded_delivery import Values, arrived, crossing
from astyqueue.errors import BadInput, BadSetting, NotFound, Reject, Retry
from astyqueue.model.views import DeadLetter
from astyqueue.queue.delivery.base_delivery import running
from astyqueue.tasks import App, current_delivery
from astyqueue.tasks.app_worker import WorkerOptions
from tests.support.places import Place
from tests.unit.tasks import child_tasks

#: Seconds within which a task must have run; only a failing test takes this long.
DEADLINE = 60


class Seen:
    """What tasks did, and when there was enough of it."""

    def __init__(self) -> None:
        self.notes: list[object] = []
        self._enough = threading.Semaphore(0)

    def note(self, what: object) -> None:
        self.notes.append(what)
        self._enough.release()

    def first(self, count: int = 1) -> list[object]:
        """The first `count`, once they are there."""
        for _ in range(count):
            assert self._enough.acquire(timeout=DEADLINE)
        return self.notes


@pytest.fixture
def app(place: Place) -> Iterator[App]:
    with App(place.url) as app:
        app.queue("emails", backoff=0)
        yield app


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def dead(app: App) -> Callable[[], list[DeadLetter]]:
    """The dead letters of queue `emails`."""
    return lambda: app.open("emails").dead_letters()


@pytest.mark.every_store
def test_a_worker_makes_the_call_that_was_sent(app: App, seen: Seen) -> None:
    @app.task
    def welcome(address: str, lang: str = "en") -> None:
        seen.note((address, lang))

    welcome.send_many([welcome.call("ada"), welcome.call("bob", lang="fr")])
    with app.worker():
        assert sorted(map(str, seen.first(2))) == ["('ada', 'en')", "('bob', 'fr')"]
    assert app.open().counts().total == 0


def test_an_async_task_runs_to_its_end(app: App, seen: Seen) -> None:
    @app.task
    async def welcome(address: str) -> None:
        seen.note((address, current_delivery().attempt))

    welcome.send("ada")
    with app.worker():
        assert seen.first() == [("ada", 1)]
    assert app.open().counts().total == 0


def test_async_tasks_of_a_worker_share_one_event_loop(app: App, seen: Seen) -> None:
    @app.task
    async def welcome(number: int) -> None:
        delivery = aio.current_delivery()
        assert await delivery.extend("1h") == delivery.lease_until
        seen.note((number, id(asyncio.get_running_loop())))

    welcome.send_many(welcome.call(number) for number in range(20))
    with app.worker():
        notes = seen.first(20)
    assert len({loop for _, loop in cast("list[tuple[int, int]]", notes)}) == 1
    assert app.open().counts().total == 0


def test_a_plain_task_has_no_delivery_to_await(app: App, seen: Seen) -> None:
    @app.task
    def welcome() -> None:
        with pytest.raises(NotFound, match="not async"):
            aio.current_delivery()
        seen.note("refused")

    welcome.send()
    with app.worker():
        assert seen.first() == ["refused"]


def test_a_task_runs_in_a_child_process_which_may_send_others(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with child_tasks.app as app:
        app.url = f"sqlite:///{tmp_path}/work.db"
        child_tasks.write_down.send(str(notes), "first")
        app.worker(processes=1, max_messages=2).run()
        assert app.open().counts().total == 0
    (first, one, _), (second, other, _) = (line.split() for line in notes.read_text(encoding="utf-8").splitlines())
    assert (first, one) == (second, other)
    assert int(first) != os.getpid()


def never(call: str, _: Values) -> Values:
    raise AssertionError(call)


def test_a_task_in_a_child_process_is_told_how_to_send_a_call_to_another_queue(app: App) -> None:
    @app.task(queue="elsewhere", name="bill")
    def bill() -> None:
        pass

    app.open("emails").send("one")
    [delivery] = app.open("emails").receive(1)
    with running(arrived(crossing(delivery), ask=never)), pytest.raises(BadInput) as caught:
        bill.then()
    assert str(caught.value) == (
        "a task in a process sends follow-ups to its own queue only, and bill has queue elsewhere: "
        'run this task with kind="thread", or use send, which does not wait for the ack'
    )
    assert "elsewhere" not in app.core.connected().queues()


def test_the_child_processes_of_a_worker_are_replaced_as_its_options_say(tmp_path: Path) -> None:
    def children(notes: Path, **options: Unpack[WorkerOptions]) -> int:
        """The number of processes that handle three messages."""
        child_tasks.note_process.send_many(child_tasks.note_process.call(str(notes)) for _ in range(3))
        child_tasks.replaced.worker(**options).run()
        return len(set(notes.read_text(encoding="utf-8").split()))

    with child_tasks.replaced as app:
        app.url = f"sqlite:///{tmp_path}/work.db"
        assert children(tmp_path / "kept", processes=1, max_messages=3) == 1
        assert children(tmp_path / "number", processes=1, max_messages=3, max_messages_per_child=2) == 2
        assert children(tmp_path / "size", processes=1, max_messages=3, max_child_rss=1) == 3


def test_the_time_after_which_a_blocked_loop_is_logged_is_checked(app: App) -> None:
    with pytest.raises(BadInput, match="'soon' is not a duration"):
        app.worker(blocked_after="soon")
    with pytest.raises(BadSetting, match=r"blocked_after is .*: give at least 1ms"):
        app.worker(blocked_after=0)


def test_whether_a_worker_fires_schedules_is_true_or_false(app: App) -> None:
    with pytest.raises(BadSetting, match="schedules is None: give True or False"):
        app.worker(schedules=None)  # type: ignore[arg-type]  # that is the point


def test_a_task_that_a_child_could_not_import_is_refused_when_the_worker_is_made(app: App) -> None:
    @app.task(kind="process")
    def hidden() -> None:
        """Nothing."""

    with pytest.raises(BadSetting, match="imports it by name"):
        app.worker()


def test_a_task_can_ask_for_the_delivery_it_runs_for(app: App, seen: Seen) -> None:
    @app.task
    def welcome() -> None:
        seen.note(current_delivery().message_id)

    sent = welcome.send()
    with app.worker():
        assert seen.first() == [sent.id]


@pytest.mark.every_store
def test_a_task_that_fails_is_tried_as_often_as_it_says(
    app: App, seen: Seen, dead: Callable[[], list[DeadLetter]]
) -> None:
    @app.task(queue="emails", max_attempts=3)
    def welcome() -> None:
        seen.note(current_delivery().attempt)
        message = "no such address"
        raise ValueError(message)

    welcome.send()
    with app.worker(["emails"]):
        assert seen.first(3) == [1, 2, 3]
    [letter] = dead()
    assert (letter.reason, letter.attempts) == ("ValueError: no such address", 3)


def test_one_call_may_say_how_often_it_is_tried(app: App, seen: Seen, dead: Callable[[], list[DeadLetter]]) -> None:
    @app.task(queue="emails", max_attempts=3)
    def welcome() -> None:
        seen.note("tried")
        raise Retry(0)

    welcome.using(max_attempts=1).send()
    with app.worker(["emails"]):
        seen.first()
    assert [letter.attempts for letter in dead()] == [1]


def test_a_task_may_reject_its_message(app: App, seen: Seen, dead: Callable[[], list[DeadLetter]]) -> None:
    @app.task(queue="emails")
    async def welcome() -> None:
        seen.note("tried")
        reason = "no longer wanted"
        raise Reject(reason)

    welcome.send()
    with app.worker(["emails"]):
        seen.first()
    assert [(letter.kind, letter.reason) for letter in dead()] == [("rejected", "no longer wanted")]


def test_a_task_that_takes_too_long_has_failed(app: App, seen: Seen, dead: Callable[[], list[DeadLetter]]) -> None:
    gate = threading.Event()

    @app.task(queue="emails", timeout="50ms", max_attempts=1)
    def welcome() -> None:
        seen.note("begun")
        gate.wait(DEADLINE)

    welcome.send()
    with app.worker(["emails"]) as worker:
        seen.first()
        worker.drain("2s")
    gate.set()
    assert [letter.reason.split(":")[0] for letter in dead()] == ["TimeoutError"]


def run_with_body(app: App, body: object) -> None:
    """Send this body to a task that is known, and have a worker come to the message behind it."""
    done = threading.Event()

    @app.task(queue="emails", name="welcome")
    def welcome() -> None: ...

    @app.task(queue="emails", name="after")
    def after() -> None:
        done.set()

    app.open("emails").send(body, headers={"task": "welcome"})
    after.send()
    with app.worker(["emails"], concurrency=1):
        assert done.wait(DEADLINE)


def test_a_body_that_is_no_call_is_rejected_with_what_it_was(app: App, dead: Callable[[], list[DeadLetter]]) -> None:
    run_with_body(app, ["ada"])
    [letter] = dead()
    assert letter.kind == "rejected"
    assert "not a call of a task" in letter.reason
    assert letter.reason.endswith(", but a list of 1")


CARD = "4111-1111"


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ({"card": CARD, CARD: 1}, "an object of 2 keys"),
        (
            {"args": {"card": CARD}, "kwargs": CARD},
            "an object of 2 keys, its args an object of 1 keys, its kwargs text of 9 characters",
        ),
        (
            {"args": [CARD], "kwargs": {}, CARD: 1},
            "an object of 3 keys, its args a list of 1, its kwargs an object of 0 keys",
        ),
        ([CARD] * 3, "a list of 3"),
        (CARD, "text of 9 characters"),
        (411111111111, "a number"),
        (41111111.1111, "a number"),
        (False, "true or false"),
        (None, "null"),
    ],
)
def test_of_a_body_that_is_no_call_only_its_shape_is_logged_and_kept(
    app: App, dead: Callable[[], list[DeadLetter]], caplog: pytest.LogCaptureFixture, body: object, shape: str
) -> None:
    caplog.set_level(logging.DEBUG)
    queue = app.open("emails")
    queue.configure(history="all")
    run_with_body(app, body)
    [letter] = dead()
    assert letter.reason.endswith(f", but {shape}")
    formatter = logging.Formatter("%(message)s")
    told = [*map(formatter.format, caplog.records), *(str(event.as_json()) for event in queue.history()), letter.reason]
    assert not [text for text in told if "41111111" in text.replace("-", "")]


def test_a_task_that_is_not_known_here_is_parked(app: App, seen: Seen) -> None:
    @app.task(queue="emails")
    def known() -> None:
        seen.note("known")

    app.open("emails").send({"args": [], "kwargs": {}}, headers={"task": "unknown"})
    known.send()
    with app.worker(["emails"], concurrency=1):
        seen.first()
    assert app.open("emails").counts().parked == 1


def test_a_result_that_nobody_takes_is_reported_for_debugging(
    app: App, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "astyqueue.tasks")

    @app.task(name="double")
    def double(number: int) -> int:
        seen.note(number)
        return 2 * number

    sent = double.send(21)
    with app.worker():
        seen.first()
    assert f"dropped the result of task=double id={sent.id}" in caplog.text


def yielding() -> Iterator[int]:
    yield 1


async def yielding_later() -> AsyncIterator[int]:
    yield 1


class Postponed:
    """As a future is: something to be awaited."""

    def __await__(self) -> Iterator[None]:
        yield


async def giving_away() -> Iterator[int]:
    return yielding()


def returning_one() -> Iterator[int]:
    return yielding()


def returning_one_for_later() -> AsyncIterator[int]:
    return yielding_later()


async def awaited() -> None: ...


@functools.wraps(awaited)
def decorated() -> object:
    """An `async def` task under a decorator that is not: what it is shows only when it is called."""
    return awaited()


@pytest.mark.parametrize("work", [returning_one, returning_one_for_later, Postponed, giving_away, decorated])
def test_a_task_whose_result_shows_that_nothing_was_done_yet_has_failed(
    app: App, dead: Callable[[], list[DeadLetter]], work: Callable[[], object]
) -> None:
    app.task(queue="emails", name="work", max_attempts=1)(work).send()
    app.worker(["emails"], concurrency=1, max_messages=1).run()
    assert ["so no work was done" in letter.reason for letter in dead()] == [True]


@pytest.mark.every_store
def test_a_task_sends_calls_that_go_with_its_ack(app: App, seen: Seen) -> None:
    @app.task
    def order(number: int) -> None:
        bill.then(number)
        mail.using(key=f"order {number}").then(number)

    @app.task
    def bill(number: int) -> None:
        seen.note(("bill", number))

    @app.task(queue="mail")
    async def mail(number: int) -> None:
        seen.note((aio.current_delivery().key, number))
        bill.then(number + 1)

    order.send(7)
    with app.worker(["default", "mail"]):
        assert sorted(map(str, seen.first(3))) == ["('bill', 7)", "('bill', 8)", "('order 7', 7)"]
    assert app.open().counts().total == 0
    with pytest.raises(NotFound):
        bill.then(1)
