"""Whether tables are as their files declare them, and what to do where they are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from astyqueue.findings import Finding, Severity, ok
from astyqueue.stores.cassandra.schema import identifier
from astyqueue.stores.cassandra.schema.declared import Option, Table

#: How long what was deleted is kept, in seconds: as long as a node may be away, or go unrepaired, and still come back with its data.
GC_GRACE: Final = 24 * 3600
#: Below this, what was deleted may come back with a node that was away: hints last three hours.
LEAST_GC_GRACE: Final = 4 * 3600

_GC_GRACE: Final = "gc_grace_seconds"
_TTL: Final = "default_time_to_live"
_FOR_GOOD: Final = "0"
_RESTORE: Final = "use a keyspace that 'astyqueue migrate' made, or restore this one from a backup"
_WHY: Final = {
    _GC_GRACE: "a node that was away, or was not repaired, for longer brings back what was deleted meanwhile, such as settled messages",
    "compaction": "another compaction keeps deleted columns beside live ones for longer, and reads walk over them",
    _TTL: "messages would vanish after that time without a trace",
}
#: Where the documentation says what an operator is to do.
SEE_DELETES: Final = "docs/how-to/production.md#deletes-repair-and-the-lap"
_SEE_OPTIONS: Final = "docs/how-to/production.md#table-options"
_SEE: Final = {_GC_GRACE: SEE_DELETES, **dict.fromkeys(("compaction", "speculative_retry", _TTL), _SEE_OPTIONS)}


class Kept(NamedTuple):
    """A table as the server has it; columns in the words of `Table`, options as text."""

    columns: Mapping[str, str]
    options: Mapping[str, Option]


def verify_table(keyspace: str, wanted: Table, kept: Kept | None) -> list[Finding]:
    """What differs, or one finding that nothing does."""
    subject = f'table "{keyspace}"."{wanted.name}"'
    if kept is None:
        reason, remedy = "nothing can be stored without it", "run 'astyqueue migrate' on this URL"
        return [Finding(subject, Severity.PROBLEM, "is not there", reason, remedy)]
    differences = [*_columns(subject, wanted, kept), *_options(subject, keyspace, (wanted, kept))]
    return differences or [ok(subject, "columns and options are as they should be")]


def _columns(subject: str, wanted: Table, kept: Kept) -> Iterator[Finding]:
    reason = "this is not the table that astyqueue works with"
    for name, words in wanted.columns.items():
        if name not in kept.columns:
            yield Finding(subject, Severity.PROBLEM, f"has no column {name} ({words})", reason, _RESTORE)
        elif kept.columns[name] != words:
            yield Finding(subject, Severity.PROBLEM, f"column {name} is {kept.columns[name]} and should be {words}", reason, _RESTORE)
    for name in kept.columns.keys() - wanted.columns.keys():
        told = f"has a column {name} ({kept.columns[name]}) that astyqueue does not know"
        static = kept.columns[name].endswith("static")
        why = "a static column makes conditional batches walk over deleted columns" if static else "it was added by somebody else"
        yield Finding(
            subject, Severity.WARNING if static else Severity.NOTE, told, why, f"ALTER TABLE {subject[6:]} DROP {identifier(name)};"
        )


def _options(subject: str, keyspace: str, tables: tuple[Table, Kept]) -> Iterator[Finding]:
    wanted, kept = tables
    for name, value in wanted.options.items():
        there = kept.options.get(name, "")
        if _is_as_wanted(name, value, there):
            continue
        written, found = _written(value), _written(_alike(value, there))
        remedy = f'ALTER TABLE "{keyspace}"."{wanted.name}" WITH {name} = {written};'
        grave = _is_grave(name, there, wanted=value)
        why = "" if name == _TTL and not grave else _WHY.get(name, "")
        severity = Severity.PROBLEM if grave else Severity.WARNING
        yield Finding(subject, severity, f"{name} is {found} and should be {written}", why, remedy, see=_SEE.get(name, ""))


def _is_as_wanted(name: str, wanted: Option, there: Option) -> bool:
    """Deleted columns may be kept for longer than we ask: some do not repair their nodes every day."""
    if name == _GC_GRACE:
        return int(str(there)) >= int(str(wanted))
    return wanted == _alike(wanted, there)


def _alike(wanted: Option, there: Option) -> Option:
    """The parts of a map that we care about; a class by its short name."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return {key: value.rpartition(".")[2] if key == "class" else value for key, value in there.items() if key in wanted}
    return there


def _is_grave(name: str, there: Option, *, wanted: Option) -> bool:
    """Whether something could be lost or come back; of a table whose columns all expire, when is a matter of taste."""
    return (name == _TTL and wanted == _FOR_GOOD) or (name == _GC_GRACE and int(str(there)) < LEAST_GC_GRACE)


def _written(value: Option) -> str:
    """As CQL writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"'{key}': '{each}'" for key, each in value.items()) + "}"
    return value
