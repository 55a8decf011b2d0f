"""Bodies are JSON: a consumer receives a body equal to the one sent, or the send is refused."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json

from astyqueue.errors import BadInput
from astyqueue.json_form import encode_json

#: Limit of an encoded body in bytes; a queue's setting may raise it to the second figure.
BODY_BYTES: Final = 256 * 1024
BODY_BYTES_AT_MOST: Final = 1024 * 1024


def call_body(arguments: object) -> dict[str, object] | None:
    """The body of a call of a task, from a list of its arguments or an object by name; None for another value."""
    if isinstance(arguments, list):
        return {"args": arguments, "kwargs": {}}
    if isinstance(arguments, dict):
        return {"args": [], "kwargs": arguments}
    return None


def encode_body(
    body: object, most: int = BODY_BYTES, *, limited_by: str = "this queue", raised_to: int = BODY_BYTES_AT_MOST
) -> bytes:
    """The JSON of a body. One that has no JSON form, cannot be read back, or exceeds `most` bytes raises BadInput.

    The error names what it is `limited_by`, and the queue's setting if that can raise the limit, which it can to
    `raised_to`.
    """
    encoded = encode_json(body, "body")
    if len(encoded) > most:
        setting = f", or raise the queue's body_bytes (at most {raised_to})" if most < raised_to else ""
        message = (
            f"body is {len(encoded)} bytes as JSON, and {limited_by} takes {most}: store the large part elsewhere and "
            f"send a reference to it{setting}"
        )
        raise BadInput(message)
    return encoded


def decode_body(encoded: bytes) -> JsonValue:
    """The body that `encode_body` wrote; anything else raises ValueError."""
    body: JsonValue = from_json(encoded, allow_inf_nan=False)
    return body
