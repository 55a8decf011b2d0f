"""The column of a schedule: a line of readable JSON, followed by the body of its messages."""

from __future__ import annotations

import logging
from typing import Any, Final, NoReturn

from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.durations import LONGEST
from astyqueue.errors import BadInput, Undecodable
from astyqueue.ids import GREATEST, is_moment
from astyqueue.model.body import decode_body
from astyqueue.model.envelope import FORMAT, Envelope, encode, unframed
from astyqueue.model.schedule import (
    MISFIRES,
    SCHEDULE,
    AfterFailure,
    Firing,
    Misfire,
    Origin,
    Overlap,
    Policies,
    Run,
    Schedule,
    Template,
    check_schedule_name,
)
from astyqueue.protocol.layout.columns import HIGHEST_PRIORITY, State, Timer, Type, encoded
from astyqueue.protocol.steps import Client
from astyqueue.store import Name, Put
from astyqueue.structured_log import log_event
from astyqueue.units import NEVER

_log: Final = logging.getLogger("astyqueue.schedules")


def trigger_name(name: str) -> Name:
    """The column of the schedule of this name, in its home row."""
    return Name(Type.TRIGGER, 0, ids.of_text(name), State.NONE)


def occurrence_timer(process: Client, schedule: Schedule) -> Timer | None:
    """The timer that is due when a schedule next has something to do; it hides no message. None if it never has."""
    due = schedule.wakes
    if due is None:
        return None
    name = Name(Type.TIMER, 0, process.id_at(due), State.NEXT_OCCURRENCE)
    return encoded(Timer(name, (), process.nonce(), schedule.name, 0))


def run_of(schedule: Schedule, occurrence: int) -> Run:
    """The message of an occurrence: the same whichever process fires it."""
    return Run(schedule.template.priority, ids.derived(occurrence, f"{schedule.name}\n{schedule.creation_nonce}"))


def message_of(schedule: Schedule, run: Run, *, occurrence: int, now: int, unique: bool = False) -> Put:
    """The column of a message of this schedule; `unique`: the message becomes the owner of the schedule's key."""
    template = schedule.template
    envelope = Envelope(
        sent=now,
        due=occurrence,
        key=template.key,
        headers={**template.headers, SCHEDULE: schedule.name},
        expires=None if template.expires is None else max(occurrence, now) + template.expires,
        lease=template.lease,
        attempts=template.attempts,
        body=None,
        unique=unique,
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
        "sends": [
            template.priority,
            template.key,
            template.headers,
            template.expires,
            template.lease,
            template.attempts,
        ],
        "made": schedule.creation_nonce,
        "mark": schedule.mark,
        "created": schedule.created,
        "last": schedule.last,
        "next": schedule.next,
        "backlog": schedule.backlog,
        "run": _written(schedule.run),
        "counts": [schedule.occurrences, schedule.fired, schedule.skipped],
        "history": [[*firing[:3], _written(firing.run), firing.why] for firing in schedule.history],
    }
    return b"%b%b\n%b" % (FORMAT, to_json(head), template.body)


def check_schedule(schedule: Schedule) -> Schedule:
    """The schedule, if it can be decoded again; otherwise raises BadInput."""
    try:
        decode_schedule("", encode_schedule(schedule))
    except (Undecodable, ValueError) as error:
        why = error.why if isinstance(error, Undecodable) else error
        problem = f"schedule {schedule.name!r} could not be read again: {why}"
        raise BadInput(problem) from error
    return schedule


def readable_schedule(row: str, value: bytes) -> Schedule | None:
    """The schedule in a column; if it cannot be read, None and a log line, so that one does not hide all others."""
    try:
        return decode_schedule(row, value)
    except Undecodable as error:
        log_event(_log, logging.WARNING, "schedule_unreadable", row=row, error=error)
        return None


def decode_schedule(row: str, value: bytes) -> Schedule:
    """The schedule in a trigger column; raises Undecodable if it cannot be read, and it is not fired."""
    try:
        head, _, body = unframed(value).partition(b"\n")
        decode_body(body)
        return _schedule(from_json(head, allow_inf_nan=False), body)
    except (ValueError, TypeError, KeyError) as error:
        until = "This schedule is not fired until it can be read; all others are"
        raise Undecodable(row, "the column of a schedule", f"{type(error).__name__}: {error}", until=until) from error


def _schedule(head: dict[str, Any], body: bytes) -> Schedule:
    occurrences, fired, skipped = head["counts"]
    return Schedule(
        name=check_schedule_name(head["name"]),
        declared=head["trigger"],
        anchored=head["anchored"],
        template=_template(head["sends"], body),
        policies=Policies(_misfire(head["misfire"]), Overlap(head["overlap"]), AfterFailure(head["after_failure"])),
        origin=Origin(head["origin"]),
        creation_nonce=_text(head["made"], "made"),
        mark=_text(head["mark"], "mark"),
        created=_moment(head["created"], "created"),
        last=_moment(head["last"], "last"),
        next=None if head["next"] is None else _moment(head["next"], "next"),
        paused=_text(head["paused"], "paused"),
        backlog=tuple(_moment(occurrence, "backlog") for occurrence in head["backlog"]),
        run=_read(head["run"]),
        occurrences=_number(occurrences, "occurrences"),
        fired=_number(fired, "fired"),
        skipped=_number(skipped, "skipped"),
        history=tuple(_firing(*firing) for firing in head["history"]),
    )


def _template(fields: list[Any], body: bytes) -> Template:
    priority, key, headers, expires, lease, attempts = fields
    return Template(
        body=body,
        priority=_number(priority, "priority", HIGHEST_PRIORITY),
        key=None if key is None else _text(key, "key"),
        headers={name: _text(text, "headers") for name, text in headers.items()}
        if type(headers) is dict
        else _refuse("headers", headers),
        expires=None if expires is None else _number(expires, "expires", LONGEST),
        lease=None if lease is None else _number(lease, "lease", LONGEST),
        attempts=None if attempts is None else _number(attempts, "attempts"),
    )


def _misfire(fields: list[Any]) -> Misfire:
    kind, bound = fields
    return (
        Misfire(kind, _number(bound, "misfire", LONGEST))
        if _text(kind, "misfire") in MISFIRES
        else _refuse("misfire", kind)
    )


def _firing(occurrence: object, occurrences: object, at: object, run: object, why: object) -> Firing:
    return Firing(
        _moment(occurrence, "history"),
        _number(occurrences, "history"),
        _moment(at, "history"),
        _read(run),
        _text(why, "history"),
    )


def _moment(value: Any, what: str) -> int:  # noqa: ANN401 - as read from JSON
    return int(value) if is_moment(value) else _refuse(what, value)


def _number(value: Any, what: str, most: int = NEVER) -> int:  # noqa: ANN401 - as read from JSON
    return value if type(value) is int and 0 <= value <= most else _refuse(what, value)


def _text(value: Any, what: str) -> str:  # noqa: ANN401 - as read from JSON
    return value if type(value) is str else _refuse(what, value)


def _refuse(what: str, value: object) -> NoReturn:
    message = f"its {what} is {value!r:.80}"
    raise ValueError(message)


def _written(run: Run | None) -> str | None:
    return None if run is None else f"{run.priority}/{run.id.hex()}"


def _read(written: Any) -> Run | None:  # noqa: ANN401 - as read from JSON
    if written is None:
        return None
    priority, _, id_ = _text(written, "run").partition("/")
    run = Run(_number(int(priority), "run", HIGHEST_PRIORITY), bytes.fromhex(id_))
    return run if len(run.id) == len(GREATEST) and run.id <= GREATEST else _refuse("run", written)
