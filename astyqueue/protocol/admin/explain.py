"""Reads what a store has of one message, for an explanation of its state.

It changes nothing: every read is plain, and other processes go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from astyqueue.errors import Undecodable
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Event
from astyqueue.model.explanation import Death, Hiding, MessageFacts, Predecessor, RowChange
from astyqueue.model.settings import Behaviour
from astyqueue.model.views import Content, Standing
from astyqueue.protocol.admin.browse import STANDINGS
from astyqueue.protocol.claiming.selection import AHEAD_AT_MOST
from astyqueue.protocol.history import HistoryCursor, HistoryFilter
from astyqueue.protocol.layout.columns import (
    HEADER,
    Entry,
    Mark,
    State,
    Timer,
    Type,
    dead_name,
    decode_dead,
    decode_header,
    hidden_by,
    message_name,
)
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.parallel_reads import both_in_parallel
from astyqueue.protocol.row.group_index import group_order
from astyqueue.protocol.row.snapshot import read_all_timers
from astyqueue.protocol.steps import Client, Steps, read_column, read_one
from astyqueue.store import Column, Named


class _RowFacts(NamedTuple):
    """The last change of a message's row, what hides the message there, and why the row cannot be read, if so."""

    changed: RowChange | None
    hiding: Hiding | None
    broken: str


def message_facts(process: Client, ring: Ring, message: MessageId, behaviour: Behaviour) -> Steps[MessageFacts]:
    """What the store has of a message, in three round trips, or four if the history has events of it.

    The header is read first, then the timers, then the message and its dead column, as in a claim: so a message that
    another process settles meanwhile is never taken for one that waits.
    """
    now = process.now()
    header = yield from read_column(message.row, HEADER)
    row = yield from _row_facts(message, header)
    names = message_name(message.priority, message.id), dead_name(message.priority, message.id)
    columns, events = yield from both_in_parallel(
        read_one(Named(message.row, names)), _events(process, ring, message, behaviour.history_kept_us)
    )
    values = {column.name.type: column.value for column in columns}
    content = Content.of(values[Type.MESSAGE]) if Type.MESSAGE in values else None
    return MessageFacts(
        message,
        behaviour,
        now,
        content,
        row.changed,
        hiding=row.hiding,
        death=_death(values[Type.DEAD]) if Type.DEAD in values else None,
        broken=row.broken,
        too_far_ahead=bool(content and content.envelope and content.envelope.sent > now + AHEAD_AT_MOST),
        events=tuple(events),
    )


def _row_facts(message: MessageId, header: Column | None) -> Steps[_RowFacts]:
    changed = None if header is None else RowChange(header.written, "")
    floor = 0
    try:
        if header is not None:
            known = decode_header(message.row, header.value)
            changed, floor = RowChange(header.written, known.owner), known.floor
        timers = yield from read_all_timers(message.row, floor)
    except Undecodable as error:
        return _RowFacts(changed, None, str(error))
    listed = ((timer, one) for timer in timers for one in hidden_by(timer) if one.id == message.id)
    timer, one = next(listed, (None, None))
    if timer is None or one is None:
        return _RowFacts(changed, None, "")
    if timer.state == State.BLOCKED:
        return _RowFacts(changed, _blocking(message, one, timers), "")
    return _RowFacts(changed, _hiding(timer, one), "")


def _blocking(message: MessageId, blocked: Entry | Mark, timers: Sequence[Timer]) -> Hiding | None:
    """For which message of its group a blocked one waits; None if none is left, so that it is claimed next."""
    listed = [(timer, one) for timer in timers for one in hidden_by(timer) if one.group == blocked.group]
    under_way = [(timer, one) for timer, one in listed if timer.state != State.BLOCKED]
    before = sorted(group_order(one) for _, one in listed)
    if under_way:
        timer, one = under_way[0]
        predecessor = Predecessor(MessageId(message.row, one.priority, one.id), _hiding(timer, one))
    elif before[0] < group_order(blocked):
        priority, id_ = before[0]
        predecessor = Predecessor(MessageId(message.row, -priority, id_), None)
    else:
        return None
    return Hiding(Standing.BLOCKED, message.moment, blocked.spent, "", predecessor)


def _hiding(timer: Timer, one: Entry | Mark) -> Hiding:
    """What hides a message that a timer lists; one with a mark was given back early and is not leased."""
    if isinstance(one, Mark):
        return Hiding(Standing.BACKING_OFF, min(one.due, timer.due), one.spent, "")
    holder = timer.holder if timer.state == State.LEASED else ""
    return Hiding(STANDINGS[State(timer.state)], timer.due, one.spent, holder)


def _death(value: bytes) -> Death:
    dead = decode_dead(value)
    return Death(dead.at, dead.attempts, dead.kind, dead.reason)


def _events(process: Client, ring: Ring, message: MessageId, kept: int) -> Steps[list[Event]]:
    """The events of a message that the history still has."""
    now = process.now()
    cursor = HistoryCursor(ring, HistoryFilter(now - kept, now + 1, message))
    events: list[Event] = []
    while not cursor.over:
        events += yield from cursor.go_on()
    return events
