"""Triggers that users write: a function with a name, registered wherever it is to be understood."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, cast

from pydantic import JsonValue

from astyqueue.clock import instant
from astyqueue.errors import BadInput
from astyqueue.instants import LATEST, instant_of
from astyqueue.triggers.base import Trigger

#: Given an aware datetime in UTC and the arguments it was asked for with, the first slot strictly later, aware, or None.
Slots = Callable[..., datetime | None]


@dataclass(frozen=True, slots=True, init=False)
class Custom(Trigger):
    """The slots that a registered function gives; made by calling what registration returns.

    Two are equal when their names and arguments are. The function has to be pure: every process must get the same slots.
    """

    kind: ClassVar[str] = "custom"

    name: str
    #: As JSON, its keys in order.
    arguments: str
    slots: Slots = field(compare=False, repr=False)

    def __init__(self, name: str, slots: Slots, arguments: dict[str, JsonValue]) -> None:
        """Raises BadInput for arguments that are no JSON."""
        try:
            written = json.dumps(arguments, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            problem = f"the arguments of trigger {name!r} must be JSON ({error}): {arguments!r}"
            raise BadInput(problem) from error
        self._fill(name=name, slots=slots, arguments=written)

    def after(self, moment: int) -> int | None:
        """What the function says; raises BadInput when it is not strictly later, for nothing would ever come after it."""
        found = self.slots(instant(moment), **json.loads(self.arguments))
        if found is None:
            return None
        slot = _instant_in(found)
        if slot is None or slot <= moment:
            problem = (
                f"trigger {self.name!r} answered {found!r} for {instant(moment)}: it must answer an aware datetime later than that, or None"
                f" ({instant(LATEST)} at the latest)"
            )
            raise BadInput(problem)
        return slot

    def document(self) -> dict[str, JsonValue]:
        """The name and the arguments."""
        return {"kind": self.kind, "name": self.name, "arguments": cast("JsonValue", json.loads(self.arguments))}


def _instant_in(answer: object) -> int | None:
    """The instant that a function answered; None if that is none."""
    try:
        return instant_of(answer)
    except BadInput:
        return None
