"""Checkers of message groups: one message of each is under way at a time, and they come in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Final

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.units import SECOND
from tests.simulation.engine.history import Checker, ClaimAhead, Result, RunRecord, Sent

#: What is sent by a clock that is further off than this, or read by one that is further ahead, may come out of order.
_CLOCKS: Final = SECOND // 20
#: A message that lands before the first late scan of its time is not late; and when that scan was due in any process.
_LANDED: Final = 2 * SECOND // 5
_SCANNED: Final = SECOND


def one_of_a_group_is_under_way(record: RunRecord) -> Iterator[str]:
    """A message of a group is leased for the first time only when each one before it was acked, removed or is dead."""
    groups = _groups(record)
    for name, row in record.model.rows.items():
        under_way: dict[str, Id] = {}
        for turn in sorted(row.turns):  # of one commit, what ends comes first
            group = groups.get(turn.id)
            if group is None:
                continue
            other = under_way.get(group)
            if turn.begins and other is not None:
                both = f"{ids.text(other)} and {ids.text(turn.id)} of group {group}"
                yield f"row {name}, commit {turn.commit}: {both} are under way at once"
            if turn.begins:
                under_way[group] = turn.id
            elif other == turn.id:
                del under_way[group]


def _groups(record: RunRecord) -> dict[Id, str]:
    """The group of each message; that of a send of unknown outcome is known by its delivery."""
    by_number = {sent.number: sent.group for sent in record.history.sent if sent.group}
    groups = {sent.message.id: sent.group for sent in record.history.sent if sent.group and sent.message}
    groups |= {one.id: by_number[one.number] for one in record.history.delivered if one.number in by_number}
    return groups


def a_group_comes_in_order(record: RunRecord) -> Iterator[str]:
    """A message of a group is not handed out before one that was sent before it, unless that one landed late.

    It may have landed late where a process claims whose clock is ahead: that one scans ids that are still to come.
    """
    claimed: dict[Id, int] = {}
    for delivered in record.history.delivered:
        claimed.setdefault(delivered.id, delivered.claimed)
    of_group: dict[str, list[Sent]] = defaultdict(list)
    for sent in record.history.sent:
        if sent.group and sent.result is Result.DONE and sent.message and sent.message.id in claimed:
            of_group[sent.group].append(sent)
    for some in of_group.values():
        for earlier, later in permutations(some, 2):
            if _comes_before(earlier, later) and _overtaken(claimed, earlier, later, record.history.ahead):
                both = f"message {later.number} was handed out before {earlier.number}"
                yield f"{both}, of the same group and sent before it"


def _comes_before(earlier: Sent, later: Sent) -> bool:
    if earlier.message is None or later.message is None or earlier.message.row != later.message.row:
        return False
    landed = earlier.answered - earlier.began < _LANDED and abs(earlier.clock_error) < _CLOCKS
    return landed and earlier.answered < later.began and earlier.message.id < later.message.id


def _overtaken(claimed: dict[Id, int], earlier: Sent, later: Sent, ahead: Sequence[ClaimAhead]) -> bool:
    if earlier.message is None or later.message is None:
        return False
    at = claimed[later.message.id]
    before = earlier.answered + _SCANNED < at < claimed[earlier.message.id]
    return before and not any(_scanned_ahead(one, earlier, at) for one in ahead)


def _scanned_ahead(claim: ClaimAhead, earlier: Sent, at: int) -> bool:
    """Whether a claim begun before `at`, by a clock ahead, may have scanned a message's id before it landed."""
    reached = claim.began + claim.clock_error + _SCANNED
    return claim.clock_error > _CLOCKS and claim.began < at and earlier.began < reached


GROUP_CHECKERS: Final[tuple[Checker, ...]] = (one_of_a_group_is_under_way, a_group_comes_in_order)
