"""Text that can be stored: valid Unicode, for neither UTF-8 nor JSON can write the halves of characters that Python's texts may hold."""

from __future__ import annotations

from astyqueue.errors import BadInput


def check_text(text: object, what: str) -> str:
    """The text itself; BadInput, which names it by `what` it is, for anything else and for a lone surrogate in it."""
    if not isinstance(text, str):
        message = f"{what} is {text!r:.80} ({type(text).__name__}) and not text"
        raise BadInput(message)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"{what} is {text!r:.80}, which is no valid Unicode: {error.reason} (position {error.start})"
        raise BadInput(message) from error
    return text
