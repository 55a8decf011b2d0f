"""Bodies are JSON: what is received equals what was sent, or the send is refused.

`pydantic_core` reads and writes JSON several times faster than the standard library, but it also accepts what JSON does
not have (a datetime, a set, bytes, NaN) and changes it silently. So what was written is read back and compared: a body
that would not come back equal takes the slow road, where its models and tuples are turned into plain JSON or the part
that has no JSON form is named.
"""

from __future__ import annotations

import math
from typing import Final

from pydantic import BaseModel, JsonValue
from pydantic_core import PydanticSerializationError, from_json, to_json

from astyqueue.errors import BadInput
from astyqueue.model.checks import check_text

#: Encoded bytes of a body; a queue's setting may raise it to the second figure.
BODY_BYTES: Final = 256 * 1024
BODY_BYTES_AT_MOST: Final = 1024 * 1024
#: Deeper than anything that can be read back: what is nested so deep most likely contains itself.
_DEEPEST: Final = 250


def encode_body(body: object, most: int = BODY_BYTES) -> bytes:
    """The JSON of a body, at most so many bytes; what has no JSON form, cannot be read back, or is longer raises BadInput."""
    encoded = _same_again(body)
    if encoded is None:
        encoded = _written(_plain(body, "body", 0))
    if len(encoded) > most:
        message = (
            f"body is {len(encoded)} bytes as JSON, and this queue takes {most}: keep the large part elsewhere and send "
            f"where it is, or raise the queue's body_bytes (at most {BODY_BYTES_AT_MOST})"
        )
        raise BadInput(message)
    return encoded


def decode_body(encoded: bytes) -> JsonValue:
    """The body that `encode_body` wrote; anything else raises ValueError."""
    body: JsonValue = from_json(encoded, allow_inf_nan=False)
    return body


def _read_back(encoded: bytes) -> list[JsonValue]:
    """A body in a list: it is stored as the last field of an envelope, one level deeper than it was sent."""
    enveloped: list[JsonValue] = from_json(b"[%b]" % encoded, allow_inf_nan=False)
    return enveloped


def _same_again(body: object) -> bytes | None:
    """The JSON of a body that comes back equal, if it does."""
    try:
        encoded = to_json(body)
        return encoded if _read_back(encoded) == [body] else None
    except (PydanticSerializationError, ValueError, RecursionError):
        return None


def _written(plain: JsonValue) -> bytes:
    """The JSON of plain values, if it can be read back: numbers may have too many digits for that, and lists too many levels."""
    try:
        encoded = to_json(plain)
        _read_back(encoded)
    except ValueError as error:
        message = f"body could not be read again as JSON ({error}): send less nested lists and dicts, and very long numbers as text"
        raise BadInput(message) from error
    return encoded


def _plain(value: object, where: str, depth: int) -> JsonValue:
    """The same value in lists, dicts, text, numbers and None; `where` is how a person would point at it."""
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
    message = f"{where:.80} is {value!r:.80} ({type(value).__name__}), which has no JSON form: send text, numbers, lists and dicts"
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
