"""The base of all triggers: a value that computes the next occurrence, and can be serialized."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from typing import ClassVar, Self, cast

from pydantic import JsonValue

from astyqueue.clock import instant
from astyqueue.durations import instant_of
from astyqueue.errors import BadInput


class Value:
    """An immutable value, equal to others of its type with the same fields."""

    __slots__ = ()

    kind: ClassVar[str]

    def document(self) -> dict[str, JsonValue]:
        """This value as JSON, with moments and durations in whole microseconds; `Triggers.read` reads it back."""
        held = {field.name: getattr(self, field.name) for field in fields(self) if field.compare}  # type: ignore[arg-type]  # each kind is a dataclass
        return {"kind": self.kind} | {name: _plain(value) for name, value in held.items() if value is not None}

    def _fill(self, **values: object) -> None:
        """Set fields of this frozen value while it is made."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def but(self, **changed: object) -> Self:
        """A copy with these fields changed."""
        other = object.__new__(type(self))
        held = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # as above
        other._fill(**held | changed)
        return other


class Trigger(Value, ABC):
    """A series of occurrences; equal triggers have equal occurrences in every process.

    Moments are whole microseconds since 1970 UTC; only `upcoming` takes and returns datetimes.
    """

    __slots__ = ()

    @abstractmethod
    def after(self, moment: int) -> int | None:
        """The first occurrence later than `moment`, or None after the last one; one at `moment` itself is past.

        BadInput if the trigger depends on when it starts and is not anchored: see `anchored`.
        """

    def anchored(self, moment: int, *, seed: str = "") -> Trigger:  # noqa: ARG002 - most triggers need no anchor
        """The same trigger with its relative parts counted from `moment`; anchoring again changes nothing.

        `seed` is the seed of jitter without a seed of its own.
        """
        return self

    def upcoming(self, moment: datetime) -> Iterator[datetime]:
        """The occurrences strictly later than an aware datetime, in order, as datetimes in UTC."""
        occurrence = instant_of(moment)
        trigger = self.anchored(occurrence)
        while (following := trigger.after(occurrence)) is not None:
            yield instant(following)
            occurrence = following


def not_anchored(trigger: Trigger, instead: str = "") -> BadInput:
    """The error of a trigger whose occurrences were asked for before it was anchored; `instead` is what helps."""
    remedy = f"give {instead}, or use trigger.anchored(moment)" if instead else "use trigger.anchored(moment)"
    return BadInput(f"{trigger} is not anchored, so it has no occurrences yet: {remedy}")


def wrong_end(start_us: int | None, end_us: int | None) -> str:
    """The problem of a trigger that ends before it starts; empty if it does not."""
    if start_us is None or end_us is None or start_us <= end_us:
        return ""
    return "end is before start, so there would be no occurrence: give an end after the start, or leave it out"


def _plain(value: object) -> JsonValue:
    """A field's value as JSON."""
    if isinstance(value, Value):
        return value.document()
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return cast("str | int", value)  # a field is one or the other
