"""Applies the schedules that code declares to a queue when a process starts.

The declarations of one program are a *release*. Old and new releases start in any order: a rolling deploy takes hours,
an old process is evicted and restarts, a hotfix of the old line is deployed beside a canary. Clocks cannot decide which
of two releases is newer, so these rules do; the schedules of one release, the current one, apply:

- With an order (`App(release=42)`): the highest release ever seen is current, and removes schedules that it no longer
  declares. A lower release, or one without an order, changes nothing.
- Without an order: a release never seen before becomes current; one that another release followed does not. Neither
  removes schedules.
- An operator may make any release current, and let it remove what it does not declare:
  `astyqueue schedules reconcile --prune`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.errors import BadInput, BadSetting, Undecodable, UnknownTrigger
from astyqueue.model.envelope import FORMAT, unframed
from astyqueue.model.message import Message
from astyqueue.model.schedule import Origin, Policies, Schedule, Template
from astyqueue.protocol.layout.rows import declared_row
from astyqueue.protocol.row import compare_and_set
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.queue.admin.schedules import ScheduleRequest, handle_of, remove, save, template_of, trigger_of
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.schedules.removed_schedules import RemovedSchedules
from astyqueue.store import Batch, Name, Put, Slice
from astyqueue.structured_log import log_event
from astyqueue.triggers import Trigger
from astyqueue.units import NEVER

T = TypeVar("T")
_log: Final = logging.getLogger("astyqueue.schedules")
#: How many releases before the current one are recorded.
_REMEMBERED: Final = 100
#: Earlier versions read here the moment (microseconds) until which an older release is not a roll-back: for ever.
_FOR_EVER: Final = NEVER
#: How an operator removes what this program does not declare.
_PRUNE: Final = "astyqueue schedules reconcile APP --prune"

#: The place of a release in the order of a program's releases.
Order = tuple[int, ...]


def order_of(release: int | str | None) -> Order | None:
    """The order of a release: 42, "42", "1.10.0" or "2026.11.22.3"; None for None. BadSetting for another value."""
    if release is None:
        return None
    parts = str(release).split(".") if isinstance(release, int | str) and not isinstance(release, bool) else [""]
    if not all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in parts):  # noqa: PLR2004 - as JSON readers take
        message = (
            f"release={release!r:.80} has no order: give whole numbers that rise with each deploy, such as 42, "
            '"1.10.0" or "2026.11.22.3"; the hash of a commit does not rise'
        )
        raise BadSetting(message)
    return tuple(map(int, parts))


@dataclass(frozen=True, slots=True)
class Declared:
    """A schedule as code declares it."""

    trigger: Trigger
    message: Message
    policies: Policies = field(default_factory=Policies)


@dataclass(frozen=True, slots=True)
class Release:
    """The schedules that a release of a program declares for a queue, by name; `order` ranks releases."""

    program: str
    declared: Mapping[str, Declared]
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class Instructions:
    """How to reconcile: by default as a starting process does, else as an operator requests.

    With `becomes_current` this release is current from then on, regardless of others. `prunes`: schedules that it does
    not declare are removed, also if another program declares them, and all that it ever declared are its own until that
    other program starts again. `dry_run`: changes are reported but not made.
    """

    becomes_current: bool = False
    prunes: bool = False
    dry_run: bool = False


@dataclass(slots=True)
class Reconciled:
    """The result of reconciling, by name of schedule; `current` is False if another release is, or may be, current.

    `saved` were made or changed, `removed` were removed, and `stale` still exist and fire, although they are no longer
    declared. `unreadable` were left as they are, declared or not, because this process cannot read them. `others` were
    left too: people or a message made them, or the program declares them no longer and another one does, or did last.
    """

    current: bool
    saved: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Record:
    """The current release (fingerprint and order), those before it, its schedules, and those declared only before."""

    release: str = ""
    order: Order | None = None
    before: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()

    def encode(self) -> bytes:
        order = "" if self.order is None else ".".join(map(str, self.order)) + ":"
        return FORMAT + to_json([order + self.release, _FOR_EVER, self.before, self.names, self.leaving])

    @classmethod
    def decode(cls, row: str, value: bytes) -> _Record:
        try:
            release, _, before, names, leaving = from_json(unframed(value))
            order, _, fingerprint = release.rpartition(":")
            return cls(fingerprint, order_of(order or None), _texts(before), _texts(names), _texts(leaving))
        except (ValueError, TypeError, AttributeError) as error:
            until = "The schedules that this program declares stay as they are until it can be read"
            raise Undecodable(row, "which schedules are declared", str(error), until=until) from error


def _texts(values: object) -> tuple[str, ...]:
    """The texts of a list; ValueError for another value."""
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        return tuple(values)
    message = f"there is {values!r:.80} where a list of texts belongs"
    raise ValueError(message)


def reconcile(core: QueueRuntime, release: Release, instructions: Instructions | None = None) -> Steps[Reconciled]:
    """Apply the schedules that a release declares to a queue, unless another release is current.

    An unchanged declaration leaves its schedule and counts unchanged. A renamed schedule, whose old name is removed,
    continues under its new name, at the same times, with the occurrences that the old one has not dealt with. Schedules
    made by people or by messages are kept, also under a declared name, and only an operator who prunes removes one that
    another program declares. One that both declare is that of the program that starts last.

    If the record of what the program declares cannot be read, nothing is changed: a start, which gives no instructions,
    logs that, and an operator gets Undecodable.
    """
    reconciling = _Reconciling(core, release, instructions or Instructions())
    try:
        record = yield from reconciling.take_over()
    except Undecodable as error:  # workers must start
        if instructions is not None:
            raise
        reconciling.log_unchanged(error, "start the version of astyqueue that wrote the record, or a later one")
        return Reconciled(current=False)
    if record is not None:
        return (yield from reconciling.carry_out(record))
    reason = "a later release of the program, or one with an order, is current"
    reconciling.log_unchanged(reason, f"to roll back to this release: {_PRUNE}")
    return Reconciled(current=False)


class _Reconciling:
    def __init__(self, core: QueueRuntime, release: Release, instructions: Instructions) -> None:
        self._core = core
        self._program = release.program
        self._declared = release.declared
        self._order = release.order
        self._instructions = instructions
        self._row = declared_row(core.settings.name)
        self._name = Name(0, 0, ids.of_text(release.program), 0)
        self._release = self._fingerprint()
        self._reconciled = Reconciled(current=True)
        self._others: dict[Name, _Record] = {}

    def _fingerprint(self) -> str:
        """A hash of the declarations without defaults: the same in every version of astyqueue."""
        said = {name: _document(one, template_of(self._core, one.message)) for name, one in self._declared.items()}
        return hashlib.blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=8).hexdigest()

    def take_over(self) -> Steps[_Record | None]:
        """Make this the current release; None if another one is."""
        if self._instructions.dry_run:
            value = self._taken_over((yield from self._read()))
        else:
            value = (
                yield from compare_and_set.update(
                    self._row, self._name, self._taken_over, observers=self._core.process.observers
                )
            ).value
        if not value:
            return _Record()
        record = _Record.decode(self._row, value)
        return record if record.release == self._release else None

    def _taken_over(self, value: bytes | None) -> bytes | None:
        """The record with this release as the current one; unchanged if another one is, or none was ever declared."""
        record = self._decoded(value)
        following = self._following(record)
        if record.release == self._release and record.order == following.order:
            return value if record.names == following.names else following.encode()  # another program was pruned
        becomes_current = self._instructions.becomes_current or self._is_newer_than(record)
        if not becomes_current or (value is None and not self._declared):
            return value
        return following.encode()

    def _decoded(self, value: bytes | None) -> _Record:
        return _Record() if value is None else _Record.decode(self._row, value)

    def _is_newer_than(self, record: _Record) -> bool:
        """Whether this release is newer than the current one, by the rules of this module."""
        if record.order is not None:
            return self._order is not None and self._order > record.order
        return self._order is not None or self._release not in record.before

    def _following(self, record: _Record) -> _Record:
        names = tuple(sorted(self._declared))
        before = tuple(dict.fromkeys((*record.before, *filter(None, [record.release]))))
        leaving = {*record.names, *record.leaving}.difference(names)
        return _Record(
            self._release,
            record.order if self._order is None else self._order,
            tuple(one for one in before if one != self._release)[-_REMEMBERED:],
            names,
            tuple(sorted(leaving)),
        )

    def log_unchanged(self, reason: object, remedy: str) -> None:
        """Log that this process leaves the schedules of the queue unchanged."""
        queue, program = self._core.settings.name, self._program
        facts = {"queue": queue, "program": program, "reason": reason, "remedy": remedy}
        log_event(_log, logging.WARNING, "schedules_unchanged", exc_info=None, **facts)

    def _read(self) -> Steps[bytes | None]:
        """Read the records of all programs; returns this one's. One of another that cannot be read counts as empty."""
        columns = yield from read_one(Slice(self._row, self._name.type), exact=True)
        values = {column.name: column.value for column in columns}
        own = values.pop(self._name, None)
        self._others = {}
        for name, value in values.items():
            with contextlib.suppress(Undecodable):
                self._others[name] = _Record.decode(self._row, value)
        return own

    @property
    def _declared_by_others(self) -> set[str]:
        return {name for record in self._others.values() for name in record.names}

    def carry_out(self, record: _Record) -> Steps[Reconciled]:
        """Remove old schedules, then save the declared ones, so that a renamed schedule never exists twice."""
        yield from self._read()
        removed = (yield from self._remove_all(record.leaving)) if self._removes else RemovedSchedules()
        for name, one in self._declared.items():
            if not (yield from self._is_still_current()):
                return replace(self._reconciled, current=False)
            if (yield from self._unless_unreadable(name, self._save(name, one, removed))):
                self._reconciled.saved.append(name)
        self._log_overwritten()
        if not self._removes:
            yield from self._find_stale(record.leaving)
        elif not self._instructions.dry_run:
            yield from self._record_removed(record)
            yield from self._take_from_others(record)
        return self._reconciled

    def _log_overwritten(self) -> None:
        """Log which schedules were saved here that other programs declare too: no record says whose one is."""
        if (names := self._declared_by_others.intersection(self._reconciled.saved)) and not self._instructions.dry_run:
            log_event(
                _log,
                logging.WARNING,
                "schedules_overwritten",
                queue=self._core.settings.name,
                program=self._program,
                schedules=",".join(sorted(names)),
                reason="another program declares a schedule of this name too, and each start overwrites the other's",
                remedy=f"rename one of them, schedule=..., or if the other one is this one's old name: {_PRUNE}",
            )

    def _leave_to_others(self, name: str, origin: Origin) -> None:
        """Report, and log, that a schedule is not, or not only, this program's, and was left as it is."""
        self._reconciled.others.append(name)
        log_event(
            _log,
            logging.WARNING,
            "schedule_of_others",
            queue=self._core.settings.name,
            program=self._program,
            schedule=name,
            origin=origin,
            remedy=f"if the other program that declares it is gone, or is this one's old name: {_PRUNE}"
            if origin is Origin.CODE
            else "rename the declared one, schedule=..., or delete this one: astyqueue schedules delete QUEUE NAME",
        )

    @property
    def _removes(self) -> bool:
        return self._order is not None or self._instructions.prunes

    def _record_removed(self, record: _Record) -> Steps[None]:
        """Record that all are removed that no longer are declared, but for those that a later start tries again."""
        left = {*self._reconciled.unreadable, *self._reconciled.others}
        leaving = tuple(name for name in record.leaving if name in left)
        if leaving != record.leaving:
            batch = Batch(self._row, (Put(self._name, replace(record, leaving=leaving).encode()),))
            yield from compare_and_set.replace(batch, self._name, record.encode())

    def _take_from_others(self, record: _Record) -> Steps[None]:
        """If an operator prunes, leave out of the records of others what this program declares, or has declared."""
        own = {*record.names, *record.leaving}

        def without_own(value: bytes | None) -> bytes | None:
            found = self._decoded(value)
            names = tuple(name for name in found.names if name not in own)
            return value if names == found.names else replace(found, names=names).encode()

        for program in self._others if self._instructions.prunes else ():
            with contextlib.suppress(Undecodable):
                yield from compare_and_set.update(
                    self._row, program, without_own, observers=self._core.process.observers
                )

    def _remove_all(self, names: tuple[str, ...]) -> Steps[RemovedSchedules]:
        """Remove these schedules if code declared them; returns what they leave to the new ones."""
        left = RemovedSchedules()
        for name in names:
            if not (yield from self._is_still_current()):
                break
            removed = yield from self._unless_unreadable(name, self._remove(name))
            if removed is not None:
                self._reconciled.removed.append(name)
                left.add(removed, self._core.process.now())
        return left

    def _find_stale(self, names: tuple[str, ...]) -> Steps[None]:
        """Find which of these still fire, and log them."""
        stale = self._reconciled.stale
        for name in names:
            found = yield from self._unless_unreadable(name, self._of_code(name))
            if found is not None and name in self._declared_by_others:
                self._leave_to_others(name, found.origin)
            elif found is not None:
                stale.append(name)
        if stale:
            log_event(
                _log,
                logging.WARNING,
                "undeclared_schedules_fire",
                queue=self._core.settings.name,
                program=self._program,
                schedules=",".join(stale),
                remedy=f"{_PRUNE}, or App(release=...) to remove them at each deploy",
            )

    def _unless_unreadable(self, name: str, steps: Steps[T]) -> Steps[T | None]:
        """The result of steps on one schedule; one that cannot be read is logged and kept: workers must start."""
        try:
            return (yield from steps)
        except Undecodable as error:
            log_event(_log, logging.WARNING, "schedule_left_alone", schedule=name, row=error.row, error=error)
            self._reconciled.unreadable.append(name)
            return None

    def _is_still_current(self) -> Steps[bool]:
        """Whether no newer release took over: checked before each change, so that its schedules are not changed."""
        if self._instructions.dry_run:
            return True
        try:
            return self._decoded((yield from self._read())).release == self._release
        except Undecodable:
            return False

    def _of_code(self, name: str) -> Steps[Schedule | None]:
        """The schedule of this name, if code declared it."""
        found = yield from handle_of(self._core, name).found()
        return found[1] if found is not None and found[1].origin is Origin.CODE else None

    def _remove(self, name: str) -> Steps[Schedule | None]:
        """Remove a schedule that code declared; returns it as it was removed."""
        found = yield from self._of_code(name)
        if found is not None and name in self._declared_by_others and not self._instructions.prunes:
            self._leave_to_others(name, found.origin)
            return None
        if found is None or self._instructions.dry_run:
            return found
        return (yield from remove(self._core, name))

    def _save(self, name: str, one: Declared, removed: RemovedSchedules) -> Steps[bool]:
        """Make or change a schedule; False if it was up to date, or is that of people or of a message."""
        found = yield from handle_of(self._core, name).found()
        if found is not None and found[1].origin is not Origin.CODE:
            self._leave_to_others(name, found[1].origin)
            return False
        if self._instructions.dry_run:
            wanted = (one.trigger.document(), template_of(self._core, one.message), one.policies)
            return found is None or wanted != (found[1].declared, found[1].template, found[1].policies)
        since, continued = removed.left_to(one.trigger) if found is None else (None, None)
        anchored = self._anchored(continued) if continued else None
        planned = ScheduleRequest(one.trigger, one.message, one.policies, Origin.CODE, since=since, anchored=anchored)
        saved = yield from save(self._core, name, planned, replaces=True)
        return found is None or replace(saved, mark="") != replace(found[1], mark="")

    def _anchored(self, schedule: Schedule) -> Trigger | None:
        """The trigger of a schedule as it is anchored; None if this process cannot read it."""
        try:
            return trigger_of(self._core, schedule)
        except (BadInput, UnknownTrigger):
            return None


def _document(declared: Declared, template: Template) -> dict[str, JsonValue]:
    """A declaration without its default values, so that future options do not change the document."""
    policies = declared.policies
    said: dict[str, JsonValue] = {
        "trigger": declared.trigger.document(),
        "misfire": str(policies.misfire),
        "overlap": str(policies.overlap),
        "after_failure": str(policies.after_failure),
        "body": template.body.decode(),
        "priority": template.priority,
        "key": template.key,
        "headers": dict(template.headers),
        "expires": template.expires,
        "lease": template.lease,
        "attempts": template.attempts,
    }
    usual: dict[str, JsonValue] = {
        "misfire": "once",
        "overlap": "allow",
        "after_failure": "go on",
        "priority": 0,
        "headers": {},
    }
    return {name: value for name, value in said.items() if value != usual.get(name)}
