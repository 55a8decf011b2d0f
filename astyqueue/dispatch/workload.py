"""What a dispatcher has to do at the moment, as its presence reports it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from astyqueue.dispatch.builder import DispatcherPlan
from astyqueue.dispatch.handler_monitor import HandlerMonitor
from astyqueue.dispatch.handlers.handler import TASK, Kind, LineKey
from astyqueue.dispatch.running_executions import Execution
from astyqueue.dispatch.subscription import QueueIdentity, Subscription
from astyqueue.dispatch.worker_log import HeldThreads, kind_text
from astyqueue.model.presence import KindLoad, RunningTask
from astyqueue.queue.queue import MessageQueue


class DispatcherWorkload:
    """The queues of a dispatcher and the handlers that run. Safe from any thread."""

    def __init__(self, plan: DispatcherPlan, monitor: HandlerMonitor, drain: Callable[[], None]) -> None:
        """`drain` requests the end, and does not wait for it."""
        self._pools = plan.pools
        self._quota = plan.quota
        self._clock = plan.clock
        self._monitor = monitor
        self.drain = drain

    def queues(self) -> Sequence[MessageQueue]:
        """The queues that it serves."""
        return [one.queue for one in self._monitor.subscriptions]

    def limits(self) -> Mapping[str, int]:
        """How many messages of a queue it has at the same time at most, for those with a limit."""
        return {one.name: one.limit for one in self._monitor.subscriptions if one.limit is not None}

    def loads(self) -> Mapping[str, KindLoad]:
        """How many handlers of each kind run, and how many can at a time."""
        busy = Counter(kind_text(execution.handler) for _, execution in self._running())
        return {kind: KindLoad(busy[kind], slots) for kind, slots in self._pools.sizes.items()}

    def running(self) -> list[RunningTask]:
        """The handlers that run, oldest first; of a batch its first message."""
        running = [_running_task(one.name, execution) for one, execution in self._running()]
        return sorted(running, key=lambda task: (task.since, task.id))

    def _running(self) -> Iterator[tuple[Subscription, Execution]]:
        for one in self._monitor.subscriptions:
            under_way = one.executions.under_way
            yield from ((one, each) for each in (*under_way.all(), *under_way.stuck) if each.first_of_batch is None)

    def held_threads(self) -> HeldThreads:
        """How many of its threads are held by handlers past their timeout."""
        held = sum(one.executions.under_way.slots_held for one in self._monitor.subscriptions)
        return HeldThreads(held, self._pools.size)

    def is_full_in_time(self, queue: MessageQueue, task: str | None) -> bool:
        """Whether messages of this task wait for handlers whose timeout is not over, and for nothing else.

        They have every place for such messages, or for those of a line that overflows, so that nothing is claimed; or
        no message may be claimed any more until the last ones have ended.
        """
        identity = QueueIdentity.of(queue)
        served = next((one for one in self._monitor.subscriptions if one.identity == identity), None)
        if served is None:
            return False
        lines = [served.line_of(task), *served.waiting.overflowing]
        return self._quota_is_used_in_time() or any(self._is_line_full_in_time(served, line) for line in lines)

    def _quota_is_used_in_time(self) -> bool:
        """Whether no more messages may be claimed, and handlers run, all of which are within their timeout."""
        if not self._quota.limited or self._quota.room(1):
            return False
        running = [one for each in self._monitor.subscriptions for one in each.executions.under_way.all()]
        return bool(running) and all(map(self._is_in_time, running))

    def _is_line_full_in_time(self, served: Subscription, line: LineKey) -> bool:
        if isinstance(line, Kind):
            places = self._pools.sizes.get(line.value, 0)
            everywhere = sum(self._in_time(one, line) for one in self._monitor.subscriptions)
        else:
            places, everywhere = 1, self._in_time(served, line)  # a batch handler runs once at a time in a queue
        here = self._in_time(served, line)
        most = served.slots if line is Kind.THREAD else places
        in_all = sum(self._in_time(served, each) for each in served.lines)
        return everywhere >= places or here >= most or (served.limit is not None and in_all >= served.limit)

    def _in_time(self, subscription: Subscription, line: LineKey) -> int:
        """How many handlers of a line run whose timeout is not over."""
        return sum(
            one.handler is not None and one.handler.line == line and self._is_in_time(one)
            for one in subscription.executions.under_way.all()
            if one.first_of_batch is None
        )

    def _is_in_time(self, execution: Execution) -> bool:
        return execution.deadline is not None and execution.deadline > self._clock.monotonic()

    def hold(self, held: bool) -> None:  # noqa: FBT001 - one of two states, as `quiet` and `resume`
        """Stop the claims, or let them go on."""
        self._quota.held = held
        for one in self._monitor.subscriptions:
            if held:
                one.queue.core.claimer.permit.stand_down()
            one.queue.core.claimer.wake()


def _running_task(queue: str, one: Execution) -> RunningTask:
    task = one.delivery.headers.get(TASK) or (one.handler.name if one.handler else "")
    return RunningTask(queue, task, str(one.delivery.message_id), one.began)
