"""Tasks that send calls of tasks when they are acked."""

from __future__ import annotations

import pytest

from astyqueue import aio
from astyqueue.errors import NotFound
from astyqueue.tasks import App
from tests.unit.tasks.test_worker import Seen, app, seen

__all__ = ["app", "seen"]


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
