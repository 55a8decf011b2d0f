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

#: Encoded bytes of a body; a queue's setting may raise it to the second figure.
BODY_BYTES: Final = 256 * 1024
BODY_BYTES_AT_MOST: Final = 1024 * 1024
_DEEPEST: Final = 100


def encode_body(body: object, most: int = BODY_BYTES) -> bytes:
    """The JSON of a body, at most so many bytes; what has no JSON form, or is longer, raises BadInput."""
    encoded = _same_again(body)
    if encoded is None:
        encoded = to_json(_plain(body, "body", 0))
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


def _same_again(body: object) -> bytes | None:
    """The JSON of a body that comes back equal, if it does."""
    try:
        encoded = to_json(body)
        return encoded if from_json(encoded, allow_inf_nan=False) == body else None
    except (PydanticSerializationError, ValueError, RecursionError):
        return None


def _plain(value: object, where: str, depth: int) -> JsonValue:
    """The same value in lists, dicts, text, numbers and None; `where` is how a person would point at it."""
    if depth > _DEEPEST:
        message = f"{where} is nested deeper than {_DEEPEST} levels, or contains itself"
        raise BadInput(message)
    match value:
        case None | bool() | str() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case BaseModel():
            return _plain(value.model_dump(mode="json"), where, depth + 1)
        case list() | tuple():
            return [_plain(part, f"{where}[{index}]", depth + 1) for index, part in enumerate(value)]
        case dict():
            return {_plain_key(key, where): _plain(part, f"{where}[{key!r}]", depth + 1) for key, part in value.items()}
    message = f"{where} is {value!r:.80} ({type(value).__name__}), which has no JSON form: send text, numbers, lists and dicts"
    raise BadInput(message)


def _plain_key(key: object, where: str) -> str:
    if isinstance(key, str):
        return key
    message = f"{where} has the key {key!r:.80} ({type(key).__name__}): keys are text in JSON"
    raise BadInput(message)
