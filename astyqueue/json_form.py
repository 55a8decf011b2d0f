"""Values as JSON: what was encoded reads back equal, or is refused. Message bodies and journals share these rules.

`pydantic_core` reads and writes JSON several times faster than the standard library, but it also accepts values that
JSON does not have (a datetime, a set, bytes, NaN) and changes them silently. So the encoded value is read back and
compared: if it differs, the slow path turns models and tuples into plain JSON, or names the part that has no JSON form.
Errors name places and types and repeat no value: bodies may be confidential, and errors are logged.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pydantic_core import PydanticSerializationError, from_json, to_json

from astyqueue.errors import BadInput

if TYPE_CHECKING:
    from pydantic import BaseModel, JsonValue

#: Deeper than anything that can be read back: a value nested deeper most likely contains itself.
_DEEPEST: Final = 250
#: Characters of a key, and of a path, that an error repeats.
_KEY_SHOWN: Final = 40
_PATH_SHOWN: Final = 80
#: A body is stored as the last field of an envelope, so a value is checked one level deeper than it was given.
_STORED: Final = b"[%b]"


def check_text(text: object, what: str) -> str:
    """The text itself; BadInput, which calls it `what`, unless it is text and valid Unicode.

    A Python string may contain a lone surrogate (half a character), which neither UTF-8 nor JSON can encode.
    """
    if not isinstance(text, str):
        message = f"{what} is of type {type(text).__name__}, not text"
        raise BadInput(message)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"{what} is not valid Unicode: {error.reason} (position {error.start})"
        raise BadInput(message) from error
    return text


def encode_json(value: object, what: str) -> bytes:
    """The JSON of a value; BadInput, which calls it `what`, if it has no JSON form or cannot be read back."""
    encoded = _encode_fast(value)
    return _encode_plain(_plain(value, what, 0), what) if encoded is None else encoded


def _encode_fast(value: object) -> bytes | None:
    """The JSON of a value, or None unless it reads back equal."""
    try:
        encoded = to_json(value)
        return encoded if from_json(_STORED % encoded, allow_inf_nan=False) == [value] else None
    except (PydanticSerializationError, ValueError, RecursionError):
        return None


def _encode_plain(plain: JsonValue, what: str) -> bytes:
    """The JSON of plain values. BadInput if it cannot be read back: too many digits in a number, or too many levels."""
    try:
        encoded = to_json(plain)
        from_json(_STORED % encoded, allow_inf_nan=False)
    except ValueError as error:
        message = (
            f"{what} cannot be read back as JSON ({error}): nest it less deeply, and give very long numbers as text"
        )
        raise BadInput(message) from error
    return encoded


def _plain(value: object, where: str, depth: int) -> JsonValue:
    """The same value in lists, dicts, text, numbers and None; `where` is its path, for errors."""
    if depth > _DEEPEST:
        message = f"{_cut(where)} is nested deeper than {_DEEPEST} levels, or contains itself"
        raise BadInput(message)
    match value:
        case None | bool() | int():
            return value
        case str():
            return check_text(value, _cut(where))
        case float() if math.isfinite(value):
            return value
        case float():
            message = f"{_cut(where)} is a float that is infinite or nan, which has no JSON form: give a finite number"
            raise BadInput(message)
        case list() | tuple():
            return [_plain(part, f"{where}[{index}]", depth + 1) for index, part in enumerate(value)]
        case dict():
            return {
                _plain_key(key, where): _plain(part, f"{where}[{key!r:.{_KEY_SHOWN}}]", depth + 1)
                for key, part in value.items()
            }
    from pydantic import BaseModel  # noqa: PLC0415 - it takes long to import, and most values are plain

    if isinstance(value, BaseModel):
        return _plain(_dumped(value, where), where, depth + 1)
    message = (
        f"{_cut(where)} is of type {type(value).__name__}, which has no JSON form: give text, numbers, lists and dicts"
    )
    raise BadInput(message)


def _plain_key(key: object, where: str) -> str:
    if isinstance(key, str):
        return check_text(key, f"a key of {_cut(where)}")
    message = f"{_cut(where)} has a key of type {type(key).__name__}: keys are text in JSON"
    raise BadInput(message)


def _dumped(model: BaseModel, where: str) -> JsonValue:
    try:
        plain: JsonValue = model.model_dump(mode="json")
    except (ValueError, RecursionError) as error:  # its text may repeat a field of the model
        message = f"{_cut(where)} is of type {type(model).__name__}, which has no JSON form: {type(error).__name__}"
        raise BadInput(message) from error
    return plain


def _cut(path: str) -> str:
    return f"{path:.{_PATH_SHOWN}}"
