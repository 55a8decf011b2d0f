"""What is done to the schedules of a queue, as steps."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from astyqueue.durations import as_microseconds
from astyqueue.errors import BadInput, NotFound
from astyqueue.ids import is_derived
from astyqueue.instants import instant_of
from astyqueue.model.bodies import encode_body
from astyqueue.model.checks import check_text
from astyqueue.model.event import Kind
from astyqueue.model.message import MessageId, decode
from astyqueue.model.outgoing import Composer, Message, unique_of
from astyqueue.model.schedules import SCHEDULE, Misfire, Origin, Overlap, Policies, Schedule, Template, check_schedule_name
from astyqueue.protocol import schedules
from astyqueue.protocol.browse import contents
from astyqueue.protocol.editing import Kept
from astyqueue.protocol.fire import fired
from astyqueue.protocol.rows import is_home
from astyqueue.protocol.schedules import Wanted
from astyqueue.protocol.steps import Steps, read_column
from astyqueue.protocol.triggercolumn import readable_schedule, run_of, trigger_name
from astyqueue.queue.core import Core
from astyqueue.queue.history import History
from astyqueue.queue.producer import Sent
from astyqueue.queue.uniquely import sent_or_kept
from astyqueue.triggers import Trigger

#: The longest body of a schedule: a firing writes it twice into one batch.
BODY_BYTES: Final = 128 * 1024
#: Unless its sender says otherwise, a message's own trigger runs to its end, one run after the other, as if it put itself back each time.
_OWN: Final = Policies(Misfire.read("all"), Overlap.QUEUE_ALL)


def own_policies(message: Message, misfire: str | None, overlap: str | None) -> Policies:
    """The policies of a message's own trigger; BadInput for others than there are, and for runs beside each other under one unique key."""
    policies = Policies.read(misfire or str(_OWN.misfire), overlap or _OWN.overlap, _OWN.after_failure)
    if message.unique is not None and policies.overlap is Overlap.ALLOW:
        problem = f'overlap="{Overlap.ALLOW}" has runs beside each other, and of messages with a unique key there is one at a time'
        raise BadInput(problem)
    return policies


def policies_without_trigger() -> BadInput:
    """The error of a message that is to come once and says by which policies it comes again."""
    return BadInput("misfire= and overlap= say what becomes of the slots of a trigger: give a trigger= too, or leave them out")


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule as somebody asks for it: when, what it sends, and by which policies."""

    trigger: Trigger
    message: Message
    policies: Policies = field(default_factory=Policies)
    origin: Origin = Origin.PEOPLE
    since: int | None = None


def _check_trigger(trigger: object) -> None:
    if not isinstance(trigger, Trigger):
        problem = f"{trigger!r:.80} is no trigger: give a Cron, an Every, a Once or another Trigger of astyqueue.triggers"
        raise BadInput(problem)


def _name_of(key: str) -> str:
    """The name of a message's own schedule, which is its key; BadInput for a key that can be none."""
    with contextlib.suppress(BadInput):
        return check_schedule_name(key)
    problem = (
        f"key {key!r:.80}: a message with a trigger is a schedule by the name of its key, which has to be printable text of 1 to 200 bytes"
    )
    raise BadInput(problem)


def _has_sent(schedule: Schedule, message: MessageId) -> bool:
    """Whether this is the message of one of its slots, and it is a message's own."""
    return schedule.origin is Origin.MESSAGE and run_of(schedule, 0).id[8:] == message.id[8:]


class Scheduling:
    """The schedules of one queue. Each lies in the home row that its name decides."""

    def __init__(self, core: Core) -> None:
        """Work with the parts of an open queue."""
        self._core = core

    @property
    def _history(self) -> History:
        return self._core.claimer.history

    def kept(self, name: str) -> Kept:
        """Where the schedule of this name is."""
        ring = self._core.ring
        return Kept(self._core.process, ring.home(ring.shard_of_key(check_schedule_name(name))), name)

    def save(self, name: str, planned: Planned, *, replaces: bool) -> Steps[Schedule]:
        """Make a schedule, or replace the one of this name."""
        _check_trigger(planned.trigger)
        yield from self._core.following.time.follow()
        kept = self.kept(name)
        wanted = Wanted(planned.trigger, self.template(planned.message), planned.policies, planned.origin, planned.since)
        schedule = yield from schedules.save(kept, wanted, replaces=replaces)
        yield from self._changed(kept)
        return schedule

    def template(self, message: Message) -> Template:
        """What the messages of a schedule are made of; BadInput for what no schedule can send."""
        if message.delay is not None or message.at is not None:
            problem = "the trigger says when a schedule's messages are due: give no delay and no moment"
            raise BadInput(problem)
        if message.unique is not None:
            problem = f"unique={message.unique!r}: a schedule's messages share its key; its overlap policy says how many there are"
            raise BadInput(problem)
        if isinstance(message.expires, datetime):
            problem = f"expires={message.expires!r}: a schedule's messages expire so long after they are fired, so give a duration"
            raise BadInput(problem)
        most = min(BODY_BYTES, self._core.settings.behaviour.body_bytes)
        composer = Composer(self._core.settings, self._core.process.now())
        composed = composer.compose(None, replace(message, body=None))
        envelope = decode(composed.value)
        expires = None if message.expires is None else as_microseconds(message.expires)
        headers = envelope.headers or {}
        body = encode_body(message.body, most)
        return Template(body, composed.priority, envelope.key, headers, expires, envelope.lease, envelope.attempts)

    def send(self, message: Message, trigger: Trigger, policies: Policies = _OWN) -> Steps[Sent]:
        """Send a message again and again, at its own trigger's slots; the id of its first run.

        KeyTaken is raised if another message has its unique key, ScheduleTaken if its key is the name of a schedule.
        """
        _check_trigger(trigger)
        unique = unique_of(message)
        template = self.template(replace(message, unique=None))
        yield from self._core.following.time.follow()
        process = self._core.process
        kept = self.kept(f"message {process.nonce().hex()}" if message.key is None else _name_of(message.key))
        repeating = schedules.Repeating(kept, Wanted(trigger, template, policies, Origin.MESSAGE), unique)
        if unique is None:
            holder = yield from repeating.carry_out()
        else:
            holder = yield from sent_or_kept(process, repeating.carry_out, key=kept.name, unique=unique)
        if holder.sent:
            events = self._history.events
            replaced = [events.of_order(Kind.CANCELLED, holder.replaced, kept.name, why="replaced")] if holder.replaced else []
            sent = [*events.of_scheduled(kept.row, repeating.fired), *events.of_firing(kept.row, repeating.fired)]
            yield from self._history.tell([*replaced, *sent])
            yield from self._changed(kept)
        return Sent(holder.id, holder.sent)

    def delete(self, message: MessageId | str) -> Steps[bool]:
        """Delete a message; one that was sent with a trigger of its own never comes again, whichever of its runs this is."""
        id_ = self._core.operating.own(message)
        own = yield from self.of_message(id_)
        deleted = yield from self._core.operating.delete(id_)
        if own is None:
            return deleted
        return (yield from self.remove(own.name, with_run=True)) is not None or deleted

    def stop(self, key: str) -> Steps[bool]:
        """Stop the message that was sent under this key with a trigger of its own; whether there was one."""
        found = yield from self.kept(key).found()
        if found is None or found[1].origin is not Origin.MESSAGE:
            return False
        return (yield from self.remove(key, with_run=True)) is not None

    def pause(self, name: str, why: str) -> Steps[Schedule]:
        """Fire nothing until it is resumed."""
        kept = self.kept(name)
        schedule = yield from schedules.pause(kept, check_text(why, "why a schedule is paused"))
        yield from self._changed(kept)
        return schedule

    def resume(self, name: str) -> Steps[Schedule]:
        """Go on with the next slot from now on."""
        kept = self.kept(name)
        schedule = yield from schedules.resume(kept, self.trigger)
        yield from self._history.tell(self._history.events.of_skipping(schedules.passed_over(schedule)))
        yield from self._changed(kept)
        return schedule

    def run_now(self, name: str) -> Steps[Schedule]:
        """Send a message of it now."""
        kept = self.kept(name)
        schedule = yield from schedules.run_now(kept)
        asked_for = schedule.history[-1]
        sent = fired(schedule, {asked_for.slot: asked_for.run} if asked_for.run else {}, asked_for.at)
        yield from self._history.tell(self._history.events.of_scheduled(kept.row, sent))
        yield from self._changed(kept)
        return schedule

    def backfill(self, name: str, since: datetime, until: datetime) -> Steps[int]:
        """Send a message for each slot of a range; how many."""
        kept = self.kept(name)
        schedule = yield from self.show(name)
        slots = schedules.slots_between(self.trigger(schedule), instant_of(since), instant_of(until))
        for part in schedules.in_commits(schedule, slots):
            sent = yield from schedules.backfill(kept, part)
            yield from self._history.tell(self._history.events.of_scheduled(kept.row, sent))
            yield from self._changed(kept)
        return len(slots)

    def remove(self, name: str, *, with_run: bool = False) -> Steps[Schedule | None]:
        """Remove it, and its last message too if that is wanted; the schedule as it was."""
        kept = self.kept(name)
        removed = yield from schedules.remove(kept, with_run=with_run)
        yield from self._changed(kept)
        return removed

    def discard(self, name: str) -> Steps[bool]:
        """Remove it although it cannot be read; whether it was there."""
        kept = self.kept(name)
        discarded = yield from schedules.discard(kept.process, kept.row, trigger_name(name))
        yield from self._changed(kept)
        return discarded

    def show(self, name: str) -> Steps[Schedule]:
        """A schedule as it is; NotFound if there is none of this name."""
        found = yield from self.kept(name).found()
        if found is None:
            missing = f"queue {self._core.settings.name!r} has no schedule {name!r}"
            raise NotFound(missing)
        return found[1]

    def all(self) -> Steps[list[Schedule]]:
        """All schedules of the queue, by name."""
        ring = self._core.ring
        rows = [ring.home(shard) for shard in range(ring.layout.concurrency_shards)]
        return (yield from schedules.schedules_in(rows))

    def of_message(self, message: MessageId) -> Steps[Schedule | None]:
        """The schedule of which this is, or was, the message of a slot, if that is the message's own trigger.

        A message that is there names its schedule; for one that is gone those of its row are looked through.
        """
        if not is_home(message.row) or not is_derived(message.id):
            return None
        found = yield from contents([message])
        envelope = found[message].envelope if message in found else None
        if envelope and (name := (envelope.headers or {}).get(SCHEDULE)):
            column = yield from read_column(message.row, trigger_name(name))
            named = None if column is None else readable_schedule(message.row, column.value)
            return named if named and _has_sent(named, message) else None
        return (yield from schedules.found_in(message.row, lambda one: _has_sent(one, message)))

    def trigger(self, schedule: Schedule) -> Trigger:
        """The trigger of a schedule; UnknownTrigger if it is a user's that is not registered here."""
        return self._core.triggers.read(schedule.anchored)

    def _changed(self, kept: Kept) -> Steps[None]:
        """Have the row looked at here and elsewhere: there may be something due in it."""
        self._core.claimer.changed(kept.row)
        yield from self._core.rounds.survey.doorbell.ring([kept.row])
