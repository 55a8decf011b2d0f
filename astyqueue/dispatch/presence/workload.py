"""What a presence sees of its dispatcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from astyqueue.dispatch.worker_log import HeldThreads
from astyqueue.model.presence import KindLoad, RunningTask
from astyqueue.queue.queue import MessageQueue


class Workload(Protocol):
    """The dispatcher as its heartbeat thread sees it: facts to report, commands to run."""

    def queues(self) -> Sequence[MessageQueue]:
        """The queues that it serves."""

    def limits(self) -> Mapping[str, int]:
        """How many messages of a queue it has at the same time at most, for those with a limit."""

    def loads(self) -> Mapping[str, KindLoad]:
        """How many handlers of each kind run, and how many can at a time."""

    def running(self) -> list[RunningTask]:
        """The handlers that run, oldest first; of a batch its first message."""

    def held_threads(self) -> HeldThreads:
        """How many of its threads are held by handlers past their timeout."""

    def is_full_in_time(self, queue: MessageQueue, task: str | None) -> bool:
        """Whether every place for messages of this task has a handler whose timeout is not over."""

    def hold(self, held: bool) -> None:  # noqa: FBT001 - one of two states, as `quiet` and `resume`
        """Stop the claims, or let them go on."""

    def drain(self) -> None:
        """Request the end."""
