"""Hooks that are given to a connection or an app are called by each of its queues."""

from __future__ import annotations

import asyncio

import pytest

from astyqueue import Hook, Message, Vetoed, aio, connect
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.tasks import App
from tests.support.places import Place

ALL = [("sent", "mail", "hello"), ("acked", "mail", "hello"), ("sent", "sms", "hi")]


class Diary(Hook):
    """Records what it is told, and refuses what is forbidden."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, object]] = []

    def before_send(self, message: Message) -> None:
        if message.body == "forbidden":
            reason = "not this one"
            raise Vetoed(reason)

    def after_send(self, message: Message, sent: object) -> None:
        self.told.append(("sent", str(sent).partition(":")[0], message.body))

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        self.told.append((outcome, delivery.message_id.queue, delivery.body))


@pytest.mark.every_store
def test_hooks_of_a_connection_are_called_by_each_of_its_queues(place: Place) -> None:
    diary = Diary()
    with connect(place.url, hooks=[diary]) as connection, connect(place.url) as another:
        mail = connection.queue("mail")
        mail.send("hello")
        [delivery] = mail.receive()
        delivery.ack()
        another.queue("mail").send("not heard of")
        connection.queue("sms").send("hi")
        with pytest.raises(Vetoed, match="not this one"):
            connection.queue("sms").send("forbidden")
    assert diary.told == ALL


def test_hooks_of_a_connection_with_a_spool_are_called(place: Place, tmp_path: object) -> None:
    diary = Diary()
    with connect(place.url, hooks=[diary], spool=f"{tmp_path}/spool") as connection:
        connection.queue("mail").send("hello")
    assert diary.told == ALL[:1]


def test_hooks_of_an_async_connection_are_called_by_its_queues_for_tasks_and_for_threads(place: Place) -> None:
    diary = Diary()

    async def send_and_ack() -> None:
        async with await aio.connect(place.url, hooks=[diary]) as connection:
            mail = await connection.queue("mail")
            await mail.send("hello")
            [delivery] = await mail.receive()
            await delivery.ack()
            await asyncio.to_thread(lambda: connection.blocking.queue("sms").send("hi"))

    asyncio.run(send_and_ack())
    assert diary.told == ALL


@pytest.mark.every_store
def test_hooks_of_an_app_are_called_at_sends_and_in_its_workers(place: Place) -> None:
    diary = Diary()
    with App(place.url, hooks=[diary]) as app:

        @app.task(queue="mail", name="welcome")
        def welcome() -> None: ...

        welcome.send()
        app.worker(max_messages=1).run()
    assert [(what, queue) for what, queue, _ in diary.told] == [("sent", "mail"), ("acked", "mail")]


def test_hooks_of_an_async_app_are_called_at_sends_and_in_its_workers(place: Place) -> None:
    diary = Diary()

    async def send_and_run() -> None:
        async with aio.App(place.url, hooks=[diary]) as app:

            @app.task(queue="mail", name="welcome")
            async def welcome() -> None: ...

            await welcome.send()
            await (await app.worker(max_messages=1)).run()

    asyncio.run(send_and_run())
    assert [(what, queue) for what, queue, _ in diary.told] == [("sent", "mail"), ("acked", "mail")]
