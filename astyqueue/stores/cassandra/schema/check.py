"""Compares the tables on the server with their declarations; each difference comes with a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from astyqueue.findings import Finding, Severity, ok
from astyqueue.stores.cassandra.schema.files import Option, Table, identifier

#: How long tombstones are kept, in seconds; a node that was down or unrepaired for longer must not rejoin as it is.
GC_GRACE: Final = 24 * 3600
#: With less, deletes may be undone by a node that was down: hints last three hours.
LEAST_GC_GRACE: Final = 4 * 3600

_GC_GRACE: Final = "gc_grace_seconds"
_TTL: Final = "default_time_to_live"
_FOR_GOOD: Final = "0"
_RESTORE: Final = "use a keyspace that 'astyqueue migrate' made, or restore this one from a backup"
_WHY: Final = {
    _GC_GRACE: "a node that was down or unrepaired for longer brings back deleted columns, such as settled messages",
    "compaction": "other compactions keep tombstones beside live columns for longer, which slows reads",
    _TTL: "messages would expire after that time without a trace",
}
#: Sections of the documentation for operators.
SEE_DELETES: Final = "docs/how-to/production.md#deletes-repair-and-the-lap"
_SEE_OPTIONS: Final = "docs/how-to/production.md#table-options"
_SEE: Final = {_GC_GRACE: SEE_DELETES, **dict.fromkeys(("compaction", "speculative_retry", _TTL), _SEE_OPTIONS)}


class StoredTable(NamedTuple):
    """A table as the server has it; columns in the words of `Table`, options as text."""

    columns: Mapping[str, str]
    options: Mapping[str, Option]


def verify_table(keyspace: str, wanted: Table, kept: StoredTable | None) -> list[Finding]:
    """One finding for each difference, or a single `ok`."""
    subject = f'table "{keyspace}"."{wanted.name}"'
    if kept is None:
        reason, remedy = "nothing can be stored without it", "run 'astyqueue migrate' on this URL"
        return [Finding(subject, Severity.PROBLEM, "does not exist", reason, remedy)]
    differences = [*_columns(subject, wanted, kept), *_options(subject, keyspace, (wanted, kept))]
    return differences or [ok(subject, "columns and options are as they should be")]


def _columns(subject: str, wanted: Table, kept: StoredTable) -> Iterator[Finding]:
    reason = "astyqueue cannot work with this table"
    for name, words in wanted.columns.items():
        if name not in kept.columns:
            yield Finding(subject, Severity.PROBLEM, f"has no column {name} ({words})", reason, _RESTORE)
        elif kept.columns[name] != words:
            yield Finding(
                subject,
                Severity.PROBLEM,
                f"column {name} is {kept.columns[name]} and should be {words}",
                reason,
                _RESTORE,
            )
    for name in kept.columns.keys() - wanted.columns.keys():
        fact = f"has an unknown column {name} ({kept.columns[name]})"
        static = kept.columns[name].endswith("static")
        why = "a static column makes conditional batches scan tombstones" if static else "astyqueue did not add it"
        yield Finding(
            subject,
            Severity.WARNING if static else Severity.NOTE,
            fact,
            why,
            f"ALTER TABLE {subject[6:]} DROP {identifier(name)};",
        )


def _options(subject: str, keyspace: str, tables: tuple[Table, StoredTable]) -> Iterator[Finding]:
    wanted, kept = tables
    for name, value in wanted.options.items():
        there = kept.options.get(name, "")
        if _is_as_wanted(name, value, there):
            continue
        written, found = _written(value), _written(_alike(value, there))
        remedy = f'ALTER TABLE "{keyspace}"."{wanted.name}" WITH {name} = {written};'
        unsafe = _is_unsafe(name, there, wanted=value)
        why = "" if name == _TTL and not unsafe else _WHY.get(name, "")
        severity = Severity.PROBLEM if unsafe else Severity.WARNING
        yield Finding(
            subject, severity, f"{name} is {found} and should be {written}", why, remedy, see=_SEE.get(name, "")
        )


def _is_as_wanted(name: str, wanted: Option, there: Option) -> bool:
    """gc_grace_seconds may be greater than declared: some operators repair less often than daily."""
    if name == _GC_GRACE:
        return int(str(there)) >= int(str(wanted))
    return wanted == _alike(wanted, there)


def _alike(wanted: Option, there: Option) -> Option:
    """The keys of a map that are declared; a class by its short name."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return {
            key: value.rpartition(".")[2] if key == "class" else value for key, value in there.items() if key in wanted
        }
    return there


def _is_unsafe(name: str, there: Option, *, wanted: Option) -> bool:
    """Whether messages could be lost or come back. A table whose columns all expire may have any time to live."""
    return (name == _TTL and wanted == _FOR_GOOD) or (name == _GC_GRACE and int(str(there)) < LEAST_GC_GRACE)


def _written(value: Option) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"'{key}': '{each}'" for key, each in value.items()) + "}"
    return value
