"""What a type checker says of tasks. mypy reads this file with the project; nothing runs it.

Every `type: ignore` here is a wrong call that must stay an error: mypy complains of an ignore that nothing needs.
"""

from __future__ import annotations

from typing import assert_type

from astyqueue import BatchedCall, aio
from astyqueue.queue.producing.producer import SendReport, Sent
from astyqueue.tasks.app import App

app = App("memory://")
awaited = aio.App("memory://")


@app.task(queue="emails", max_attempts=5, timeout="5m")
def welcome(address: str, lang: str = "en") -> int:
    return len(address + lang)


@app.task
def goodbye(address: str) -> None: ...


@app.task
async def count(upto: int) -> list[int]:
    return [*range(upto)]


@awaited.task(queue="emails")
def greet(address: str, lang: str = "en") -> int:
    return len(address + lang)


@app.task(batch=(100, "500ms"))
def insert(calls: list[BatchedCall[str]]) -> None:
    assert_type(calls[0].argument, str)
    calls[0].delivery.reject()


@app.task(batch=(100, "500ms"))
async def insert_later(calls: list[aio.BatchedCall[int]]) -> None:
    assert_type(calls[0].argument, int)
    await calls[0].delivery.reject()


@awaited.task(batch=(100, "500ms"))
async def insert_awaited(calls: list[aio.BatchedCall[int]]) -> None: ...


def right() -> None:
    assert_type(welcome.send("ada@example.org"), Sent)
    assert_type(welcome.send(address="ada@example.org", lang="fr"), Sent)
    assert_type(welcome("ada@example.org"), int)
    assert_type(welcome.using(delay="10m", key="ada").send("ada@example.org"), Sent)
    assert_type(welcome.send_many([welcome.call("ada"), welcome.call("bob", lang="fr")]), SendReport)
    assert_type(count.send(3), Sent)
    assert_type(insert.send("row"), Sent)
    assert_type(insert_later.send(7), Sent)
    assert_type(insert("row"), None)


async def right_awaited() -> None:
    assert_type(await count(3), list[int])
    assert_type(await greet.send("ada@example.org"), Sent)
    assert_type(await greet.using(delay="10m").send("ada@example.org", lang="fr"), Sent)
    assert_type(await greet.send_many([greet.call("ada")]), SendReport)
    assert_type(greet("ada@example.org"), int)
    assert_type(greet.blocking.send("ada@example.org"), Sent)
    assert_type(await awaited.open(), aio.MessageQueue)
    assert_type(await insert_awaited.send(7), Sent)


def wrong() -> None:
    welcome.send()  # type: ignore[call-arg]  # an argument is missing
    welcome.send(7)  # type: ignore[arg-type]  # of the wrong type
    welcome.send("ada@example.org", language="fr")  # type: ignore[call-arg]  # of another name
    welcome.using(delay="10m").send("ada@example.org", 7)  # type: ignore[arg-type]  # the same with options
    welcome.using(later="10m")  # type: ignore[call-arg]  # an option that no message has
    welcome.call("ada@example.org", 7)  # type: ignore[arg-type]  # and for many
    welcome.send_many([goodbye.call("ada@example.org")])  # type: ignore[list-item]  # a call of another task
    welcome.send_many(["ada@example.org"])  # type: ignore[list-item]  # no call at all
    welcome()  # type: ignore[call-arg]  # called directly
    greet.blocking.send()  # type: ignore[call-arg]  # an argument is missing, in each face
    insert.send(7)  # type: ignore[arg-type]  # of another type than the function's calls
    insert.send("row", "row")  # type: ignore[call-arg]  # each call has one argument
    app.task(batch=(100, "500ms"))(goodbye)  # type: ignore[arg-type]  # a function of single calls
    app.task(later="10m")  # type: ignore[call-overload]  # an option that no task has


async def wrong_awaited() -> None:
    await greet.send()  # type: ignore[call-arg]  # an argument is missing
    await greet.using().send(7)  # type: ignore[arg-type]  # of the wrong type
    await welcome.send("ada@example.org")  # type: ignore[misc]  # this one blocks
