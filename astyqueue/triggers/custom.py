"""Custom triggers: a named function, registered in every process that reads or fires its schedules."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, cast

from pydantic import JsonValue

from astyqueue.clock import instant
from astyqueue.durations import LATEST, instant_of
from astyqueue.errors import BadInput
from astyqueue.triggers.base import Trigger

#: Gets an aware datetime in UTC and the trigger's arguments; returns the first occurrence strictly later, aware, or
#: None.
Occurrences = Callable[..., datetime | None]


@dataclass(frozen=True, slots=True, init=False)
class Custom(Trigger):
    """The occurrences of a registered function; made by calling the result of `Triggers.register`.

    Two are equal if their names and arguments are. The function must be pure: every process must get the same
    occurrences.
    """

    kind: ClassVar[str] = "custom"

    name: str
    #: As JSON, its keys in order.
    arguments: str
    occurrences: Occurrences = field(compare=False, repr=False)

    def __init__(self, name: str, occurrences: Occurrences, arguments: dict[str, JsonValue]) -> None:
        """BadInput for arguments that have no JSON form."""
        try:
            written = json.dumps(arguments, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            problem = f"the arguments of trigger {name!r} must be JSON ({error}): {arguments!r}"
            raise BadInput(problem) from error
        self._fill(name=name, occurrences=occurrences, arguments=written)

    def after(self, moment: int) -> int | None:
        """The function's result; BadInput unless it is strictly later, because the trigger would never advance."""
        found = self.occurrences(instant(moment), **json.loads(self.arguments))
        if found is None:
            return None
        occurrence = _instant_in(found)
        if occurrence is None or occurrence <= moment:
            problem = (
                f"trigger {self.name!r} returned {found!r} for {instant(moment)}: it must return None, "
                f"or an aware datetime later than that and at most {instant(LATEST)}"
            )
            raise BadInput(problem)
        return occurrence

    def document(self) -> dict[str, JsonValue]:
        """The name and the arguments."""
        return {"kind": self.kind, "name": self.name, "arguments": cast("JsonValue", json.loads(self.arguments))}


def _instant_in(answer: object) -> int | None:
    """The instant of a function's result; None if that is not a valid aware datetime."""
    try:
        return instant_of(answer)
    except BadInput:
        return None
