"""Who leads among those of one process."""

from __future__ import annotations

import pytest

from astyqueue.clock import SystemClock
from astyqueue.protocol.steps import Steps
from astyqueue.queue.consuming.leader_follower import Leadership
from astyqueue.queue.hooks import HookNotifier
from astyqueue.waiting import Rest, Wakeup


class Next(Wakeup):
    """A waiter; records when it becomes the leader."""

    def __init__(self, told: list[str]) -> None:
        super().__init__(SystemClock())
        self._told = told

    def set(self) -> None:
        self._told.append("the next one leads")
        super().set()


def test_what_an_error_undoes_is_undone_before_anybody_else_leads() -> None:
    """Otherwise the next one commits what its owner learned to have failed, and may try again."""
    told: list[str] = []

    def fails(me: Wakeup, until: int | None) -> Steps[None]:
        yield Rest(me, until)
        raise ConnectionError

    lead = Leadership(SystemClock(), fails, HookNotifier(()))
    first = lead.take_part(lambda: False, Wakeup(SystemClock()), until=None, undo=lambda: told.append("undone"))
    next(first)
    following = lead.take_part(lambda: False, Next(told), until=None)
    next(following)
    with pytest.raises(ConnectionError):
        next(first)
    assert told == ["undone", "the next one leads"]
