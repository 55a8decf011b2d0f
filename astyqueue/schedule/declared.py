"""Schedules that code declares, and how they become the schedules of a queue when a process starts.

The declarations of one program are a *release*. The queue keeps which releases it has seen, so that in a rolling deploy, in
which old and new processes start in any order, the new release counts from its first process on: an old process that starts
once more changes nothing. When the old release starts after the deploy is long over, it is a roll-back and counts again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.clock import SECOND
from astyqueue.errors import OutcomeUnknown, StoreUnavailable, Undecodable
from astyqueue.model.message import FORMAT
from astyqueue.model.outgoing import Message
from astyqueue.model.schedules import Origin, Policies
from astyqueue.protocol.steps import Steps, commit, read_column
from astyqueue.queue.core import Core
from astyqueue.queue.scheduling import Planned, Scheduling
from astyqueue.store import Batch, Committed, Expectation, Name, Put
from astyqueue.triggers import Trigger

#: For so long after a release was first seen, a process of one before it belongs to the same deploy and changes nothing.
DEPLOY: Final = 15 * 60 * SECOND
_TRIES: Final = 20
_KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class Declared:
    """A schedule as code declares it."""

    trigger: Trigger
    message: Message
    policies: Policies = field(default_factory=Policies)


@dataclass(slots=True)
class Reconciled:
    """What reconciling came to: the schedules that were made or changed, and those removed; `current` is False for an old release."""

    current: bool
    saved: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Record:
    """Which release counts, since when, which came before it; its schedules, and those that are to be removed."""

    release: str = ""
    since: int = 0
    before: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()

    def encode(self) -> bytes:
        return FORMAT + to_json([self.release, self.since, self.before, self.names, self.leaving])


def reconcile(core: Core, program: str, declared: Mapping[str, Declared]) -> Steps[Reconciled]:
    """Have a queue keep the schedules that a program declares, by name, and no others that it declared before.

    What is declared as it was goes on untouched, its count too. One that is renamed goes on under its new name with the
    slots that the old one has not dealt with. Schedules that people made are left alone.
    """
    reconciling = _Reconciling(core, program, declared)
    record = yield from reconciling.take_over()
    if record is None:
        return Reconciled(current=False)
    return (yield from reconciling.carry_out(record))


class _Reconciling:
    def __init__(self, core: Core, program: str, declared: Mapping[str, Declared]) -> None:
        self._core = core
        self._declared = declared
        self._scheduling = Scheduling(core)
        self._row = f"{core.settings.name}:declared"
        self._name = Name(0, 0, ids.of_text(program), 0)
        self._release = self._fingerprint()

    def _fingerprint(self) -> str:
        told = [
            [name, one.trigger.document(), repr(self._scheduling.template(one.message)), repr(one.policies)]
            for name, one in sorted(self._declared.items())
        ]
        return hashlib.blake2b(to_json(told), digest_size=8).hexdigest()

    def take_over(self) -> Steps[_Record | None]:
        """Make this the release that counts; None if it is an old one in the middle of a deploy."""
        for _ in range(_TRIES):
            value, record = yield from self._read()
            if record.release == self._release:
                return record
            now = self._core.process.now()
            if self._release in record.before and now < record.since + DEPLOY:
                return None
            following = self._following(record, now)
            if value is None and not self._declared:
                return following
            if (yield from self._write(value, following)):
                return following
        message = f"row {self._row}: others changed which schedules are declared {_TRIES} times in a row; start again"
        raise StoreUnavailable(message)

    def _following(self, record: _Record, now: int) -> _Record:
        names = tuple(sorted(self._declared))
        before = tuple(dict.fromkeys((*record.before, *filter(None, [record.release]))))
        leaving = {*record.names, *record.leaving}.difference(names)
        return _Record(self._release, now, tuple(one for one in before if one != self._release)[-_KEPT:], names, tuple(sorted(leaving)))

    def _read(self) -> Steps[tuple[bytes | None, _Record]]:
        column = yield from read_column(self._row, self._name, exact=True)
        if column is None:
            return None, _Record()
        try:
            release, since, before, names, leaving = from_json(column.value.removeprefix(FORMAT))
        except (ValueError, TypeError) as error:
            raise Undecodable(self._row, "which schedules are declared", str(error)) from error
        return column.value, _Record(release, since, tuple(before), tuple(names), tuple(leaving))

    def _write(self, standing: bytes | None, record: _Record) -> Steps[bool]:
        """Whether the record is this one now; what is not known is read again."""
        batch = Batch(self._row, (Put(self._name, record.encode()),))
        try:
            outcome = yield from commit(batch, (Expectation(self._name, standing),))
        except OutcomeUnknown:
            return False
        return isinstance(outcome, Committed)

    def carry_out(self, record: _Record) -> Steps[Reconciled]:
        """Remove what is no longer declared, then make what is: never are both there at once."""
        done = Reconciled(current=True)
        since: int | None = None
        for name in record.leaving:
            removed = yield from self._remove(name)
            if removed is not None:
                done.removed.append(name)
                since = max(removed, since or 0)
        for name, one in self._declared.items():
            if not (yield from self._still_counts()):
                return replace(done, current=False)
            if (yield from self._save(name, one, since)):
                done.saved.append(name)
        if record.leaving:
            yield from self._write(record.encode(), replace(record, leaving=()))
        return done

    def _still_counts(self) -> Steps[bool]:
        _, record = yield from self._read()
        return record.release == self._release

    def _remove(self, name: str) -> Steps[int | None]:
        """Remove a schedule that code declared; up to when its slots are dealt with."""
        found = yield from self._scheduling.kept(name).found()
        if found is None or found[1].origin is not Origin.CODE:
            return None
        removed = yield from self._scheduling.remove(name)
        return None if removed is None else max(removed.last, self._core.process.now())

    def _save(self, name: str, one: Declared, since: int | None) -> Steps[bool]:
        """Make a schedule or let it go on; whether that changed anything."""
        found = yield from self._scheduling.kept(name).found()
        planned = Planned(one.trigger, one.message, one.policies, Origin.CODE, since)
        saved = yield from self._scheduling.save(name, planned, replaces=True)
        return found is None or replace(saved, mark="") != replace(found[1], mark="")
