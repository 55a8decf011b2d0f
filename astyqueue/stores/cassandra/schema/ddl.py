"""The declaration of a table, parsed from the CQL that creates it, so that there is one source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

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
