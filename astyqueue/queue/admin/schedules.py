"""Commands on the schedules of a queue, as steps. Each schedule is stored in the home row of its name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final

from astyqueue.clock import instant
from astyqueue.durations import as_microseconds, instant_of
from astyqueue.errors import BadInput, NotFound, ScheduleTaken, Undecodable, UnknownTrigger, saying_how_far
from astyqueue.ids import is_derived
from astyqueue.json_form import check_text
from astyqueue.model.body import encode_body
from astyqueue.model.envelope import MessageId, decode
from astyqueue.model.event import Kind
from astyqueue.model.message import Message, MessageEncoder, Unique, unique_of
from astyqueue.model.schedule import (
    SCHEDULE,
    Misfire,
    Origin,
    Overlap,
    Policies,
    Schedule,
    Template,
    check_schedule_name,
)
from astyqueue.model.validation import check_count
from astyqueue.protocol.admin.browse import contents
from astyqueue.protocol.layout.rows import is_home
from astyqueue.protocol.layout.schedule_column import readable_schedule, run_of, trigger_name
from astyqueue.protocol.scheduling import schedule_commands as stored
from astyqueue.protocol.scheduling import schedule_definition
from astyqueue.protocol.scheduling.fire import fired
from astyqueue.protocol.scheduling.schedule_commit import ScheduleHandle, found_in, schedules_in
from astyqueue.protocol.scheduling.schedule_definition import RepeatingSend, RequestedSchedule
from astyqueue.protocol.steps import Steps, read_column
from astyqueue.queue.hooks import call_after_delete, notified
from astyqueue.queue.producing.producer import Sent
from astyqueue.queue.producing.spooled import refuse_unanswerable
from astyqueue.queue.producing.unique import sent_or_kept
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.text import counted, exact
from astyqueue.triggers import Trigger

#: The longest body of a schedule, in bytes: a firing writes it twice into one batch.
BODY_BYTES: Final = 128 * 1024
#: A body within every limit.
_SHORTEST: Final = 0
#: Default policies of a message's own trigger: all occurrences, one run after the other, as if it put itself back each
#: time.
_OWN: Final = Policies(Misfire.read("all"), Overlap.QUEUE_ALL)


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """A requested schedule: its trigger, the message it sends, and its policies.

    One that continues another under a new name has occurrences later than `since`, of its trigger as `anchored` there.
    """

    trigger: Trigger
    message: Message
    policies: Policies = field(default_factory=Policies)
    origin: Origin = Origin.PEOPLE
    since: int | None = None
    anchored: Trigger | None = None


def _check_trigger(trigger: object) -> None:
    if not isinstance(trigger, Trigger):
        problem = f"{trigger!r:.80} is not a trigger: give a Cron, Every, Once or another Trigger of astyqueue.triggers"
        raise BadInput(problem)


def _name_of(key: str) -> str:
    """The name of a message's own schedule, which is its key; BadInput if that is not a valid name."""
    with contextlib.suppress(BadInput):
        return check_schedule_name(key)
    limits = "printable text of 1 to 200 bytes"
    problem = f"key {key!r:.80} names the schedule of a message with a trigger, so it must be {limits}"
    raise BadInput(problem)


def _has_sent(schedule: Schedule, message: MessageId) -> bool:
    """Whether the schedule is a message's own and sent this message for one of its occurrences."""
    # the last eight bytes of a derived id come from the schedule's name and nonce alone
    return schedule.origin is Origin.MESSAGE and run_of(schedule, 0).id[8:] == message.id[8:]


def handle_of(core: QueueRuntime, name: str) -> ScheduleHandle:
    """A handle for the schedule of this name, whether or not it exists."""
    ring = core.ring
    return ScheduleHandle(core.process, ring.home(ring.shard_of_key(check_schedule_name(name))), name)


def save(core: QueueRuntime, name: str, planned: ScheduleRequest, *, replaces: bool) -> Steps[Schedule]:
    """Create a schedule or, with `replaces`, replace the one of this name."""
    _check_trigger(planned.trigger)
    yield from core.settings_sync.time.follow()
    handle = handle_of(core, name)
    template = template_of(core, planned.message)
    wanted = RequestedSchedule(
        planned.trigger, template, planned.policies, planned.origin, since=planned.since, anchored=planned.anchored
    )
    schedule = yield from schedule_definition.save(handle, wanted, replaces=replaces)
    yield from core.claimer.announce([(handle.row, None)])
    return schedule


def template_of(core: QueueRuntime, message: Message) -> Template:
    """The template of a schedule's messages; BadInput for a message that a schedule cannot send."""
    if message.delay is not None or message.at is not None:
        problem = "the trigger decides when a schedule's messages are due: give no delay= and no at="
        raise BadInput(problem)
    if message.unique is not None:
        problem = f"unique={message.unique!r}: a schedule's messages share its key; limit them by overlap="
        raise BadInput(problem)
    if message.group is not None:
        problem = f"group={message.group!r:.80}: a schedule keeps its messages in its own row: limit them by overlap="
        raise BadInput(problem)
    if isinstance(message.expires, datetime):
        problem = f"expires={message.expires!r}: it counts from each firing of a schedule, so give a duration"
        raise BadInput(problem)
    most = min(BODY_BYTES, core.settings.behaviour.body_bytes)
    encoder = MessageEncoder(core.settings, core.process.now())
    prepared = encoder.prepare(_SHORTEST, replace(message, body=_SHORTEST))  # the body itself is checked below
    envelope = decode(prepared.value)
    expires = core.settings.behaviour.life if message.expires is None else as_microseconds(message.expires)
    headers = envelope.headers or {}
    body = encode_body(message.body, most, limited_by="a schedule", raised_to=BODY_BYTES)
    return Template(
        body=body,
        priority=prepared.priority,
        key=envelope.key,
        headers=headers,
        expires=expires,
        lease=envelope.lease,
        attempts=envelope.attempts,
    )


def send(
    core: QueueRuntime, message: Message, trigger: Trigger | None, *, misfire: str | None, overlap: str | None
) -> Steps[Sent]:
    """Send a message; with a `trigger` it recurs, and `misfire` and `overlap` change its policies."""
    if trigger is not None and core.spooling is not None:
        refuse_unanswerable("trigger=")
    if trigger is not None:
        return send_recurring(core, message, trigger, _policies_of(message, misfire, overlap))
    if misfire is not None or overlap is not None:
        problem = "misfire= and overlap= apply to the occurrences of a trigger: give a trigger= too, or omit them"
        raise BadInput(problem)
    return core.send(message)


def _policies_of(message: Message, misfire: str | None, overlap: str | None) -> Policies:
    """The policies of a message's own trigger; BadInput for unknown ones and for concurrent runs of a unique key."""
    policies = Policies.read(misfire or str(_OWN.misfire), overlap or _OWN.overlap, _OWN.after_failure)
    if message.unique is not None and policies.overlap is Overlap.ALLOW:
        problem = f'overlap="{Overlap.ALLOW}" allows concurrent runs, but a unique key allows only one at a time'
        raise BadInput(problem)
    return policies


def send_recurring(core: QueueRuntime, message: Message, trigger: Trigger, policies: Policies = _OWN) -> Steps[Sent]:
    """Send a message that recurs at the occurrences of its own trigger; returns the id of its first run.

    KeyTaken is raised if another message has its unique key, ScheduleTaken if its key is the name of a schedule.
    """
    _check_trigger(trigger)
    unique = unique_of(message)
    if unique is Unique.SUPERSEDE:
        problem = f'unique="{unique}" replaces single messages: with a trigger give keep, reject, replace or debounce'
        raise BadInput(problem)
    template = template_of(core, replace(message, unique=None))
    for hook in core.hooks:
        hook.before_send(message)
    yield from core.settings_sync.time.follow()
    process = core.process
    handle = handle_of(core, f"message {process.nonce().hex()}" if message.key is None else _name_of(message.key))
    repeating = RepeatingSend(handle, RequestedSchedule(trigger, template, policies, Origin.MESSAGE), unique)
    try:
        if unique is None:
            result = yield from repeating.carry_out()
        else:
            result = yield from sent_or_kept(process, repeating.carry_out, key=handle.name, unique=unique)
    except ScheduleTaken as error:
        raise ScheduleTaken(error.name, is_key=True) from error
    if result.sent:
        history = core.claimer.history
        events = history.events
        replaced = [events.of_command(Kind.CANCELLED, one, handle.name, why="replaced") for one in repeating.replaced]
        sent = [*events.of_scheduled(handle.row, repeating.fired), *events.of_firing(handle.row, repeating.fired)]
        yield from history.write_or_buffer([*replaced, *sent])
        yield from core.claimer.announce([(handle.row, None)])
        call_after_delete(core.hooks, repeating.replaced, "replaced")
        for hook in core.hooks:
            notified(hook.after_send, message, result.id)
    return Sent(result.id, result.sent)


def stop(core: QueueRuntime, key: str) -> Steps[bool]:
    """End the recurring message that was sent under this key with its own trigger; True if there was one."""
    found = yield from handle_of(core, key).found()
    if found is None or found[1].origin is not Origin.MESSAGE:
        return False
    return (yield from remove(core, key, with_run=True)) is not None


def pause(core: QueueRuntime, name: str, why: str) -> Steps[Schedule]:
    """Pause a schedule: it fires nothing until it is resumed. BadInput for an empty reason, which means not paused."""
    if not check_text(why, "why a schedule is paused"):
        problem = f"why schedule {name!r} is paused is empty: give a reason, or leave it out"
        raise BadInput(problem)
    handle = handle_of(core, name)
    with _existing(core, name):
        schedule = yield from stored.pause(handle, why)
    yield from core.claimer.announce([(handle.row, None)])
    return schedule


def resume(core: QueueRuntime, name: str) -> Steps[Schedule]:
    """Resume a schedule with its next occurrence from now on."""
    handle, history = handle_of(core, name), core.claimer.history
    with _existing(core, name):
        schedule = yield from stored.resume(handle, lambda one: trigger_of(core, one))
    yield from history.write_or_buffer(history.events.of_skipping(stored.passed_over(schedule)))
    yield from core.claimer.announce([(handle.row, None)])
    return schedule


def run_now(core: QueueRuntime, name: str) -> Steps[Schedule]:
    """Send a message of a schedule now, besides its occurrences."""
    handle, history = handle_of(core, name), core.claimer.history
    with _existing(core, name):
        schedule = yield from stored.run_now(handle)
    asked_for = schedule.history[-1]
    sent = fired(schedule, {asked_for.occurrence: asked_for.run} if asked_for.run else {}, asked_for.at)
    yield from history.write_or_buffer(history.events.of_scheduled(handle.row, sent))
    yield from core.claimer.announce([(handle.row, None)])
    return schedule


def _backfilled(count: int, occurrences: list[int]) -> str:
    """For which occurrences messages were sent; a second backfill of those sends them again."""
    if not count:
        return ""
    last, first = (exact(instant(moment)) for moment in occurrences[count - 1 : count + 1])
    return f"{counted(count, 'message')}, for the occurrences up to {last}, had been sent before: go on from {first}"


def _check_is_past(core: QueueRuntime, trigger: Trigger, begin: int, end: int) -> None:
    """BadInput if a range has occurrences that are still to come: each would be sent now, and again when it is due."""
    now = core.process.now()
    coming = trigger.after(max(now, begin - 1))
    if begin <= end and coming is not None and coming <= end:
        problem = (
            f"the range ends in the future ({exact(instant(end))}), and a schedule fires its occurrences from "
            f"{exact(instant(coming))} on when they are due: end it by {exact(instant(now))}, which is now"
        )
        raise BadInput(problem)


def backfill(core: QueueRuntime, name: str, since: datetime, until: datetime) -> Steps[int]:
    """Send a message for each occurrence of a range; returns the number. BadInput if one of them is in the future."""
    yield from core.settings_sync.time.follow()
    handle, history = handle_of(core, name), core.claimer.history
    schedule = yield from show(core, name)
    trigger, begin, end = trigger_of(core, schedule), instant_of(since), instant_of(until)
    _check_is_past(core, trigger, begin, end)
    occurrences = stored.occurrences_between(trigger, begin, end)
    for part in stored.in_commits(schedule, occurrences):
        with saying_how_far(partial(_backfilled, occurrences.index(part[0]), occurrences)), _existing(core, name):
            sent = yield from stored.backfill(handle, part)
        yield from history.write_or_buffer(history.events.of_scheduled(handle.row, sent))
        yield from core.claimer.announce([(handle.row, None)])
    return len(occurrences)


def remove(core: QueueRuntime, name: str, *, with_run: bool = False) -> Steps[Schedule | None]:
    """Remove a schedule and, with `with_run`, its last message; returns the removed schedule."""
    handle = handle_of(core, name)
    removal = yield from stored.remove(handle, with_run=with_run)
    call_after_delete(core.hooks, [removal.message] if removal.message else [], "deleted")
    yield from core.claimer.announce([(handle.row, None)])
    return removal.schedule


def delete(core: QueueRuntime, name: str) -> Steps[bool]:
    """Remove a schedule, also one that cannot be decoded; True if it existed. Messages that it sent stay."""
    try:
        return (yield from remove(core, name)) is not None
    except Undecodable:
        handle = handle_of(core, name)
        discarded = yield from stored.discard(handle.process, handle.row, trigger_name(name))
        yield from core.claimer.announce([(handle.row, None)])
        return discarded


def show(core: QueueRuntime, name: str) -> Steps[Schedule]:
    """The schedule of this name; NotFound if there is none."""
    found = yield from handle_of(core, name).found()
    if found is None:
        raise _missing(core, name)
    return found[1]


def _missing(core: QueueRuntime, name: str) -> NotFound:
    return NotFound(f"queue {core.settings.name!r} has no schedule {name!r}")


@contextlib.contextmanager
def _existing(core: QueueRuntime, name: str) -> Iterator[None]:
    """Have the error of a change of a schedule that does not exist name the queue, as that of `show` does."""
    try:
        yield
    except UnknownTrigger:
        raise
    except NotFound as error:
        raise _missing(core, name) from error


def all_of(core: QueueRuntime) -> Steps[list[Schedule]]:
    """All schedules of the queue, by name."""
    return schedules_in(core.ring.homes())


def next_occurrences(core: QueueRuntime, name: str, count: int) -> Steps[list[datetime]]:
    """The next occurrences of a schedule, also while it is paused."""
    check_count(count, "occurrences cannot be listed")
    schedule = yield from show(core, name)
    if schedule.next is None:
        return []
    since = schedule.last if not schedule.paused else max(schedule.last, core.process.now())
    return list(islice(trigger_of(core, schedule).upcoming(instant(since)), count))


def of_message(message: MessageId) -> Steps[Schedule | None]:
    """The schedule that sent this message for an occurrence, if it is the message's own trigger; else None.

    A stored message names its schedule; for one that is gone, all schedules of its row are read.
    """
    if not is_home(message.row) or not is_derived(message.id):
        return None
    found = yield from contents([message])
    envelope = found[message].envelope if message in found else None
    if envelope and (name := (envelope.headers or {}).get(SCHEDULE)):
        column = yield from read_column(message.row, trigger_name(name))
        named = None if column is None else readable_schedule(message.row, column.value)
        return named if named and _has_sent(named, message) else None
    return (yield from found_in(message.row, lambda one: _has_sent(one, message)))


def trigger_of(core: QueueRuntime, schedule: Schedule) -> Trigger:
    """The trigger of a schedule; UnknownTrigger if it is a user's type that is not registered here."""
    return core.triggers.read(schedule.anchored)
