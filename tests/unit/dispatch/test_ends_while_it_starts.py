"""A dispatcher that ends while its start is under way, as when the first of its queues is gone: nothing goes on."""

from __future__ import annotations

import threading

import pytest

from astyqueue.dispatch.dispatcher import Dispatcher
from tests.unit.dispatch.stage import DEADLINE, Stage


class EndsBefore:
    """Ends a dispatcher, as an error of a queue does, before it goes on with this part of its start."""

    def __init__(self, dispatcher: Dispatcher, part: object, monkeypatch: pytest.MonkeyPatch) -> None:
        self._dispatcher = dispatcher
        self._start = part.start  # type: ignore[attr-defined]  # it has one
        self._finished = threading.Event()
        dispatcher.when_finished(self._finished.set)
        monkeypatch.setattr(part, "start", self._starts)

    def _starts(self) -> None:
        self._dispatcher._on_end(None)  # noqa: SLF001 - as a claim thread does
        assert self._finished.wait(DEADLINE)
        self._start()


def test_no_thread_claims_for_a_dispatcher_that_has_ended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = Dispatcher.builder().queue(stage.queue).handler(print).build()
    EndsBefore(dispatcher, dispatcher._served, monkeypatch)  # noqa: SLF001 - what starts the claims
    stage.begin(dispatcher)
    for thread in dispatcher.threads:
        thread.join(DEADLINE)
    assert [thread.name for thread in dispatcher.threads if thread.is_alive()] == []
