"""Checkers: what holds of every history, whatever the faults. Each yields one sentence per violation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.units import SECOND
from tests.simulation.checkers.groups import GROUP_CHECKERS
from tests.simulation.checkers.keys import KEY_CHECKERS
from tests.simulation.checkers.polls import AHEAD, PASSES
from tests.simulation.engine.history import Checker, Delivered, Removed, Result, RunRecord, Settled


def rows_are_sound(record: RunRecord) -> Iterator[str]:
    """No commit lists a message twice, claims one that is gone or dead, or miscounts attempts."""
    yield from record.model.violations


def nothing_sent_is_lost(record: RunRecord) -> Iterator[str]:
    """At the end, when all rows were drained, each message whose send returned was acked or removed, or is dead."""
    history, dead = record.history, record.dead()
    may_be_gone = {one.id for one in history.settled if one.kind == "ack" and not one.lost}.union(dead)
    for sent in history.sent:
        if sent.message is not None and sent.message.id not in may_be_gone and not record.removed(sent):
            message = f"message {sent.number}, {ids.text(sent.message.id)},"
            yield f"{message} was sent and neither settled nor removed, and it is lost"


def everything_is_found_in_time(record: RunRecord) -> Iterator[str]:
    """A message is found by the ordinary scans, not only by the rescan at the end.

    This does not hold if its sender's clock was far off, or that of any process that claims.
    """
    if record.history.reader_error > _READS_FAR_OFF:
        return
    seen: set[int] = set()
    sent = {one.number: one for one in record.history.sent}
    for delivered in record.history.delivered:
        one = sent.get(delivered.number)
        if (
            one
            and delivered.client_name == RESCANNER
            and delivered.number not in seen
            and one.result is Result.DONE
            and abs(one.clock_error) < _FAR_OFF
        ):
            missed = f"message {one.number} was passed over"
            yield f"{missed}: no process found it before the rescan at the end"
        seen.add(delivered.number)


def nothing_comes_back(record: RunRecord) -> Iterator[str]:
    """No process gets a message by a commit requested after the message's ack, or removal, was reported as done."""
    over: dict[Id, int] = {}
    for one in _acked(record):
        over[one.id] = min(over.get(one.id, one.answered), one.answered)
    comes_again = record.comes_again()
    for order in record.history.removed:
        for id_ in _surely_removed(order, comes_again):
            over[id_] = min(over.get(id_, order.answered), order.answered)
    for delivered in record.history.delivered:
        late = delivered.claimed - over.get(delivered.id, delivered.claimed)
        who = delivered.client_name
        if late > 0:
            yield f"message {delivered.number} was delivered to {who} {late / SECOND:.3f} s after its end"


def _acked(record: RunRecord) -> Iterator[Settled]:
    """The acks that were reported as done.

    An ack whose outcome was unknown at first does not count if the message may be sent again after a clear: the later
    report says only that the message is gone, and the clear may have removed it.
    """
    comes_again, sure = record.comes_again(), _sure(record)
    for one in record.history.settled:
        doubtful = one.id in comes_again and not sure(one)
        if one.kind == "ack" and one.result is Result.DONE and not one.lost and not doubtful:
            yield one


def _sure(record: RunRecord) -> Callable[[Settled], bool]:
    """Whether neither a settle nor an earlier one with its receipt had an unknown outcome."""
    unanswered = {(one.id, one.nonce) for one in record.history.settled if one.result is Result.UNKNOWN}
    return lambda one: not one.unknowns and (one.id, one.nonce) not in unanswered


def _surely_removed(order: Removed, comes_again: set[Id]) -> list[Id]:
    """The messages of a removal that are gone for good.

    A delete that found nothing left no removed mark, so it does not count for messages that may be sent again.
    """
    if order.what != "delete" or order.result is not Result.DONE:
        return []
    return [id_ for id_ in order.ids or [] if order.found or id_ not in comes_again]


def one_receipt_is_good(record: RunRecord) -> Iterator[str]:
    """A message is acked once: of two receipts at most one is current.

    An ack of unknown outcome does not count: when its process then finds the message gone, the ack is reported as done,
    whichever process removed the message.
    """
    acks: dict[Id, list[Settled]] = defaultdict(list)
    sure = _sure(record)
    for one in _acked(record):
        acks[one.id].append(one)
    for several in acks.values():
        first = min(several, key=lambda one: one.answered)
        later = [one for one in several if one.nonce != first.nonce and one.began > first.answered]
        if any(sure(one) for one in later):
            yield f"message {several[0].number} was acked by {len(several)} receipts, each of which was said to be good"


def a_receipt_is_lost_for_a_reason(record: RunRecord) -> Iterator[str]:
    """An ack is refused as too late only if another process claimed the message, or an operator removed it.

    A superseded message whose lease ran out is deleted by a claim. A process's own ack never makes its receipt be
    reported as lost.
    """
    taken: dict[Id, set[bytes]] = defaultdict(set)
    for model in record.model.rows.values():
        for id_, nonces in model.claims.items():
            taken[id_] |= nonces
    superseded = {id_ for model in record.model.rows.values() for id_ in model.superseded & model.gone}
    meant = _meant(record)
    released = {(one.id, one.nonce) for one in record.history.settled if one.kind in ("release", "reject")}
    lost = [one for one in record.history.settled if one.kind == "ack" and one.lost and not meant(one)]
    for one in lost:
        others_had_it = one.id in superseded or taken[one.id] - {one.nonce}
        if (one.id, one.nonce) not in released and not others_had_it:
            yield f"message {one.number}: an ack was refused as too late, and no other process ever leased it"


def _meant(record: RunRecord) -> Callable[[Settled], bool]:
    """Whether an operator may have removed the message of a settle, or another message replaced it.

    A clear removes messages of its row that were claimed before the clear was reported as done. The reference model of
    their rows says which messages were replaced: also by runs of a schedule, or by sends of unknown outcome.
    """
    history = record.history
    ids_ = {id_ for order in history.removed for id_ in order.ids or []}
    ids_ |= {id_ for row in record.model.rows.values() for id_ in row.replaced}
    claimed = {(delivered.id, delivered.nonce): delivered.claimed for delivered in history.delivered}
    cleared = _cleared(record)
    return lambda one: one.id in ids_ or cleared.get(one.id, -1) >= claimed.get((one.id, one.nonce), 0)


def _cleared(record: RunRecord) -> dict[Id, int]:
    """Until when each message that was ever claimed may have been cleared.

    A clear of unknown outcome may be carried out at any later time.
    """
    until: dict[str, int] = {}
    for order in record.history.removed:
        if order.ids is None:
            until[order.row] = max(
                until.get(order.row, 0), order.answered if order.result is Result.DONE else _FOR_EVER
            )
    rows = record.model.rows
    return {id_: moment for name, moment in until.items() if name in rows for id_ in rows[name].claims}


def attempts_are_counted(record: RunRecord) -> Iterator[str]:
    """The first delivery of a message is its first attempt, unless claims of unknown outcome had it before."""
    first: dict[Id, Delivered] = {}
    for delivered in record.history.delivered:
        first.setdefault(delivered.id, delivered)
    for delivered in first.values():
        claims = {nonce for row in record.model.rows.values() for nonce in row.claims.get(delivered.id, ())}
        if delivered.attempt > len(claims) + 1:
            yield f"message {delivered.number} begins with attempt {delivered.attempt}"


def dead_letters_are_kept(record: RunRecord) -> Iterator[str]:
    """A rejected message is a dead letter with that reason, until an operator redrives or removes it."""
    dead, meant = record.dead(), _meant(record)
    reasons: dict[Id, set[str]] = defaultdict(set)
    for one in record.history.settled:
        reasons[one.id].add(one.reason)
    rejected = [
        one for one in record.history.settled if one.kind == "reject" and one.result is Result.DONE and not one.lost
    ]
    for one in [one for one in rejected if not meant(one)]:
        if one.id not in dead:
            yield f"message {one.number} was rejected and is no dead letter"
        elif dead[one.id] not in reasons[one.id]:
            yield f"message {one.number} was rejected for {one.reason!r} and is dead for {dead[one.id]!r}"


def what_is_refused_changes_nothing(record: RunRecord) -> Iterator[str]:
    """A send that failed with any error but an unknown outcome sent nothing."""
    delivered = {one.number for one in record.history.delivered}
    for sent in record.history.sent:
        if sent.result is Result.REFUSED and sent.number in delivered:
            yield f"message {sent.number} was said not to be sent, and was handed out"


def polls_are_cheap(record: RunRecord) -> Iterator[str]:
    """A poll that finds nothing passes each tombstone a bounded number of times, and few beyond the head.

    At the end, one more message costs as little. Beyond the head only tombstones of messages that the process itself
    had are counted. Others stay there until the next claim: those of messages of other processes, up to a thousand, and
    those of messages that an operator removed before any process claimed them.
    """
    had: dict[str, set[Id]] = defaultdict(set)
    for delivered in record.history.delivered:
        had[delivered.client_name].add(delivered.id)
    for poll in record.history.expensive_polls:
        what = f"{poll.client_name} in row {poll.row}: a poll with nothing to do passed"
        if poll.times > PASSES:
            yield f"{what} a tombstone that it had passed {poll.times - 1} times before"
        if len(ahead := poll.ahead & had[poll.client_name]) > AHEAD:
            yield f"{what} {len(ahead)} tombstones of its own beyond the head"
    if record.last_poll > _TOMBSTONES:
        yield f"a message and a poll with nothing to do pass {record.last_poll} tombstones"


def idle_queues_are_served_in_time(record: RunRecord) -> Iterator[str]:
    """A message into an idle queue begins soon after its notice can be read, or when the queue has its turn."""
    for begin in record.history.late_begins:
        late = "did not begin in time" if begin.late is None else f"began {begin.late / SECOND:.3f} s too late"
        yield f"message {begin.number} into the idle queue {begin.queue} {late}"


_FOR_EVER: Final = 1 << 62
#: The process that rescans what all others have passed.
RESCANNER: Final = "walker"
#: What is sent by a clock that is further off than this may be found late.
_FAR_OFF: Final = 120 * SECOND
#: A process whose clock is further off than this may make its last late scan too early.
_READS_FAR_OFF: Final = 300 * SECOND
_TOMBSTONES: Final = 12

#: After the faults have ended, a lock may keep a process out for this much longer than the timeout: the process waits
#: half a second for a manager's answer, and reads the header of a busy row every half second.
_SLACK: Final = 2 * SECOND


def no_lock_stops_a_row_for_ever(record: RunRecord) -> Iterator[str]:
    """A process that finds a row locked claims from it after the timeout, whatever became of the lock's holder."""
    locks = record.locks
    for stop in locks.waits if locks else ():
        stopped = (stop.last_refused if stop.until is None else stop.until) - stop.since
        if locks and stop.client_name in locks.fault_free and stopped > locks.timeout + _SLACK:
            lasted = f"for {stopped / SECOND:.3f} s by a lock of {locks.timeout / SECOND} s"
            yield f"{stop.client_name} was kept out of row {stop.row} {lasted}"


def locks_are_honoured(record: RunRecord) -> Iterator[str]:
    """No process bypasses a lock that has not kept it out for the timeout."""
    locks = record.locks
    for stop in locks.waits if locks else ():
        if locks and stop.bypassed and stop.until is not None and stop.until - stop.known < locks.timeout:
            waited = f"after {(stop.until - stop.known) / SECOND:.3f} s instead of {locks.timeout / SECOND} s"
            yield f"{stop.client_name} bypassed the lock of row {stop.row} {waited}"


def locks_are_let_go_of(record: RunRecord) -> Iterator[str]:
    """At the end no row has a lock column.

    A process that no fault hit deletes its own lock columns, and releases a manager's lock once for each grant.
    """
    locks = record.locks
    if locks is None:
        return
    yield from locks.unreleased
    for left in locks.left:
        if left.visible:
            yield f"a lock column of {left.holder} in row {left.row} is still visible at the end"
        elif left.holder in locks.fault_free:
            yield f"{left.holder} left a lock column in row {left.row} to its time"


LOCK_CHECKERS: Final[tuple[Checker, ...]] = (no_lock_stops_a_row_for_ever, locks_are_honoured, locks_are_let_go_of)


#: All checkers.
CHECKERS: Final[tuple[Checker, ...]] = (
    rows_are_sound,
    nothing_sent_is_lost,
    everything_is_found_in_time,
    nothing_comes_back,
    one_receipt_is_good,
    a_receipt_is_lost_for_a_reason,
    attempts_are_counted,
    dead_letters_are_kept,
    what_is_refused_changes_nothing,
    polls_are_cheap,
    idle_queues_are_served_in_time,
    *KEY_CHECKERS,
    *GROUP_CHECKERS,
    *LOCK_CHECKERS,
)
