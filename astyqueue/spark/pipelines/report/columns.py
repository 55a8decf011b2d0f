"""Tables of the pipeline, read column by column and without Spark, in memory that names cannot blow up.

Of each row numbers and codes of names are kept: 8 and 4 bytes a column, however long the names are. Each different name is kept
once, cut to a length, and only so many of them: a producer may send any number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as arrow

from astyqueue.spark.pipelines.names import shortened
from astyqueue.spark.pipelines.outputs import PARTITIONS, PARTS, Table

Numbers = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

#: Different names of one column that are told apart; those that come after these are the others.
MOST_NAMES: Final = 100_000
#: The code of the others.
OTHERS: Final = 0
#: Rows that are decoded at once.
_ROWS: Final = 16_384
_PARTITIONED: Final = pa.schema([("queue", pa.string()), ("day", pa.date32())])
_KINDS: Final = {
    "string": pa.dictionary(pa.int32(), pa.string()),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_SHARES: Final = [share for _, share in PARTS]
#: The one by which names are ranked.
_RANKED_BY: Final = dict(PARTS)["p95"]


class Names:
    """A column of names: which one each row has, by a code. An unknown name is empty."""

    def __init__(self) -> None:
        """Of no rows yet."""
        self._codes: list[Codes] = []
        self._numbered: dict[str, int] = {}

    def add(self, array: pa.Array) -> None:
        """Take further rows from Arrow."""
        used, places = np.unique(np.asarray(array.indices.fill_null(-1)), return_inverse=True)
        unknown = [""] * int((used < 0).sum())
        names = array.dictionary.take(pa.array(used[used >= 0])).to_pylist()
        self._codes.append(np.array([self._number(shortened(name)) for name in (*unknown, *names)], dtype=np.int32)[places])

    @cached_property
    def codes(self) -> Codes:
        """Which name each row has; no rows are added after this."""
        pieces, self._codes = self._codes, []
        return np.concatenate([np.empty(0, dtype=np.int32), *pieces])

    @cached_property
    def names(self) -> Sequence[str]:
        """Each name, at the place of its code; what stands at the place of the others is none."""
        return ["", *self._numbered]

    @cached_property
    def complete(self) -> bool:
        """Whether all names are told apart."""
        return not bool((self.codes == OTHERS).any())

    def among(self, *names: str) -> npt.NDArray[np.bool_]:
        """Which rows have one of these names."""
        return np.isin(self.codes, [self._numbered[name] for name in names if name in self._numbered])

    def sums(self, values: Numbers) -> Numbers:
        """What is known of some values, summed up for each code."""
        sums: Numbers = np.bincount(self.codes, weights=np.nan_to_num(values), minlength=len(self.names)).astype(np.float64)
        return sums

    def _number(self, name: str) -> int:
        if len(self._numbered) < MOST_NAMES:
            return self._numbered.setdefault(name, len(self._numbered) + 1)
        return self._numbered.get(name, OTHERS)


class Columns:
    """Some columns of a table: moments and lengths are microseconds, and unknown ones are not-a-number."""

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Take them from Arrow, batch by batch; columns of texts are names."""
        self._names = {field.name: Names() for field in schema if pa.types.is_dictionary(field.type)}
        gathered: dict[str, list[Numbers]] = {name: [] for name in schema.names if name not in self._names}
        for batch in batches:
            for name, names in self._names.items():
                names.add(batch.column(name))
            for name, numbers in gathered.items():
                numbers.append(_as_numbers(batch.column(name)))
        # One after the other, so that no more than one column is there twice.
        self._numbers = {name: np.concatenate([np.empty(0), *gathered.pop(name)]) for name in list(gathered)}

    def numbers(self, name: str) -> Numbers:
        """A column of moments, lengths or counts."""
        return self._numbers[name]

    def names(self, name: str) -> Names:
        """A column of texts."""
        return self._names[name]


def _as_numbers(column: pa.Array) -> Numbers:
    plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    return np.asarray(plain.to_numpy(zero_copy_only=False), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Summary:
    """Some lengths of time, summed up: how many, three percentiles, the longest and all together, in microseconds."""

    number: int
    parts: tuple[float, ...] | None
    longest: float | None
    together: float = 0.0

    @classmethod
    def of(cls, values: Numbers) -> Self:
        """That of these values, those left out that are not known."""
        known = values[~np.isnan(values)]
        if not len(known):
            return cls(0, None, None)
        return cls(len(known), tuple(float(part) for part in np.quantile(known, _SHARES)), float(known.max()), float(known.sum()))


class Summaries:
    """Lengths of time, summed up for each name."""

    def __init__(self, names: Names, values: Numbers) -> None:
        """Of these values, which belong to the rows of a column of names."""
        known = ~np.isnan(values)
        codes, kept = names.codes[known], values[known]
        order = np.lexsort((kept, codes))
        self._values = kept[order]
        self._codes = codes[order]
        self._ends = np.cumsum(np.bincount(codes, minlength=len(names.names)))
        self._names = names.names

    def slowest(self) -> list[int]:
        """The codes of all names that have values, the one with the greatest 95th percentile first."""
        numbers = np.diff(self._ends, prepend=0)
        numbers[OTHERS] = 0
        there = np.flatnonzero(numbers)
        at = (numbers[there] - 1) * _RANKED_BY
        below, first = at.astype(np.int64), self._ends[there] - numbers[there]
        low, high = self._values[first + below], self._values[first + np.ceil(at).astype(np.int64)]
        part = dict(zip(there.tolist(), (low + (high - low) * (at - below)).tolist(), strict=True))
        return sorted(part, key=lambda code: (-part[code], self._names[code]))

    def of(self, code: int) -> Summary:
        """That of one name."""
        return Summary.of(self._values[self._ends[code - 1] if code else 0 : self._ends[code]])

    def others(self, codes: Sequence[int]) -> Summary:
        """That of all names but these, together."""
        return Summary.of(self._values[~np.isin(self._codes, codes)])

    @property
    def together(self) -> float:
        """All values."""
        return float(self._values.sum())


def read(folder: Path, table: Table, wanted: arrow.Expression, columns: Sequence[str]) -> Columns:
    """Some columns of a table."""
    schema = pa.schema([_declared(table).field(name) for name in columns])
    return Columns(schema, batches(folder, table, wanted, columns))


def batches(folder: Path, table: Table, wanted: arrow.Expression, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a table for which an expression holds, a few at a time; none if nobody wrote it. What does not hold is not kept."""
    place = folder / table.name
    if not place.is_dir():
        return
    schema = _declared(table)
    names = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    # Spark writes moments with 96 bits, which Arrow reads as nanoseconds otherwise: those of the year 1600 or 5000 would come out wrong.
    reading = arrow.ParquetReadOptions(dictionary_columns=names, coerce_int96_timestamp_unit="us")
    kind = arrow.ParquetFileFormat(read_options=reading)
    partitioning = arrow.partitioning(_PARTITIONED, flavor="hive")
    found = arrow.dataset(place, format=kind, partitioning=partitioning, schema=schema, exclude_invalid_files=False)
    scanner = found.scanner(columns=list(columns), filter=wanted, batch_size=_ROWS, batch_readahead=1, fragment_readahead=1)
    yield from scanner.to_batches()


def _declared(table: Table) -> pa.Schema:
    files = [(name, _KINDS[kind]) for name, kind in table.kinds.items() if name not in PARTITIONS]
    return pa.schema([*files, *_PARTITIONED])
