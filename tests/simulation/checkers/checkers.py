"""Oracles: what holds of every history, whatever faults its world had. Each yields what it finds wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.units import SECOND
from tests.simulation.checkers.keys import HOME_ORACLES
from tests.simulation.checkers.locks import LOCK_ORACLES
from tests.simulation.checkers.polls import AHEAD, PASSES
from tests.simulation.engine.history import Evidence, Handed, Oracle, Removed, Result, Settled


def rows_are_sound(evidence: Evidence) -> Iterator[str]:
    """No commit lists a message twice, claims one that is gone or dead, or miscounts attempts."""
    yield from evidence.truth.violations


def nothing_sent_is_lost(evidence: Evidence) -> Iterator[str]:
    """At the end, when all rows were drained, each message whose send returned was acked or removed, or is dead."""
    history, dead = evidence.history, evidence.dead()
    may_be_gone = {one.id for one in history.settled if one.kind == "ack" and not one.lost}.union(dead)
    for sent in history.sent:
        if sent.message is not None and sent.message.id not in may_be_gone and not evidence.removed(sent):
            message = f"message {sent.number}, {ids.text(sent.message.id)},"
            yield f"{message} was sent and nobody ever got rid of it, but it is nowhere"


def everything_is_found_in_time(evidence: Evidence) -> Iterator[str]:
    """A message is found by the ordinary scans, not only by the rescan at the end.

    This does not hold if its sender's clock was far off, or that of any process that claims.
    """
    if evidence.history.reader_error > _READS_FAR_OFF:
        return
    seen: set[int] = set()
    sent = {one.number: one for one in evidence.history.sent}
    for handed in evidence.history.handed:
        one = sent.get(handed.number)
        if (
            one
            and handed.who == WALKER
            and handed.number not in seen
            and one.result is Result.DONE
            and abs(one.clock_error) < _FAR_OFF
        ):
            missed = f"message {one.number} was passed over"
            yield f"{missed}: nobody saw it before somebody walked over half a day once more"
        seen.add(handed.number)


def nothing_comes_back(evidence: Evidence) -> Iterator[str]:
    """No process gets a message by a commit requested after the message's ack, or removal, was reported as done."""
    over: dict[Id, int] = {}
    for one in _acked(evidence):
        over[one.id] = min(over.get(one.id, one.told), one.told)
    comes_again = evidence.comes_again()
    for order in evidence.history.removed:
        for id_ in _surely_removed(order, comes_again):
            over[id_] = min(over.get(id_, order.told), order.told)
    for handed in evidence.history.handed:
        late = handed.claimed - over.get(handed.id, handed.claimed)
        if late > 0:
            yield f"message {handed.number} was handed to {handed.who} {late / SECOND:.3f} s after it was done with"


def _acked(evidence: Evidence) -> Iterator[Settled]:
    """The acks that were reported as done.

    An ack whose outcome was unknown at first does not count if the message may be sent again after a clear: the later
    report says only that the message is gone, and the clear may have removed it.
    """
    comes_again, sure = evidence.comes_again(), _sure(evidence)
    for one in evidence.history.settled:
        doubtful = one.id in comes_again and not sure(one)
        if one.kind == "ack" and one.result is Result.DONE and not one.lost and not doubtful:
            yield one


def _sure(evidence: Evidence) -> Callable[[Settled], bool]:
    """Whether neither a settle nor an earlier one with its receipt had an unknown outcome."""
    unsure = {(one.id, one.nonce) for one in evidence.history.settled if one.result is Result.UNKNOWN}
    return lambda one: not one.unknowns and (one.id, one.nonce) not in unsure


def _surely_removed(order: Removed, comes_again: set[Id]) -> list[Id]:
    """The messages of a removal that are gone for good.

    A delete that found nothing left no removed mark, so it does not count for messages that may be sent again.
    """
    if order.what != "delete" or order.result is not Result.DONE:
        return []
    return [id_ for id_ in order.ids or [] if order.found or id_ not in comes_again]


def one_receipt_is_good(evidence: Evidence) -> Iterator[str]:
    """A message is acked once: of two receipts at most one is current.

    An ack of unknown outcome does not count: when its process then finds the message gone, the ack is reported as done,
    whichever process removed the message.
    """
    acks: dict[Id, list[Settled]] = defaultdict(list)
    sure = _sure(evidence)
    for one in _acked(evidence):
        acks[one.id].append(one)
    for several in acks.values():
        first = min(several, key=lambda one: one.told)
        later = [one for one in several if one.nonce != first.nonce and one.began > first.told]
        if any(sure(one) for one in later):
            yield f"message {several[0].number} was acked by {len(several)} receipts, each of which was said to be good"


def a_receipt_is_lost_for_a_reason(evidence: Evidence) -> Iterator[str]:
    """An ack is refused as too late only if another process claimed the message, or an operator removed it.

    A process is never told that its receipt is no longer current because of its own ack.
    """
    taken: dict[Id, set[bytes]] = defaultdict(set)
    for truth in evidence.truth.rows.values():
        for id_, nonces in truth.takers.items():
            taken[id_] |= nonces
    meant = _meant(evidence)
    released = {(one.id, one.nonce) for one in evidence.history.settled if one.kind in ("release", "reject")}
    lost = [one for one in evidence.history.settled if one.kind == "ack" and one.lost and not meant(one)]
    for one in lost:
        if (one.id, one.nonce) not in released and not taken[one.id] - {one.nonce}:
            yield f"message {one.number}: an ack was refused as too late, and nobody else ever held it"


def _meant(evidence: Evidence) -> Callable[[Settled], bool]:
    """Whether an operator may have removed the message of a settle, or another message may have replaced it.

    A clear removes messages of its row that were claimed before the clear was reported as done. If a send had an
    unknown outcome, only the processes that got its message know the id. The history does not say which messages were
    replaced by runs of a schedule, or which runs by other messages; the truth of their rows does.
    """
    history = evidence.history
    ids_ = {id_ for order in history.removed for id_ in order.ids or []}
    ids_ |= {id_ for row in evidence.truth.rows.values() for id_ in row.replaced}
    replaced = {sent.number: sent for sent in history.sent if any(evidence.replacing(sent))}
    ids_ |= {sent.message.id for sent in replaced.values() if sent.message}
    ids_ |= {handed.id for handed in history.handed if handed.number in replaced}
    claimed = {(handed.id, handed.nonce): handed.claimed for handed in history.handed}
    cleared = _cleared(evidence)
    return lambda one: one.id in ids_ or cleared.get(one.id, -1) >= claimed.get((one.id, one.nonce), 0)


def _cleared(evidence: Evidence) -> dict[Id, int]:
    """Until when each message that was ever claimed may have been cleared.

    A clear of unknown outcome may be carried out at any later time.
    """
    until: dict[str, int] = {}
    for order in evidence.history.removed:
        if order.ids is None:
            until[order.row] = max(until.get(order.row, 0), order.told if order.result is Result.DONE else _FOR_EVER)
    rows = evidence.truth.rows
    return {id_: moment for name, moment in until.items() if name in rows for id_ in rows[name].takers}


def attempts_are_counted(evidence: Evidence) -> Iterator[str]:
    """The first delivery of a message is its first attempt, unless claims of unknown outcome had it before."""
    first: dict[Id, Handed] = {}
    for handed in evidence.history.handed:
        first.setdefault(handed.id, handed)
    for handed in first.values():
        takers = {nonce for row in evidence.truth.rows.values() for nonce in row.takers.get(handed.id, ())}
        if handed.attempt > len(takers) + 1:
            yield f"message {handed.number} begins with attempt {handed.attempt}"


def dead_letters_are_kept(evidence: Evidence) -> Iterator[str]:
    """A rejected message is a dead letter with that reason, until an operator redrives or removes it."""
    dead, meant = evidence.dead(), _meant(evidence)
    reasons: dict[Id, set[str]] = defaultdict(set)
    for one in evidence.history.settled:
        reasons[one.id].add(one.reason)
    rejected = [
        one for one in evidence.history.settled if one.kind == "reject" and one.result is Result.DONE and not one.lost
    ]
    for one in [one for one in rejected if not meant(one)]:
        if one.id not in dead:
            yield f"message {one.number} was rejected and is no dead letter"
        elif dead[one.id] not in reasons[one.id]:
            yield f"message {one.number} was rejected for {one.reason!r} and is dead for {dead[one.id]!r}"


def what_is_refused_changes_nothing(evidence: Evidence) -> Iterator[str]:
    """A send that failed with any error but an unknown outcome sent nothing."""
    handed = {one.number for one in evidence.history.handed}
    for sent in evidence.history.sent:
        if sent.result is Result.REFUSED and sent.number in handed:
            yield f"message {sent.number} was said not to be sent, and was handed out"


def polls_are_cheap(evidence: Evidence) -> Iterator[str]:
    """A poll that finds nothing passes each tombstone a bounded number of times, and few beyond the head.

    At the end, one more message costs as little. Beyond the head only tombstones of messages that the process itself
    had are counted. Others stay there until the next claim: those of messages of other processes, up to a thousand, and
    those of messages that an operator removed before any process claimed them.
    """
    had: dict[str, set[Id]] = defaultdict(set)
    for handed in evidence.history.handed:
        had[handed.who].add(handed.id)
    for poll in evidence.history.dear:
        what = f"{poll.who} in row {poll.row}: a poll with nothing to do walked over"
        if poll.times > PASSES:
            yield f"{what} a grave that it had passed {poll.times - 1} times before"
        if len(ahead := poll.ahead & had[poll.who]) > AHEAD:
            yield f"{what} {len(ahead)} graves of its own beyond the head"
    if evidence.last_poll > _GRAVES:
        yield f"a message and a poll with nothing to do walk over {evidence.last_poll} graves"


_FOR_EVER: Final = 1 << 62
#: The process that rescans what all others have passed.
WALKER: Final = "walker"
#: What is sent by a clock that is further off than this may be found late.
_FAR_OFF: Final = 120 * SECOND
#: A process whose clock is further off than this may make its last late scan too early.
_READS_FAR_OFF: Final = 300 * SECOND
_GRAVES: Final = 12

#: All oracles.
ORACLES: Final[tuple[Oracle, ...]] = (
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
    *HOME_ORACLES,
    *LOCK_ORACLES,
)
