"""The column of a schedule: a line of JSON that people can read, and behind it the body of its messages."""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.errors import Undecodable
from astyqueue.model.message import FORMAT, Envelope, encode
from astyqueue.model.schedules import AfterFailure, Firing, Misfire, Origin, Overlap, Policies, Run, Schedule, Template
from astyqueue.protocol.columns import State, Timer, Type
from astyqueue.protocol.outcomes import with_value
from astyqueue.protocol.process import Process
from astyqueue.store import Name, Put

#: The header of a message that tells which schedule sent it.
SCHEDULE: Final = "schedule"


def trigger_name(name: str) -> Name:
    """Where the schedule of this name lies, in its home row."""
    return Name(Type.TRIGGER, 0, ids.of_text(name), State.NONE)


def slot_timer(process: Process, schedule: Schedule) -> Timer | None:
    """The timer that says when there is something to do for a schedule; it hides nothing."""
    due = schedule.wakes
    if due is None:
        return None
    name = Name(Type.TIMER, 0, process.id_at(due), State.NEXT_SLOT)
    return with_value(Timer(name, (), process.nonce(), schedule.name, 0))


def run_of(schedule: Schedule, slot: int) -> Run:
    """The message of a slot: whoever fires it, it is this one."""
    return Run(schedule.template.priority, ids.derived(slot, f"{schedule.name}\n{schedule.made}"))


def message_of(schedule: Schedule, run: Run, *, slot: int, now: int) -> Put:
    """The column of a message of this schedule."""
    template = schedule.template
    envelope = Envelope(
        sent=now,
        due=slot,
        key=template.key,
        headers={**template.headers, SCHEDULE: schedule.name},
        expires=None if template.expires is None else max(slot, now) + template.expires,
        lease=template.lease,
        attempts=template.attempts,
        body=None,
    )
    return Put(Name(Type.MESSAGE, run.priority, run.id, State.WAITING), encode(envelope, template.body))


def encode_schedule(schedule: Schedule) -> bytes:
    """The value of a trigger column."""
    template, policies = schedule.template, schedule.policies
    head = {
        "name": schedule.name,
        "origin": schedule.origin,
        "paused": schedule.paused,
        "trigger": schedule.declared,
        "anchored": schedule.anchored,
        "misfire": [policies.misfire.kind, policies.misfire.bound],
        "overlap": policies.overlap,
        "after_failure": policies.after_failure,
        "sends": [template.priority, template.key, template.headers, template.expires, template.lease, template.attempts],
        "made": schedule.made,
        "mark": schedule.mark,
        "created": schedule.created,
        "last": schedule.last,
        "next": schedule.next,
        "backlog": schedule.backlog,
        "run": _written(schedule.run),
        "counts": [schedule.slots, schedule.fired, schedule.skipped],
        "history": [[*firing[:3], _written(firing.run), firing.why] for firing in schedule.history],
    }
    return b"%b%b\n%b" % (FORMAT, to_json(head), template.body)


def decode_schedule(row: str, value: bytes) -> Schedule:
    """The schedule in a trigger column; one that cannot be read raises Undecodable, and the row takes no claims."""
    try:
        if value[:1] != FORMAT:
            _unknown_format(value)
        head, _, body = value[1:].partition(b"\n")
        return _schedule(from_json(head), body)
    except (ValueError, TypeError, KeyError) as error:
        raise Undecodable(row, "the column of a schedule", f"{type(error).__name__}: {error}") from error


def _unknown_format(value: bytes) -> None:
    message = f"format byte {value[:1].hex() or 'missing'}, and this astyqueue knows {FORMAT.hex()}"
    raise ValueError(message)


def _schedule(head: dict[str, Any], body: bytes) -> Schedule:
    priority, key, headers, expires, lease, attempts = head["sends"]
    slots, fired, skipped = head["counts"]
    return Schedule(
        name=head["name"],
        declared=head["trigger"],
        anchored=head["anchored"],
        template=Template(body, priority, key, headers, expires, lease, attempts),
        policies=Policies(Misfire(*head["misfire"]), Overlap(head["overlap"]), AfterFailure(head["after_failure"])),
        origin=Origin(head["origin"]),
        made=head["made"],
        mark=head["mark"],
        created=head["created"],
        last=head["last"],
        next=head["next"],
        paused=head["paused"],
        backlog=tuple(head["backlog"]),
        run=_read(head["run"]),
        slots=slots,
        fired=fired,
        skipped=skipped,
        history=tuple(Firing(slot, count, at, _read(run), why) for slot, count, at, run, why in head["history"]),
    )


def _written(run: Run | None) -> str | None:
    return None if run is None else f"{run.priority}/{run.id.hex()}"


def _read(written: str | None) -> Run | None:
    if written is None:
        return None
    priority, _, id_ = written.partition("/")
    return Run(int(priority), bytes.fromhex(id_))
