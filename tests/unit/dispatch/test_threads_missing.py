"""What a dispatcher does while the system starts no more threads, as at its limit of processes and threads."""

from __future__ import annotations

import threading

import pytest

from astyqueue import aio
from tests.unit.dispatch.stage import Stage


class Limit:
    """Threads of this name cannot be started, until it is lifted."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused = threading.Event()
        self.lifted = False
        start = threading.Thread.start

        def starts(thread: threading.Thread) -> None:
            if thread.name.startswith(f"astyqueue:{name}") and not self.lifted:
                self.refused.set()
                message = "can't start new thread"
                raise RuntimeError(message)
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", starts)


async def asynchronous(_: aio.Delivery) -> None:
    pass


async def batched(_: list[aio.Delivery]) -> None:
    pass


@pytest.mark.parametrize("batch", [None, (1, 0)])
def test_coroutines_run_though_no_thread_watches_over_their_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, batch: tuple[int, int] | None
) -> None:
    limit = Limit("watchdog", monkeypatch)
    dispatcher = stage.start(asynchronous if batch is None else batched, batch=batch, task="t")
    stage.queue.send("one", headers={"task": "t"})
    stage.when_settled(1)
    assert limit.refused.is_set()
    limit.lifted = True
    stage.queue.send("two", headers={"task": "t"})
    stage.when_settled(2)
    assert stage.heard.count("acked") == 2
    dispatcher.drain(None)
