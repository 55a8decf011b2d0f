"""Pulls that wait, of every flavour: what ends a wait, and that nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from astyqueue.errors import Closed, QueueDoesNotExist
from astyqueue.queue_service import MemoryQueueService, PulledMessage, QueueService
from tests.queue_service.conftest import Flavour, Memory

Waiting = Future[PulledMessage | None]


def body_of(waiting: Waiting) -> str | None:
    message = waiting.result(timeout=30)
    return None if message is None else message.body


def test_a_push_ends_the_wait(flavour: Flavour) -> None:
    service = flavour.open()
    service.create("orders")
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(service.pull, "orders", wait=20)
        flavour.when_waiting()
        service.push("orders", "a book")
        assert body_of(waiting) == "a book"


def test_the_end_of_a_visibility_timeout_ends_the_wait(flavour: Flavour) -> None:
    service = flavour.open()
    service.create("orders", 100)
    service.push("orders", "a book")
    service.pull("orders")
    flavour.advance(90)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(service.pull, "orders", wait=20)
        flavour.when_waiting()
        flavour.advance(10)
        assert body_of(waiting) == "a book"


def test_a_message_that_is_made_visible_ends_the_wait_at_once(flavour: Flavour) -> None:
    service = flavour.open()
    service.create("orders", 100)
    service.push("orders", "a book")
    message = service.pull("orders")
    assert message is not None
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(service.pull, "orders", wait=20)
        flavour.when_waiting()
        service.change_visibility("orders", message.receipt, 0)
        assert body_of(waiting) == "a book"


def test_without_a_message_the_wait_ends_with_its_time(flavour: Flavour) -> None:
    service = flavour.open()
    service.create("orders")
    if not isinstance(flavour, Memory):  # the server's clock goes on by itself, and waits for it cannot be seen
        assert service.pull("orders", wait=1) is None
        return
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(service.pull, "orders", wait=20)
        flavour.when_waiting()
        flavour.advance(19)
        flavour.when_waiting()
        assert not waiting.done()
        flavour.advance(1)
        assert body_of(waiting) is None


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_wait_ends_with_an_error_when_its_queue_or_service_does(kind: str, request: pytest.FixtureRequest) -> None:
    flavour: Memory = request.getfixturevalue(kind)
    service = flavour.open()
    service.create("orders")
    endings: list[tuple[Callable[[], None], type[Exception]]] = [
        (lambda: service.delete_queue("orders"), QueueDoesNotExist),
        (service.close, Closed),
    ]
    for end, error in endings:
        service.create("orders")
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(service.pull, "orders", wait=20)
            flavour.when_waiting()
            end()
            with pytest.raises(error):
                waiting.result(timeout=30)


class CreatedAgain(MemoryQueueService):
    """Each queue that is deleted is created again before the threads that wait in a pull hear of it."""

    def _forget(self, name: str) -> None:
        with suppress(Closed):  # when this service is closed
            self.create(name)
        super()._forget(name)


def test_a_queue_that_is_created_again_at_once_ends_the_waits_for_the_one_before(memory: Memory) -> None:
    with CreatedAgain(clock=memory.clock) as service, ThreadPoolExecutor() as threads:
        service.create("orders")
        waiting = threads.submit(service.pull, "orders", wait=20)
        memory.when_waiting()
        service.delete_queue("orders")
        with pytest.raises(QueueDoesNotExist):
            waiting.result(timeout=30)
        service.push("orders", "a book")
        assert service.pull("orders") is not None


def test_a_closed_service_is_an_error(memory: Memory) -> None:
    service: QueueService = memory.open()
    service.create("orders")
    service.close()
    with pytest.raises(Closed):
        service.push("orders", "a book")
