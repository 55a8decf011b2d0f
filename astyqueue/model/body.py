"""Bodies are JSON: a consumer receives a body equal to the one sent, or the send is refused.

`pydantic_core` reads and writes JSON several times faster than the standard library, but it also accepts values that
JSON does not have (a datetime, a set, bytes, NaN) and changes them silently. So the encoded body is read back and
compared: if it differs, the slow path turns models and tuples into plain JSON, or names the part that has no JSON form.
"""

from __future__ import annotations

import math
from typing import Final

from pydantic import BaseModel, JsonValue
from pydantic_core import PydanticSerializationError, from_json, to_json

from astyqueue.errors import BadInput
from astyqueue.model.validation import check_text

#: Limit of an encoded body in bytes; a queue's setting may raise it to the second figure.
BODY_BYTES: Final = 256 * 1024
BODY_BYTES_AT_MOST: Final = 1024 * 1024
#: Deeper than anything that can be read back: a body nested deeper most likely contains itself.
_DEEPEST: Final = 250
#: A body is stored as the last field of an envelope, so it is checked one level deeper than it was sent.
_STORED: Final = b"[%b]"


def call_body(arguments: object) -> dict[str, object] | None:
    """The body of a call of a task, from a list of its arguments or an object by name; None for another value."""
    if isinstance(arguments, list):
        return {"args": arguments, "kwargs": {}}
    if isinstance(arguments, dict):
        return {"args": [], "kwargs": arguments}
    return None


def encode_body(body: object, most: int = BODY_BYTES) -> bytes:
    """The JSON of a body. One that has no JSON form, cannot be read back, or exceeds `most` bytes raises BadInput."""
    encoded = _encode_fast(body)
    if encoded is None:
        encoded = _encode_plain(_plain(body, "body", 0))
    if len(encoded) > most:
        message = (
            f"body is {len(encoded)} bytes as JSON, and this queue takes {most}: store the large part elsewhere and "
            f"send a reference to it, or raise the queue's body_bytes (at most {BODY_BYTES_AT_MOST})"
        )
        raise BadInput(message)
    return encoded


def decode_body(encoded: bytes) -> JsonValue:
    """The body that `encode_body` wrote; anything else raises ValueError."""
    body: JsonValue = from_json(encoded, allow_inf_nan=False)
    return body


def _encode_fast(body: object) -> bytes | None:
    """The JSON of a body, or None unless it reads back equal."""
    try:
        encoded = to_json(body)
        return encoded if from_json(_STORED % encoded, allow_inf_nan=False) == [body] else None
    except (PydanticSerializationError, ValueError, RecursionError):
        return None


def _encode_plain(plain: JsonValue) -> bytes:
    """The JSON of plain values. BadInput if it cannot be read back: too many digits in a number, or too many levels."""
    try:
        encoded = to_json(plain)
        from_json(_STORED % encoded, allow_inf_nan=False)
    except ValueError as error:
        message = f"body cannot be read back as JSON ({error}): nest it less deeply, and send very long numbers as text"
        raise BadInput(message) from error
    return encoded


def _plain(value: object, where: str, depth: int) -> JsonValue:
    """The same value in lists, dicts, text, numbers and None; `where` is its path in the body, for errors."""
    if depth > _DEEPEST:
        message = f"{where:.80} is nested deeper than {_DEEPEST} levels, or contains itself"
        raise BadInput(message)
    match value:
        case None | bool() | int():
            return value
        case str():
            return check_text(value, f"{where:.80}")
        case float() if math.isfinite(value):
            return value
        case BaseModel():
            return _plain(_dumped(value, where), where, depth + 1)
        case list() | tuple():
            return [_plain(part, f"{where}[{index}]", depth + 1) for index, part in enumerate(value)]
        case dict():
            return {_plain_key(key, where): _plain(part, f"{where}[{key!r}]", depth + 1) for key, part in value.items()}
    message = (
        f"{where:.80} is {value!r:.80} ({type(value).__name__}), which has no JSON form: "
        "send text, numbers, lists and dicts"
    )
    raise BadInput(message)


def _plain_key(key: object, where: str) -> str:
    if isinstance(key, str):
        return check_text(key, f"a key of {where:.80}")
    message = f"{where} has the key {key!r:.80} ({type(key).__name__}): keys are text in JSON"
    raise BadInput(message)


def _dumped(model: BaseModel, where: str) -> JsonValue:
    try:
        plain: JsonValue = model.model_dump(mode="json")
    except (ValueError, RecursionError) as error:
        message = f"{where:.80} is a {type(model).__name__} that has no JSON form: {error}"
        raise BadInput(message) from error
    return plain
