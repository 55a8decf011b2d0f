"""The tables in a keyspace, and how they are made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Final

from cassandra.cluster import Session
from cassandra.query import SimpleStatement

from astyqueue.errors import BadSetting

_KEYSPACE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_COMMENT: Final = re.compile(r"--[^\n]*\n")
#: Making a table waits for every node; the time of a request would not do.
_PATIENCE_SECONDS: Final = 60


def checked_keyspace(name: str) -> str:
    """The name of a keyspace as it is; what cannot be one raises BadSetting."""
    if not _KEYSPACE.fullmatch(name):
        message = f"keyspace {name!r} cannot be: a letter, then letters, digits and underscores, 48 at most"
        raise BadSetting(message)
    return name


def statements() -> list[str]:
    """The CQL that makes the tables, in the order in which it is to be run inside the keyspace."""
    files = sorted(
        (each for each in resources.files(__name__).iterdir() if each.name.endswith(".cql")),
        key=lambda each: each.name,
    )
    texts = [_COMMENT.sub("", each.read_text()) for each in files]
    return [statement.strip() for text in texts for statement in text.split(";") if statement.strip()]


def create_schema(session: Session, keyspace: str, replication: Mapping[str, object]) -> None:
    """Make the keyspace and its tables, those that are missing; what is there is left as it is.

    `replication` is as in CQL: `{"class": "NetworkTopologyStrategy", "dc1": 3}`. Three copies in the queue's data centre
    let one node fail; one copy is for trying things out.
    """
    for text in (keyspace_statement(keyspace, replication), *statements()):
        session.execute(SimpleStatement(text, keyspace=None if text.startswith("CREATE KEYSPACE") else keyspace), timeout=_PATIENCE_SECONDS)


def keyspace_statement(keyspace: str, replication: Mapping[str, object]) -> str:
    """The CQL that makes a keyspace with this replication."""
    options = ", ".join(f"'{_quoted(name)}': '{_quoted(value)}'" for name, value in replication.items())
    return f'CREATE KEYSPACE IF NOT EXISTS "{checked_keyspace(keyspace)}" WITH replication = {{{options}}}'


def _quoted(part: object) -> str:
    return str(part).replace("'", "''")
