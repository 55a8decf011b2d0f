"""Checks of what people hand in, the same wherever it is: text that can be stored, whole numbers."""

from __future__ import annotations

from astyqueue.errors import BadInput


def check_text(text: object, what: str) -> str:
    """The text itself; BadInput, which names it by `what` it is, unless it is text that is valid Unicode.

    Neither UTF-8 nor JSON can write a lone surrogate, half a character, which the texts of Python may hold.
    """
    if not isinstance(text, str):
        message = f"{what} is {text!r:.80} ({type(text).__name__}) and not text"
        raise BadInput(message)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"{what} is {text!r:.80}, which is no valid Unicode: {error.reason} (position {error.start})"
        raise BadInput(message) from error
    return text


def check_count(count: object, what: str, *, least: int = 1) -> int:
    """The number itself; BadInput, which says of `what` it is the number, unless it is a whole number and not less than the `least`."""
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        message = f"{count!r:.80} {what}: ask for a whole number, {least} or more"
        raise BadInput(message)
    return count
