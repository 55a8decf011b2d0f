"""Messages on their way through one row: sent, released, delayed, acked, and some left backing off."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, cast

from astyqueue import Message, MessageQueue
from astyqueue.protocol.claiming.claim import Claim, ClaimResult, claim
from astyqueue.protocol.claiming.scan import MOST
from astyqueue.protocol.claiming.selection import ClaimedMessage, ClaimRequest
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.outcomes import ACK, Outcome, Release
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Steps
from astyqueue.units import SECOND
from astyqueue.waiting import Rest, Wakeup
from benchmarks.target import CLOCK, ONE_ROW
from benchmarks.workload import NotMeasured, body

#: One row with three priorities; a day's lease, so that nothing expires while it is measured.
ROWS: Final = {**ONE_ROW, "priorities": 3, "lease": "1h"}
_PRIORITIES: Final = 3
_BODY: Final = 200
_CHUNK: Final = 10_000
#: One message in this many is released, and another one in this many is sent with a delay.
_ONE_IN: Final = 100
_DELAY: Final = 2
_PAUSE: Final = SECOND
_DAY: Final = 24 * 3_600 * SECOND
#: Claims that find nothing are this far apart.
_GLANCE: Final = SECOND // 5
_PATIENCE: Final = 600 * SECOND


def pass_through(queue: MessageQueue, messages: int) -> dict[str, object]:
    """Send and ack messages in portions; returns how many were released and delayed."""
    acked = released = delayed = 0
    source = _messages(messages)
    snapshot = snapshot_of(queue)
    while chunk := list(islice(source, _CHUNK)):
        delayed += sum(message.delay is not None for message in chunk)
        queue.send_many(chunk)
        last = chunk[-1].body == body(messages - 1, _BODY)
        done = queue.run(_drain(queue, snapshot, messages - acked, last=last))
        acked, released = acked + done[0], released + done[1]
    if acked != messages:
        message = f"{messages} messages were sent, and {acked} acked"
        raise NotMeasured(message)
    return {"released": released, "delayed": delayed}


def back_off(queue: MessageQueue, messages: int) -> None:
    """Send messages and release them for a day."""
    queue.send_many(Message(body(number, _BODY), priority=number % _PRIORITIES) for number in range(messages))
    snapshot = snapshot_of(queue)
    queue.run(_release_all(queue, snapshot, messages))


def snapshot_of(queue: MessageQueue) -> RowSnapshot:
    """The only row of this queue, of which nothing is known yet."""
    row = queue.core.ring.rows()[0]
    return RowSnapshot(row, queue.settings.layout.priorities)


def _messages(count: int) -> Iterator[Message]:
    for number in range(count):
        delay = _DELAY if number % _ONE_IN == 1 else None
        yield Message(body(number, _BODY), priority=number % _PRIORITIES, delay=delay)


def _drain(queue: MessageQueue, snapshot: RowSnapshot, expected: int, *, last: bool) -> Steps[tuple[int, int]]:
    """Claim and settle, each settle with the next claim; returns how many were acked and how many released.

    Ends when no message can be claimed; with `last`, only once `expected` messages were acked as well.
    """
    acked = released = 0
    claimed, until, rest = ClaimResult(), CLOCK.monotonic() + _PATIENCE, Wakeup(CLOCK)
    while CLOCK.monotonic() < until:
        settling = [SettleRequest(taken.timer, _outcomes(queue, taken.held)) for taken in claimed.claims]
        outcomes = [outcome for settlement in settling for outcome in settlement.outcomes.values()]
        acked += sum(outcome is ACK for outcome in outcomes)
        released += sum(outcome is not ACK for outcome in outcomes)
        claimed = yield from claim(queue.core.process, snapshot, _request(queue), settling=settling)
        if not claimed.claims and (not last or acked >= expected):
            break
        if not claimed.claims:
            yield Rest(rest, CLOCK.monotonic() + _GLANCE)
    return acked, released


def _outcomes(queue: MessageQueue, held: list[ClaimedMessage]) -> dict[bytes, Outcome]:
    """Release one in a hundred the first time it comes; ack all else."""
    due = queue.core.process.now() + _PAUSE
    return {one.entry.id: Release(due, 1) if _is_released(one) else ACK for one in held}


def _is_released(held: ClaimedMessage) -> bool:
    return held.entry.spent == 0 and cast("dict[str, int]", held.envelope.body)["number"] % _ONE_IN == 0


def _request(queue: MessageQueue) -> ClaimRequest:
    behaviour = queue.settings.behaviour
    return ClaimRequest(MOST, behaviour.lease_us, behaviour.max_attempts)


def _release_all(queue: MessageQueue, snapshot: RowSnapshot, expected: int) -> Steps[None]:
    released = 0
    while released < expected:
        claimed = yield from claim(queue.core.process, snapshot, _request(queue))
        for taken in claimed.claims:
            yield from _release(queue, snapshot, taken)
            released += len(taken.held)


def _release(queue: MessageQueue, snapshot: RowSnapshot, taken: Claim) -> Steps[None]:
    process = queue.core.process
    outcomes: dict[bytes, Outcome] = {one.entry.id: Release(process.now() + _DAY, 1) for one in taken.held}
    settled = yield from settle(process, snapshot.row, SettleRequest(taken.timer, outcomes))
    for settle_plan in settled.done:
        snapshot.settled(settle_plan.timer_change)
