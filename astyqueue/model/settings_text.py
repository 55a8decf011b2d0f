"""Names, values and units of settings as people write them, and errors in these terms."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from astyqueue.errors import BadSetting
from astyqueue.text import duration_setting_text

_MICROSECONDS: Final = "_us"
_BOUNDS: Final = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}


def setting_name(field: str) -> str:
    """The public name of a stored field: "lease" for `lease_us`, "every" for `time_shard_us`."""
    return "every" if field == "time_shard_us" else field.removesuffix(_MICROSECONDS)


def setting_text(field: str, value: object) -> object:
    """A stored value as people write it: durations as text, other values unchanged."""
    if field.endswith(_MICROSECONDS) and isinstance(value, int) and value >= 0:
        return duration_setting_text(value)
    return value


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of an error about an unknown name: `; did you mean 'reason'?`, or nothing if no known name is similar."""
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def bad_setting(error: ValidationError) -> BadSetting:
    """The validation error with the public names and units of the settings."""
    return BadSetting("; ".join(map(_complaint, error.errors(include_url=False))))


def _complaint(detail: ErrorDetails) -> str:
    if not detail["loc"]:
        return detail["msg"]
    field = str(detail["loc"][-1])
    name, given = setting_name(field), detail["input"]
    if detail["type"] == "extra_forbidden":
        return f"a queue has no setting {name!r}"
    if bound := _BOUNDS.get(detail["type"]):
        word, limit = bound
        return f"{name} is {setting_text(field, given)} and must be {word} {setting_text(field, detail['ctx'][limit])}"
    return f"{name} is {given!r:.80}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"
