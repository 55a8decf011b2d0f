"""How many messages a worker of an app claims ahead."""

from __future__ import annotations

import threading

import pytest

from astyqueue.observe import ObservedEvent
from astyqueue.observe.events import Claimed
from astyqueue.tasks import App
from tests.support.places import Place

#: Seconds within which messages must be claimed; only a failing test takes this long.
DEADLINE = 60


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
