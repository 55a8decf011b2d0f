"""The tables of a keyspace, from the numbered files in `schema/cassandra`.

Every statement is idempotent: `IF NOT EXISTS` creates what is missing and leaves what exists.
"""

from __future__ import annotations

import uuid
from typing import Final

from astyqueue.stores import schema_files
from astyqueue.stores.schema_files import Part

#: The table that records the applied versions, the home of the keyspace and the lock of migrations.
VERSIONS: Final = "schema_versions"

_SPACE: Final = uuid.UUID("6f1a6d0c-3f4e-5b7a-9f63-2f0f8f0b7a11")


def literal(text: str) -> str:
    """Text as a CQL literal, with its quotes escaped: it may come from a URL or from a server."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A column's name as a quoted CQL identifier: it may be a reserved word or have capitals or quotation marks."""
    return '"' + name.replace('"', '""') + '"'


def parts(keyspace: str) -> list[Part]:
    """All files in the order in which they run.

    The first, version 0, creates the table in which the others are recorded.
    """
    first, *others = schema_files.parts("cassandra")
    return [first._replace(statements=tuple(_with_id(text, keyspace) for text in first.statements)), *others]


def newest(keyspace: str) -> int:
    """The version of the last file."""
    return parts(keyspace)[-1].version


def _with_id(statement: str, keyspace: str) -> str:
    """With a fixed id processes that create the table at once create the same one; Cassandra cannot merge two ids."""
    return f"{statement}\n    AND id = {uuid.uuid5(_SPACE, keyspace)}"
