"""Runs a handler that gets many deliveries in one call, each of which is settled apart."""

from __future__ import annotations

from collections.abc import Callable

from astyqueue.clock import Clock
from astyqueue.dispatch.consumers import Consumer, ConsumerManager, Credit
from astyqueue.dispatch.execution.delivery_execution import HandlerExecutions
from astyqueue.dispatch.handlers.handler import Batch, refuse_unfinished
from astyqueue.dispatch.running_executions import BegunExecution, Cancelled
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.waiting import Wakeup

#: Calls the batch handler of these executions, and returns the error it raised, if any.
PerformBatch = Callable[[HandlerExecutions, list[BegunExecution]], BaseException | None]


class BatchExecutions:
    """Gathers deliveries for one batch handler, in the slot that took the first of them, and calls it.

    A batch is complete with its size, or when its time since the first delivery is over. While the handler runs, no
    more are taken. An `async def` handler runs on the event loop, and the slot waits for it.
    """

    def __init__(
        self,
        executions: HandlerExecutions,
        waiting: ConsumerManager[Delivery],
        batch: Batch,
        clock: Clock,
        perform: PerformBatch,
    ) -> None:
        """`waiting` are the deliveries of this handler, which `perform` calls."""
        self._executions = executions
        self._perform = perform
        self._waiting = waiting
        self._batch = batch
        self._clock = clock
        self._wakeup = Wakeup(clock)
        self._shut = False
        #: Whether its slot gathers a batch: deliveries have left the line, and their executions have not begun.
        self.gathers = False
        self._first: BegunExecution | None = None
        # Between batches it has no credit, so that the slot is woken for the next delivery, and not this consumer.
        self._credit = Credit(permitted=False)
        self._consumer: Consumer[Delivery] = Consumer(self._wakeup.set, credit=self._credit)
        waiting.add_consumer(self._consumer)

    def shut(self) -> None:
        """Wait for no more deliveries: what is gathered is handled at once."""
        self._shut = True
        self._wakeup.set()

    def carry_out(self, first: Delivery) -> None:
        """Gather the deliveries that come after the first, and handle all of them."""
        executions = self._gathered_and_begun(first)
        if not executions:
            return
        self._first = executions[0]
        for execution in executions[1:]:
            execution.first_of_batch = executions[0]
            execution.deadline = executions[0].deadline  # so that all are given up together
        error = self._perform(self._executions, executions)
        for execution in executions:
            if isinstance(error, Cancelled):
                self._executions.give_back(execution)
            else:
                self._executions.end(execution, error)
        self._first = None

    @property
    def given_up(self) -> bool:
        """Whether its handler runs on although its batch was given up: its slot is busy with nothing that counts."""
        first = self._first
        return first is not None and self._executions.under_way.is_given_up(first)

    def _gathered_and_begun(self, first: Delivery) -> list[BegunExecution]:
        self.gathers = True
        try:
            batch = self._gathered(first)
            executions = self._begun(batch)
        finally:
            self.gathers = False
        if len(executions) < len(batch):  # at a stop, which waits until these are given back
            self._executions.on_concluded()
        return executions

    def _begun(self, batch: list[Delivery]) -> list[BegunExecution]:
        """Begin the executions of a batch; after an error none of them, and the leases of the others run out."""
        begun: list[BegunExecution] = []
        try:
            for delivery in batch:
                if (execution := self._executions.begin(delivery)) is not None:
                    begun.append(execution)  # noqa: PERF401 - those before an error count
        except BaseException:
            for delivery in batch:
                delivery.renew_until = self._clock.now()
            for execution in begun:
                self._executions.give_back(execution)
            raise
        return begun

    def _gathered(self, first: Delivery) -> list[Delivery]:
        batch, until = [first], self._clock.monotonic() + self._batch.within
        self._credit.permit(permitted=True)
        while len(batch) < self._batch.size:
            if (ready := self._waiting.pull(self._consumer)) is not None:
                batch.append(ready.message)
            elif self._shut or self._clock.monotonic() >= until:
                break
            else:
                self._wakeup.wait(until)
        self._credit.permit(permitted=False)
        return batch


def perform_batch(executions: list[BegunExecution]) -> BaseException | None:
    """Call the batch handler with these deliveries, and return the error it raised, if any."""
    try:
        result = executions[0].handler.call([execution.delivery for execution in executions])
        if result is not None:
            refuse_unfinished(result)
    except BaseException as error:  # noqa: BLE001 - also SystemExit and KeyboardInterrupt: the thread goes on
        return error
    return None
