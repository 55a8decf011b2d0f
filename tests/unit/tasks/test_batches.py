"""Tasks that run for many calls at once, each of which is settled apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from astyqueue import BatchedCall, aio, current_delivery
from astyqueue.errors import BadInput, BadSetting, NotFound
from astyqueue.tasks import App
from astyqueue.tasks.awaited.app import App as AwaitedApp
from tests.support.places import Place


@pytest.fixture
def app(place: Place) -> Iterator[App]:
    with App(place.url) as app:
        app.queue("rows", backoff=0)
        yield app


def run(app: App, messages: int) -> None:
    """Run a worker that ends after this number of messages."""
    app.worker(max_messages=messages).run()


@pytest.mark.every_store
def test_a_task_gets_the_calls_of_a_batch(app: App) -> None:
    batches: list[list[str]] = []

    @app.task(queue="rows", batch=(3, "1h"))
    def insert(calls: list[BatchedCall[str]]) -> None:
        batches.append([call.argument for call in calls])

    insert.send_many(insert.call(text) for text in "abcdef")
    run(app, 6)
    assert [len(each) for each in batches] == [3, 3]
    assert sorted(argument for each in batches for argument in each) == [*"abcdef"]
    assert app.open("rows").counts().total == 0


def test_each_call_is_settled_apart(app: App) -> None:
    @app.task(queue="rows", batch=(4, "1h"), max_attempts=1)
    def insert(calls: list[BatchedCall[int]]) -> None:
        for call in calls:
            if call.argument == 1:
                call.delivery.ack()
            elif call.argument == 2:
                call.delivery.reject("unwanted")
        message = "the others"
        raise ValueError(message)

    insert.send_many(insert.call(number) for number in range(4))
    run(app, 4)
    dead = app.open("rows").dead_letters()
    assert sorted(one.reason for one in dead) == ["ValueError: the others"] * 2 + ["unwanted"]


def test_an_async_task_gets_batches_on_the_event_loop(app: App) -> None:
    batches: list[list[int]] = []

    @app.task(queue="rows", batch=(2, "1h"))
    async def insert(calls: list[aio.BatchedCall[int]]) -> None:
        batches.append([call.argument for call in calls])
        await calls[0].delivery.extend("1h")

    insert.send_many(insert.call(number) for number in range(4))
    run(app, 4)
    assert [len(each) for each in batches] == [2, 2]
    assert app.open("rows").counts().total == 0


@pytest.mark.parametrize("awaited", [False, True], ids=["thread", "asyncio"])
def test_a_batch_has_a_delivery_for_each_call_and_no_current_one(app: App, *, awaited: bool) -> None:
    told, followed = list[str](), list[int]()

    def insert(calls: list[BatchedCall[int]]) -> None:
        for refused in (lambda: after.then(1), current_delivery, aio.current_delivery):
            with pytest.raises(NotFound) as caught:
                refused()
            told.append(str(caught.value))
        for call in calls:
            call.delivery.then(after.message(call.argument))

    async def insert_awaited(calls: list[aio.BatchedCall[int]]) -> None:
        insert(calls)  # type: ignore[arg-type]  # `then` is the same for both

    function: Callable[..., object] = insert_awaited if awaited else insert
    task = app.task(queue="rows", name="insert", batch=(2, "1h"))(function)

    @app.task(queue="rows")
    def after(number: int) -> None:
        followed.append(number)

    task.send_many(task.call(number) for number in (1, 2))
    run(app, 4)
    assert sorted(followed) == [1, 2]
    assert (
        told
        == [
            (
                "a batch has no current delivery, each call has its own: use call.delivery; a follow-up is "
                "call.delivery.then(task.message(...)), with queue= for another queue"
            )
        ]
        * 3
    )


def test_a_worker_of_an_awaited_app_runs_batches_in_the_loop_of_its_caller(place: Place) -> None:
    batches: list[list[int]] = []
    loops: list[asyncio.AbstractEventLoop] = []
    app = AwaitedApp(place.url)

    @app.task(batch=(2, "1h"))
    async def insert(calls: list[aio.BatchedCall[int]]) -> None:
        batches.append(sorted(call.argument for call in calls))
        loops.append(asyncio.get_running_loop())

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await insert.send_many(insert.call(number) for number in range(2))
        worker = await app.worker(max_messages=2)
        await worker.run()
        await app.close()

    asyncio.run(serve())
    assert batches == [[0, 1]]
    assert loops[0] is loops[1]


def test_single_calls_batches_and_async_tasks_of_one_queue_run_side_by_side(app: App) -> None:
    seen: list[object] = []

    @app.task(queue="rows", batch=(2, "1h"))
    def insert(calls: list[BatchedCall[int]]) -> None:
        seen.append(len(calls))

    @app.task(queue="rows")
    def note(text: str) -> None:
        seen.append(text)

    @app.task(queue="rows")
    async def note_later(text: str) -> None:
        seen.append(text)

    for number in range(2):
        insert.send(number)
        note.send("plain")
        note_later.send("later")
    run(app, 6)
    assert sorted(map(str, seen)) == ["2", "later", "later", "plain", "plain"]


def test_a_worker_of_a_pattern_runs_them_with_a_thread_in_each_queue_that_has_some(app: App) -> None:
    seen: list[list[int]] = []

    @app.task(queue="rows", batch=(2, "1h"))
    def insert(calls: list[BatchedCall[int]]) -> None:
        seen.append([call.argument for call in calls])

    @app.task(queue="row2")
    def other() -> None: ...

    app.open("row2")
    insert.send_many(insert.call(number) for number in range(2))
    worker = app.worker(["row*"], max_messages=2, concurrency=1)
    worker.run()
    assert [sorted(each) for each in seen] == [[0, 1]]
    assert sum("handle" in thread.name for thread in worker.threads) == 2


@pytest.mark.parametrize("awaited", [False, True], ids=["thread", "asyncio"])
def test_a_body_that_is_no_such_call_is_rejected_and_the_others_go_on(app: App, *, awaited: bool) -> None:
    seen: list[object] = []
    called: list[int] = []

    def insert(calls: list[BatchedCall[int]]) -> None:
        called.append(len(calls))
        seen.extend(call.argument for call in calls)

    async def insert_awaited(calls: list[BatchedCall[int]]) -> None:
        insert(calls)

    function: Callable[..., object] = insert_awaited if awaited else insert
    task = app.task(name="insert", queue="rows", batch=(4, "1h"))(function)
    queue = app.open("rows")
    for body in ("no call", {"args": [1, 2], "kwargs": {}}, {"args": [], "kwargs": {"argument": 3}}):
        queue.send(body, headers={"task": "insert"})
    task.send(4)
    run(app, 4)
    assert sorted(map(str, seen)) == ["3", "4"]
    first, second = sorted(one.reason for one in queue.dead_letters())
    assert first.startswith("a task that handles batches takes one argument for each call: too many")
    assert second.startswith("the body is not a call of a task")
    queue.send_many(["no call"] * 4, headers={"task": "insert"})
    run(app, 4)
    assert (called, len(queue.dead_letters())) == ([2], 6)


def giving_none(_: object) -> Iterator[int]:
    return iter(number for number in range(3))


async def giving_none_later(_: object) -> Iterator[int]:
    return giving_none(_)


@pytest.mark.parametrize("function", [giving_none, giving_none_later])
def test_a_batch_whose_result_shows_that_no_work_was_done_fails_each_of_its_calls(
    app: App, function: Callable[..., object]
) -> None:
    task = app.task(name="insert", queue="rows", batch=(2, "1h"), max_attempts=1)(function)
    task.send_many(task.call(number) for number in (1, 2))
    run(app, 2)
    assert ["so no work was done" in one.reason for one in app.open("rows").dead_letters()] == [True, True]


def test_arguments_are_checked_where_they_are_sent(app: App) -> None:
    @app.task(name="insert", batch=(4, "1h"))
    def insert(calls: list[BatchedCall[int]]) -> None: ...

    with pytest.raises(TypeError, match="task insert was not sent: missing a required argument: 'argument'"):
        insert.send()  # type: ignore[call-arg]  # that is the point
    with pytest.raises(TypeError, match="too many positional arguments"):
        insert.send(1, 2)  # type: ignore[call-arg]  # that is the point


def test_a_direct_call_is_a_batch_of_one_without_a_delivery(app: App) -> None:
    @app.task(batch=(4, "1h"))
    def insert(calls: list[BatchedCall[str]]) -> list[str]:
        with pytest.raises(NotFound, match="the task was called directly: in a test, call the function"):
            calls[0].delivery.ack()
        return [call.argument for call in calls]

    assert insert("row") == ["row"]


def plain() -> None: ...


def test_what_cannot_be_is_refused_where_it_is_written(app: App) -> None:
    def listed(calls: list[BatchedCall[int]]) -> None: ...

    with pytest.raises(BadSetting, match=r"handles batches.*leave out kind.*or leave out batch"):
        app.task(batch=(10, "1s"), kind="process")(listed)
    with pytest.raises(BadSetting, match="its function takes one argument, the list of calls: def insert"):
        app.task(batch=(10, "1s"))(plain)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(BadSetting, match="the size of a batch is 0"):
        app.task(batch=(0, "1s"))(listed)
    with pytest.raises(BadInput, match=r"a schedule has no option batch: .*put the schedule decorator on that task"):
        app.every("1m", batch=(10, "1s"))(plain)  # type: ignore[call-arg]  # that is the point


def test_a_task_that_handles_batches_can_have_a_schedule(app: App) -> None:
    seen: list[object] = []

    @app.every("1h", arguments={"argument": "daily"})
    @app.task(queue="rows", batch=(2, "10ms"))
    def insert(calls: list[BatchedCall[str]]) -> None:
        seen.extend(call.argument for call in calls)

    run(app, 1)
    assert seen == ["daily"]
