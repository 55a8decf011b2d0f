"""Mutants of the kinds of queue: what a superseded message of last values does that it may not do; and of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from astyqueue.protocol.claiming import claim as claiming
from astyqueue.protocol.claiming.selection import ClaimPlan, DueMessages, Redelivery
from astyqueue.protocol.layout.columns import Entry, Timer
from astyqueue.protocol.sending import unique
from astyqueue.protocol.settling import outcomes, settle
from astyqueue.protocol.settling.outcomes import Ack, Extend, Outcomes, Release, SettlePlan
from tests.simulation.mutants.mutant import Mutant, Patches


def _not_superseding() -> list[Patches]:
    def mutated(*_: Any) -> None:  # noqa: ANN401 - whatever it was called with
        """Leave the timer of the leased message as it is."""

    return [mock.patch.object(unique, "supersede", mutated)]


def _settling_as_if_not_superseded(kind: type) -> list[Patches]:
    """Outcomes of this kind are planned as for a message that has its key."""
    original = outcomes.plan_settle

    def mutated(process: Any, timer: Timer, wanted: Outcomes, **options: Any) -> SettlePlan:  # noqa: ANN401 - handed on as they are
        return original(process, _forgotten(timer, wanted, kind), wanted, **options)

    return [mock.patch.object(module, "plan_settle", mutated) for module in (settle, claiming)]


def _forgotten(timer: Timer, wanted: Mapping[bytes, object], kind: type) -> Timer:
    """The timer, in which no message with an outcome of this kind counts as superseded."""
    entries = [_plain(entry) if isinstance(wanted.get(entry.id), kind) else entry for entry in timer.entries]
    return replace(timer, entries=tuple(entries))


def _plain(entry: Entry) -> Entry:
    return entry._replace(superseded=False)


def _delivering_again() -> list[Patches]:
    original = DueMessages.add

    def mutated(found: DueMessages, again: Redelivery) -> None:
        original(found, again._replace(entry=_plain(again.entry)))

    return [mock.patch.object(DueMessages, "add", mutated)]


def _ignoring_groups() -> list[Patches]:
    return [mock.patch.object(ClaimPlan, "_waits", return_value=False)]


def _out_of_line() -> list[Patches]:
    """A listed message of a group is claimed although the scan has not met those before it."""
    original = ClaimPlan.take

    def mutated(plan: ClaimPlan, entry: Entry, value: bytes, part: Any = None, **_: Any) -> bool:  # noqa: ANN401 - handed on as it is
        return original(plan, entry, value, part)

    return [mock.patch.object(ClaimPlan, "take", mutated)]


KIND_MUTANTS: Final = (
    Mutant("a superseded message is not marked", 200, _not_superseding),
    Mutant("an ack of a superseded message frees its key", 400, lambda: _settling_as_if_not_superseded(Ack)),
    Mutant("a superseded message is given back", 400, lambda: _settling_as_if_not_superseded(Release)),
    Mutant("an extended lease is no longer superseded", 400, lambda: _settling_as_if_not_superseded(Extend)),
    Mutant("a claim delivers a superseded message again", 400, _delivering_again),
    Mutant("a claim ignores the group", 60, _ignoring_groups),
    Mutant("a listed message of a group comes out of line", 4_000, _out_of_line, first=630),
)
