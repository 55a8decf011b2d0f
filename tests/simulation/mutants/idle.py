"""Mutants of idle queues: what makes a message wait although its notice is there, or for ever if it is lost."""

from __future__ import annotations

from typing import Any, Final
from unittest import mock

from astyqueue.queue.row_sharing import idle_queues, paced_doorbell
from astyqueue.queue.row_sharing.idle_queues import ActivityWatch, QueueActivity
from astyqueue.queue.row_sharing.poll_plan import PollPlan
from astyqueue.units import NEVER, SECOND
from tests.simulation.mutants.mutant import Mutant, Patches


def _waking_none() -> list[Patches]:
    def mutated(watch: ActivityWatch, queue: QueueActivity) -> None:
        """The leader that read the log leaves, and wakes no other one to read it."""
        watch._resting.pop(queue, None)  # noqa: SLF001 - the mistake is made there
        if watch._watching is queue:  # noqa: SLF001
            watch._watching = None  # noqa: SLF001

    return [mock.patch.object(ActivityWatch, "_exit", mutated)]


def _without(kind: type, name: str) -> list[Patches]:
    def mutated(*_: Any, **__: Any) -> None:  # noqa: ANN401 - whatever it was called with
        """Do nothing."""

    return [mock.patch.object(kind, name, mutated)]


def _without_overlap() -> list[Patches]:
    return [mock.patch.object(idle_queues, name, 0) for name in ("_OVERLAP", "_LONG_OVERLAP")]


def _without_longest_pause() -> list[Patches]:
    return [mock.patch.object(module, "_LONGEST", NEVER) for module in (idle_queues, paced_doorbell)]


IDLE_MUTANTS: Final = (
    Mutant("turns never come", 40, lambda: _without(ActivityWatch, "_give_turn"), idle=True),
    Mutant("a reader that stops wakes no other", 100, _waking_none, idle=True),
    Mutant("each read of the log begins at the last one", 200, _without_overlap, first=29, idle=True),
    Mutant(
        "a notice stands for ten minutes",
        100,
        lambda: [mock.patch.object(paced_doorbell, "_NOTICE_FOR", 600 * SECOND)],
        idle=True,
    ),
    Mutant("rows that just ended are not polled", 300, lambda: _without(PollPlan, "_poll_just_ended"), idle=True),
    Mutant("a read during a suspension sets the pace", 100, _without_longest_pause, first=58, idle=True),
)
