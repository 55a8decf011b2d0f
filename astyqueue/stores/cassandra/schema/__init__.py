"""The tables in a keyspace, as the numbered files beside this one make them.

Every statement may be run again: `IF NOT EXISTS` makes what is missing and leaves what is there.
"""

from __future__ import annotations

import re
import uuid
from importlib import resources
from typing import Final, NamedTuple

from astyqueue.errors import BadSetting

#: The table that says which versions a keyspace has been through, and holds the lock on going through them.
VERSIONS: Final = "schema_versions"

_KEYSPACE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_COMMENT: Final = re.compile(r"--[^\n]*\n")
_SPACE: Final = uuid.UUID("6f1a6d0c-3f4e-5b7a-9f63-2f0f8f0b7a11")


class Part(NamedTuple):
    """One of the files: the version that a keyspace has once it was run, and its statements."""

    version: int
    file: str
    statements: tuple[str, ...]


def checked_keyspace(name: str) -> str:
    """The name of a keyspace as it is; what cannot be one raises BadSetting."""
    if not _KEYSPACE.fullmatch(name):
        message = f"keyspace {name!r} cannot be: a letter, then letters, digits and underscores, 48 at most"
        raise BadSetting(message)
    return name


def literal(text: str) -> str:
    """Text as a literal of CQL, whatever is in it: it may come from a URL, or from a server."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """The name of a column in quotation marks, as a server may have it: reserved words, capitals and quotation marks."""
    return '"' + name.replace('"', '""') + '"'


def parts(keyspace: str) -> list[Part]:
    """All files in the order in which they are run. The first, of version 0, makes the table that the others are recorded in."""
    files = sorted((each for each in resources.files(__name__).iterdir() if each.name.endswith(".cql")), key=lambda each: each.name)
    first, *others = (_part(each.name.removesuffix(".cql"), each.read_text()) for each in files)
    return [first._replace(statements=tuple(_with_id(text, keyspace) for text in first.statements)), *others]


def newest(keyspace: str) -> int:
    """The version of the last file."""
    return parts(keyspace)[-1].version


def _part(file: str, text: str) -> Part:
    statements = (statement.strip() for statement in _COMMENT.sub("", text).split(";"))
    return Part(int(file.partition("_")[0]), file, tuple(filter(None, statements)))


def _with_id(statement: str, keyspace: str) -> str:
    """The same table for all who make it at once: of two ids that meet, Cassandra could keep neither."""
    return f"{statement}\n    AND id = {uuid.uuid5(_SPACE, keyspace)}"
