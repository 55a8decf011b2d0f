"""The parts of the way of a message, each measured in microseconds of processor time a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import process_time_ns, thread_time_ns
from typing import Final, TypeVar

from astyqueue import Message, MessageQueue, ids
from astyqueue.model.envelope import decode
from astyqueue.protocol.claiming.claim import Claim, claim
from astyqueue.protocol.claiming.scan import MOST
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import HEADER, Type
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Answer, Client, Commit, Request, Steps, perform
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Waiter
from astyqueue.store import Column, Slice
from benchmarks import throughput
from benchmarks.target import CLOCK, ROW
from benchmarks.workload import Tally, bodies

T = TypeVar("T")
Costs = dict[str, float]
_NANOSECONDS: Final = 1_000
#: The dispatcher's usual number of threads.
_THREADS: Final = 8


def cost(action: Callable[[], object], messages: int) -> float:
    """Microseconds of processor time a message, of all threads of this process."""
    before = process_time_ns()
    action()
    return (process_time_ns() - before) / _NANOSECONDS / messages


def sending(queue: MessageQueue, messages: int, size: int) -> Costs:
    """`send_many`: the store's part, and the rest."""
    meter = Meter(queue)
    made = list(bodies(messages, size))
    steps = queue.core.send_many(made, Message(None))
    whole = cost(lambda: meter.run(steps), messages)
    stored = meter.costs(messages)["Send"]
    return {"send_many": whole, "  compose, encode, place": whole - stored, "  insert (store)": stored}


def reading(queue: MessageQueue, messages: int) -> Costs:
    """Reading the messages, without and with decoding them."""
    read = cost(lambda: _pages(queue, _leave), messages)
    return {"read (store)": read, "decode": cost(lambda: _pages(queue, _decode), messages) - read}


def _leave(columns: list[Column]) -> None:
    """Do nothing with what was read."""


def _decode(columns: list[Column]) -> None:
    for column in columns:
        decode(column.value)


def _pages(queue: MessageQueue, use: Callable[[list[Column]], None]) -> None:
    after, columns = ids.LEAST, queue.store.read((Slice(ROW, Type.MESSAGE, 0, limit=MOST),))[0]
    while columns:
        use(columns)
        after = columns[-1].name.id
        columns = queue.store.read((Slice(ROW, Type.MESSAGE, 0, after=after, beyond=True, limit=MOST),))[0]


def steps_apart(queue: MessageQueue, messages: int) -> Costs:
    """Claims and acks of the bare steps, each in a commit of its own, so that they can be distinguished."""
    meter = Meter(queue)
    tally = Tally(messages, CLOCK)
    whole = cost(lambda: meter.run(_claim_then_ack(queue, tally)), messages)
    tally.check()
    values = meter.costs(messages)
    return {
        "steps, acks apart": whole,
        "  reads (store)": values["Read"],
        "  claim commits (store)": values["claim"],
        "  settle commits (store)": values["settle"],
        "  between the requests": whole - sum(values.values()),
    }


def _claim_then_ack(queue: MessageQueue, tally: Tally) -> Steps[None]:
    behaviour, process = queue.settings.behaviour, queue.core.process
    snapshot = RowSnapshot(ROW, queue.settings.layout.priorities)
    request = ClaimRequest(MOST, behaviour.lease_us, behaviour.max_attempts)
    while (claimed := (yield from claim(process, snapshot, request))).claims:
        for taken in claimed.claims:
            throughput.mark_all(taken.held, tally)
            yield from _ack(process, snapshot, taken)


def _ack(process: Client, snapshot: RowSnapshot, taken: Claim) -> Steps[None]:
    settled = yield from settle(
        process, snapshot.row, SettleRequest(taken.timer, {one.entry.id: ACK for one in taken.held})
    )
    for settle_plan in settled.done:
        snapshot.settled(settle_plan.timer_change)


def steps_joined(queue: MessageQueue, messages: int) -> Costs:
    """The same with each ack joined to the next claim."""
    return {"steps, acks joined to claims": throughput.drain_bare(queue, messages).cpu_us}


def claimer_alone(queue: MessageQueue, messages: int) -> Costs:
    """The claimer with its deliveries, holds and outcomes, in one thread that acks each as it is handed over."""
    return {"claimer, one thread": cost(lambda: drain_with_claimer(queue, messages), messages)}


def drain_with_claimer(queue: MessageQueue, messages: int) -> None:
    """Lead the claimer, and ack what it hands over."""
    tally, claimer = Tally(messages, CLOCK), queue.core.claimer

    def accept(deliveries: list[BaseDelivery]) -> None:
        for delivery in deliveries:
            tally.mark(throughput.number_of(delivery))
            claimer.settle_later(delivery, ACK)

    queue.run(
        claimer.serve(
            Waiter(lambda: MOST, accept, delivery_factory=queue.delivery, renew=True), lambda: tally.is_complete
        )
    )
    queue.run(claimer.flush())
    tally.check()


def one_handler(queue: MessageQueue, messages: int) -> Costs:
    """A dispatcher whose handlers have one thread."""
    return {"dispatcher, 1 thread": throughput.drain(queue, messages, 1).cpu_us}


def many_handlers(queue: MessageQueue, messages: int) -> Costs:
    """A dispatcher as it usually is."""
    return {f"dispatcher, {_THREADS} threads": throughput.drain(queue, messages, _THREADS).cpu_us}


class Meter:
    """Carries out steps as `run` does, and adds up the processor time of each kind of request."""

    def __init__(self, queue: MessageQueue) -> None:
        """Against the store of this queue."""
        self._store = queue.store
        self._busy: Counter[str] = Counter()

    def run(self, steps: Steps[T]) -> T:
        """What the steps return; a store's error ends them."""
        answer = Answer()
        try:
            while True:
                request = answer.into(steps)
                before = thread_time_ns()
                answer = Answer(perform(request, self._store))
                self._busy[_kind(request)] += thread_time_ns() - before
        except StopIteration as finished:
            result: T = finished.value
            return result

    def costs(self, messages: int) -> Costs:
        """Microseconds a message of each kind of request."""
        return {kind: nanoseconds / _NANOSECONDS / messages for kind, nanoseconds in self._busy.items()}


def _kind(request: Request) -> str:
    """What a request is for: of the commits, claims are those that raise the header."""
    if not isinstance(request, Commit):
        return type(request).__name__
    return "claim" if any(put.name == HEADER for put in request.batch.puts) else "settle"
