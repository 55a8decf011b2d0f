"""What every trigger is: a value that says which moment comes next, and that can be written down."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from typing import ClassVar, Self, cast

from pydantic import JsonValue

from astyqueue.clock import instant
from astyqueue.errors import BadInput
from astyqueue.instants import instant_of


class Value:
    """Something that is equal to whatever has the same fields, and never changes."""

    __slots__ = ()

    kind: ClassVar[str]

    def document(self) -> dict[str, JsonValue]:
        """This value as JSON, with moments and durations in whole microseconds; `Triggers.read` makes an equal one of it."""
        held = {field.name: getattr(self, field.name) for field in fields(self) if field.compare}  # type: ignore[arg-type]  # each kind is a dataclass
        return {"kind": self.kind} | {name: _plain(value) for name, value in held.items() if value is not None}

    def _fill(self, **values: object) -> None:
        """Set fields that nobody may set afterwards."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def but(self, **changed: object) -> Self:
        """An equal value but for these fields."""
        other = object.__new__(type(self))
        held = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # as above
        other._fill(**held | changed)
        return other


class Trigger(Value, ABC):
    """When something is to happen: a value, and equal ones have equal slots in every process.

    Moments are whole microseconds since 1970 UTC, here as everywhere inside; `upcoming` is for people.
    """

    __slots__ = ()

    @abstractmethod
    def after(self, moment: int) -> int | None:
        """The first slot strictly later than `moment`, or None when there is none; a slot at `moment` itself is past.

        Raises BadInput on a trigger that speaks of "from now on" and was not told when that is: see `anchored`.
        """

    def anchored(self, moment: int, *, seed: str = "") -> Trigger:  # noqa: ARG002 - most triggers stand by themselves
        """The same trigger with all that it says of "from now on" counted from `moment`; anchored again it stays as it is.

        `seed` names what the trigger is for; jitter that has no seed of its own takes it.
        """
        return self

    def upcoming(self, moment: datetime) -> Iterator[datetime]:
        """The slots strictly later than an aware datetime, in order, as datetimes in UTC."""
        slot = instant_of(moment)
        trigger = self.anchored(slot)
        while (following := trigger.after(slot)) is not None:
            yield instant(following)
            slot = following


def not_anchored(trigger: Trigger) -> BadInput:
    """The error of a trigger that was asked for slots before it was told when "now" is."""
    return BadInput(f"{trigger} counts from when it starts, and was not told when that is: give start=, or ask trigger.anchored(moment)")


def _plain(value: object) -> JsonValue:
    """A field's value as JSON."""
    if isinstance(value, Value):
        return value.document()
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return cast("str | int", value)  # a field holds one or the other
