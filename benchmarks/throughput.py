"""How many messages a second: sending, claiming and acking bare, and draining with a dispatcher."""

from __future__ import annotations

from time import process_time
from typing import Final, NamedTuple, cast

from astyqueue import Delivery, MessageQueue
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.protocol.claiming.claim import ClaimResult, claim
from astyqueue.protocol.claiming.scan import MOST
from astyqueue.protocol.claiming.selection import ClaimedMessage, ClaimRequest
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.settling.settle import SettleRequest
from astyqueue.protocol.steps import Steps
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.store import Slice
from astyqueue.units import SECOND, MonotonicUs
from benchmarks.target import CLOCK, ROW
from benchmarks.workload import NotMeasured, Tally, bodies

_MICROSECONDS: Final = 1_000_000


class Drained(NamedTuple):
    """What draining took: messages a second, and microseconds of processor time a message."""

    per_s: float
    cpu_us: float


def send_per_s(queue: MessageQueue, messages: int, size: int) -> float:
    """Messages a second with `send_many`, from bodies that were made before."""
    ready = list(bodies(messages, size))
    began = CLOCK.monotonic()
    report = queue.send_many(ready)
    taken = CLOCK.monotonic() - began
    if report.sent != messages:
        message = f"{report.sent} of {messages} messages were sent"
        raise NotMeasured(message)
    return messages * SECOND / taken


def number_of(delivery: BaseDelivery) -> int:
    """The number in a delivery's body."""
    return cast("dict[str, int]", delivery.body)["number"]


def drain_bare(queue: MessageQueue, messages: int) -> Drained:
    """Claim and ack everything in this thread, each ack joined to the next claim: only the steps and the store."""
    tally = Tally(messages, CLOCK)
    began, busy = CLOCK.monotonic(), process_time()
    queue.run(claim_and_ack(queue, tally))
    drained = _drained(messages, began, busy)
    _check(queue, tally)
    return drained


def claim_and_ack(queue: MessageQueue, tally: Tally) -> Steps[None]:
    """The steps of it."""
    behaviour, process = queue.settings.behaviour, queue.core.process
    snapshot = RowSnapshot(ROW, queue.settings.layout.priorities)
    request = ClaimRequest(MOST, behaviour.lease_us, behaviour.max_attempts)
    claimed = yield from claim(process, snapshot, request)
    while claimed.claims:
        claimed = yield from claim(process, snapshot, request, settling=_handled(claimed, tally))


def _handled(claimed: ClaimResult, tally: Tally) -> list[SettleRequest]:
    for taken in claimed.claims:
        mark_all(taken.held, tally)
    return [SettleRequest(taken.timer, {held.entry.id: ACK for held in taken.held}) for taken in claimed.claims]


def mark_all(held: list[ClaimedMessage], tally: Tally) -> None:
    """Handle these: read the body, and count."""
    for one in held:
        tally.mark(cast("dict[str, int]", one.envelope.body)["number"])


def drain(queue: MessageQueue, messages: int, threads: int) -> Drained:
    """Handle everything with a dispatcher of this process.

    The time ends when every ack is durable and every thread has left.
    """
    tally = Tally(messages, CLOCK)

    def handle(delivery: Delivery) -> None:
        tally.mark(number_of(delivery))

    dispatcher = Dispatcher.builder().queue(queue).handler(handle, threads=threads).build()
    began, busy = CLOCK.monotonic(), process_time()
    with dispatcher:
        tally.wait()
    drained = _drained(messages, began, busy)
    _check(queue, tally)
    return drained


def _drained(messages: int, began: MonotonicUs, busy: float) -> Drained:
    taken = CLOCK.monotonic() - began
    return Drained(messages * SECOND / taken, (process_time() - busy) * _MICROSECONDS / messages)


def _check(queue: MessageQueue, tally: Tally) -> None:
    """See that the handler ran once for each message, and that nothing is left of any."""
    tally.check()
    check_empty(queue)


def check_empty(queue: MessageQueue) -> None:
    """See that the store holds no message, timer or dead letter of this queue any more."""
    for row in queue.core.ring.rows():
        left = queue.store.read(tuple(Slice(row, kind, limit=1) for kind in (Type.MESSAGE, Type.TIMER, Type.DEAD)))
        if any(left):
            message = f"row {row} is not empty: {[column for columns in left for column in columns]}"
            raise NotMeasured(message)
