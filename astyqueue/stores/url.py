"""Parses a store's URL into the adapter, the place and the options."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from astyqueue.errors import BadSetting

#: The environment variable with the URL of the store of an app, a command or a Spark option that gives none.
URL_VARIABLE: Final = "ASTYQUEUE_URL"
#: The environment variable with the folder of the spool of an app that gives none.
SPOOL_VARIABLE: Final = "ASTYQUEUE_SPOOL"

_SEPARATOR: Final = "://"
#: The names that errors repeat. Anything else may be part of a password.
_NAME: Final = re.compile(r"[a-z_]{1,20}")


@dataclass(frozen=True, slots=True)
class Location:
    """`scheme://quoted?option=value&option=value`; the values are decoded (`%20` is a space).

    Its `repr` has the scheme only: the rest may contain a password.
    """

    scheme: str
    #: Not decoded: a part may contain an encoded separator, so an adapter splits first and decodes then.
    quoted: str = field(repr=False)
    options: dict[str, str] = field(repr=False)

    @property
    def place(self) -> str:
        """The part between the scheme and the options, decoded as a whole."""
        return unquote(self.quoted)

    def only(self, allowed: Collection[str]) -> None:
        """Raise BadSetting for an option that this kind of store does not have."""
        for option in self.options:
            if option not in allowed:
                has = f"its options are: {', '.join(sorted(allowed))}" if allowed else "it has no options"
                named = (
                    f"{option!r}" if _NAME.fullmatch(option) else "of that name (a '?' in a password is written %3F)"
                )
                message = f"a {self.scheme} store has no option {named}; {has}"
                raise BadSetting(message)


def locate(url: str) -> Location:
    """The parts of a store's URL.

    An invalid URL raises BadSetting, whose text never repeats the URL: it may contain a password.
    """
    if not isinstance(url, str):  # such as None, from a variable that is not set
        message = f"a store's URL is text, for example sqlite:///mail.db, and this one is {type(url).__name__}"
        raise BadSetting(message)
    scheme, separator, rest = url.partition(_SEPARATOR)
    if not separator:
        message = "a store's URL begins with its kind, for example sqlite:///mail.db or memory://"
        raise BadSetting(message)
    place, _, query = rest.partition("?")
    # Not `parse_qsl`, which decodes forms: there a '+' is a space.
    parts = [part.partition("=") for part in query.split("&") if part]
    given = [(unquote(name), unquote(value)) for name, _, value in parts]
    options = dict(given)
    if len(options) != len(given):
        message = f"an option of this {scheme} store is given twice; give each option once"
        raise BadSetting(message)
    return Location(scheme.lower(), place, options)
