"""Checkers of unique keys, of schedules, and of sends that are repeated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations
from typing import Final

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.model.schedule import Overlap, Schedule
from astyqueue.protocol.layout.schedule_column import run_of
from astyqueue.protocol.scheduling.policies import due_occurrences
from astyqueue.triggers import Triggers
from astyqueue.units import SECOND
from tests.simulation.checkers.key_model import KeyModel
from tests.simulation.engine.history import Result, RunRecord, Sent

_FOR_EVER: Final = 1 << 62


def one_message_has_a_key(record: RunRecord) -> Iterator[str]:
    """Of two unique messages with one key whose sends succeeded, the first had ended when the second was sent.

    One that was superseded counts as ended, although a process may still have it.
    """
    ends = _Ends(record)
    by_key: dict[str, list[Sent]] = defaultdict(list)
    for sent in record.history.sent:
        if sent.key and sent.result is Result.DONE:
            by_key[sent.key].append(sent)
    pairs = [pair for several in by_key.values() for pair in permutations(several, 2)]
    for first, second in pairs:
        if first.answered < second.began and ends.earliest(first) > second.answered:
            yield f"messages {first.number} and {second.number} both have the key {first.key!r}"


def no_older_value_is_delivered(record: RunRecord) -> Iterator[str]:
    """Once a send with a unique key has succeeded, no process claims an older message of that key.

    Messages that were dead letters do not count: one that is redriven takes its key again when that is free.
    """
    died = record.died()
    by_key: dict[str, list[Sent]] = defaultdict(list)
    for sent in record.history.sent:
        if sent.key and sent.result is Result.DONE and sent.message is not None and sent.message.id not in died:
            by_key[sent.key].append(sent)
    followed = {
        older.message.id: min(newer.answered for newer in several if newer.began > older.answered)
        for several in by_key.values()
        for older in several
        if older.message is not None and any(newer.began > older.answered for newer in several)
    }
    for delivered in record.history.delivered:
        late = delivered.claimed - followed.get(delivered.id, delivered.claimed)
        if late > 0:
            later = f"{late / SECOND:.3f} s after a newer message of its key was sent"
            yield f"message {delivered.number} was delivered to {delivered.client_name} {later}"


def a_taken_key_has_an_owner(record: RunRecord) -> Iterator[str]:
    """A send that fails because its key is taken names a message that had not surely ended before the send began."""
    over = {
        one.id: one.answered
        for one in record.history.settled
        if one.kind == "ack" and one.result is Result.DONE and not one.lost
    }
    for sent in record.history.sent:
        if sent.holder is not None and over.get(sent.holder, _FOR_EVER) < sent.began:
            unsent = f"message {sent.number} was not sent"
            yield f"{unsent}, for its key was said to be that of a message that was acked long before"


class _Ends:
    """The earliest moments at which messages may have ended."""

    def __init__(self, record: RunRecord) -> None:
        self._evidence = record
        self._died = record.died()
        self._settled: dict[Id, int] = {}
        for one in record.history.settled:
            if one.kind in ("ack", "reject"):
                self._settled[one.id] = min(one.began, self._settled.get(one.id, _FOR_EVER))

    def earliest(self, sent: Sent) -> int:
        """The moment from which it is not certain that the message still has its key."""
        if sent.message is None or sent.message.id in self._died:
            return 0
        orders = [one.began for one in self._evidence.orders(sent.message.id, sent.message.row)]
        replaced = [other.began for other in self._evidence.replacing(sent)]
        return min([self._settled.get(sent.message.id, _FOR_EVER), *orders, *replaced])


def messages_come_into_being_once(record: RunRecord) -> Iterator[str]:
    """No commit puts a message that an earlier one put: neither a repeated send, nor an occurrence, nor a unique send.

    A repeated send may bring back what was cleared, or purged as a dead letter; its documentation says so.
    """
    cleared = {one.row for one in record.history.removed if one.what == "clear"}
    purged = {id_ for one in record.history.removed if one.what == "purge" for id_ in one.ids or ()}
    for row, keys in record.model.key_models.items():
        for id_ in [id_ for id_ in keys.inserted_twice if row not in cleared and id_ not in purged]:
            yield f"row {row}: {ids.text(id_)} was put a second time"


def what_commits_put_is_not_lost(record: RunRecord) -> Iterator[str]:
    """At the end, when all rows were drained, each message that a commit put is gone or dead."""
    for row, keys in record.model.key_models.items():
        row_model = record.model.rows[row]
        for id_ in sorted(keys.inserted - row_model.gone - row_model.dead.keys()):
            yield f"row {row}: {ids.text(id_)} was put by a commit, and at the end it was neither claimed nor removed"


def occurrences_have_one_message_each(record: RunRecord) -> Iterator[str]:
    """At the end each occurrence of each schedule was fired or skipped, and each fired occurrence has its message.

    If the overlap policy allows overlaps, every occurrence has one.
    """
    schedules = {
        schedule.name: (keys, schedule)
        for keys in record.model.key_models.values()
        for schedule in keys.schedules.values()
    }
    for saved in record.history.saved:
        if saved.name in schedules:
            keys, schedule = schedules[saved.name]
            yield from _wrong_occurrences(keys, schedule, saved.occurrences)
        elif saved.result is Result.DONE:
            yield f"schedule {saved.name!r} was made, and is nowhere"


def _wrong_occurrences(keys: KeyModel, schedule: Schedule, occurrences: int) -> Iterator[str]:
    due = due_occurrences(Triggers().read(schedule.anchored), 0, _FOR_EVER)
    inserted = sum(run_of(schedule, occurrence).id in keys.inserted for occurrence in (due.latest if due else []))
    if not schedule.ended or schedule.occurrences != occurrences:
        yield f"schedule {schedule.name!r}: {schedule.occurrences} of {occurrences} occurrences were dealt with"
    if inserted != schedule.fired or schedule.fired + schedule.skipped != schedule.occurrences:
        counted = f"{schedule.fired} occurrences count as fired, {schedule.skipped} as skipped"
        yield f"schedule {schedule.name!r}: {counted}; {inserted} have messages"
    if schedule.policies.overlap is Overlap.ALLOW and inserted != occurrences:
        yield f"schedule {schedule.name!r}: {inserted} of {occurrences} occurrences have messages"


KEY_CHECKERS: Final = (
    one_message_has_a_key,
    no_older_value_is_delivered,
    a_taken_key_has_an_owner,
    messages_come_into_being_once,
    what_commits_put_is_not_lost,
    occurrences_have_one_message_each,
)
