"""The tables of a keyspace, from the numbered files in `schema/cassandra`, so that there is one source.

Every statement is idempotent: `IF NOT EXISTS` creates what is missing and leaves what exists. The declaration of a
table, which `verify` compares with the server's, is parsed from the statement that creates it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from astyqueue.stores import schema_files
from astyqueue.stores.schema_files import Part

#: The table that records the applied versions, the home of the keyspace and the lock of migrations.
VERSIONS: Final = "schema_versions"

_SPACE: Final = uuid.UUID("6f1a6d0c-3f4e-5b7a-9f63-2f0f8f0b7a11")
_TABLE: Final = re.compile(
    r'CREATE TABLE IF NOT EXISTS "(?P<name>\w+)" \((?P<columns>.*?),\s*PRIMARY KEY \((?P<key>.*?)\)\s*\) '
    r"WITH (?P<options>.*)",
    re.DOTALL,
)
_COLUMN: Final = re.compile(r"(\w+) (\w+)")
_ORDER: Final = re.compile(r"(\w+) (ASC|DESC)\b")
_OPTION: Final = re.compile(r"(\w+) = (\{.*?\}|'[^']*'|[\w.-]+)", re.DOTALL)
_PAIR: Final = re.compile(r"'([^']*)': '([^']*)'")
#: Options that `verify` does not compare.
_FREE: Final = frozenset({"comment", "id"})
Option = str | dict[str, str]


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


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns, each in words such as "timeuuid, clustering column 2, ascending", and its options."""

    name: str
    columns: dict[str, str]
    options: dict[str, Option]


def declared(statement: str) -> Table:
    """The table that a CREATE TABLE statement of the schema declares."""
    found = _TABLE.match(statement)
    if not found:
        message = f"not a CREATE TABLE statement of the schema: {statement:.60}"
        raise ValueError(message)
    options = dict(_options(found["options"]))
    return Table(found["name"], dict(_columns(found)), options)


def in_words(kind: str, place: int, order: str) -> str:
    """The role of a column in its table, in words; the same for `system_schema.columns` and for the files."""
    if kind == "clustering":
        return f"clustering column {place}, {order.lower()}ending"
    return {"partition_key": f"partition key column {place}"}.get(kind, kind)


def _columns(found: re.Match[str]) -> Iterator[tuple[str, str]]:
    orders = dict(_ORDER.findall(found["options"]))
    partition, _, clustering = found["key"].partition(")")
    places = {name: in_words("partition_key", at, "") for at, name in enumerate(re.findall(r"\w+", partition))}
    places |= {
        name: in_words("clustering", at, orders.get(name, "ASC"))
        for at, name in enumerate(re.findall(r"\w+", clustering))
    }
    for name, kind in _COLUMN.findall(found["columns"]):
        yield name, f"{kind}, {places.get(name, 'regular')}"


def _options(text: str) -> Iterator[tuple[str, Option]]:
    for name, value in _OPTION.findall(text):
        if name not in _FREE:
            yield name, dict(_PAIR.findall(value)) if value.startswith("{") else value.strip("'")
