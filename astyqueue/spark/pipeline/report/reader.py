"""Tables of the pipeline, read column by column and without Spark, with a bound on the memory for names.

A row takes 8 bytes for a number and 4 for the code of a name, however long the name is. Each different name is kept
once, cut to a length, and at most MOST_NAMES of a column are kept: a producer may send any number.
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

from astyqueue.spark.pipeline.schemas import PARTITIONS, PERCENTILES, Table, shortened

Numbers = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

#: Different names of one column that are kept; all further names are the others.
MOST_NAMES: Final = 100_000
#: The code of the others.
OTHERS: Final = 0
#: Rows in one batch of decoding.
_ROWS: Final = 16_384
_PARTITIONED: Final = pa.schema([("queue", pa.string()), ("day", pa.date32())])
_KINDS: Final = {
    "string": pa.dictionary(pa.int32(), pa.string()),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_QUANTILES: Final = [share for _, share in PERCENTILES]
#: The percentile by which names are ranked.
_P95: Final = [name for name, _ in PERCENTILES].index("p95")
_RANKED_BY: Final = _QUANTILES[_P95]


class Names:
    """A column of names, as a code for each row. A null name is the empty name."""

    def __init__(self) -> None:
        """There are no rows yet."""
        self._codes: list[Codes] = []
        self._numbered: dict[str, int] = {}

    def add(self, array: pa.Array) -> None:
        """Append the rows of a dictionary array."""
        used, places = np.unique(np.asarray(array.indices.fill_null(-1)), return_inverse=True)
        unknown = [""] * int((used < 0).sum())
        names = array.dictionary.take(pa.array(used[used >= 0])).to_pylist()
        self._codes.append(
            np.array([self._number(shortened(name)) for name in (*unknown, *names)], dtype=np.int32)[places]
        )

    @cached_property
    def codes(self) -> Codes:
        """The code of the name of each row; add no rows afterwards."""
        pieces, self._codes = self._codes, []
        return np.concatenate([np.empty(0, dtype=np.int32), *pieces])

    @cached_property
    def names(self) -> Sequence[str]:
        """Each name, at the index of its code; the text at OTHERS is not a name."""
        return ["", *self._numbered]

    @cached_property
    def complete(self) -> bool:
        """Whether every name has a code of its own."""
        return not bool((self.codes == OTHERS).any())

    def among(self, *names: str) -> npt.NDArray[np.bool_]:
        """A mask of the rows with one of these names."""
        return np.isin(self.codes, [self._numbered[name] for name in names if name in self._numbered])

    def sums(self, values: Numbers) -> Numbers:
        """The sum of values for each code; unknown values are left out."""
        sums: Numbers = np.bincount(self.codes, weights=np.nan_to_num(values), minlength=len(self.names)).astype(
            np.float64
        )
        return sums

    def _number(self, name: str) -> int:
        if len(self._numbered) < MOST_NAMES:
            return self._numbered.setdefault(name, len(self._numbered) + 1)
        return self._numbered.get(name, OTHERS)


class Columns:
    """Some columns of a table: moments and lengths are microseconds, and unknown ones are not-a-number."""

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Read the columns from Arrow batches; columns of text become names."""
        self._names = {field.name: Names() for field in schema if pa.types.is_dictionary(field.type)}
        gathered: dict[str, list[Numbers]] = {name: [] for name in schema.names if name not in self._names}
        for batch in batches:
            for name, names in self._names.items():
                names.add(batch.column(name))
            for name, numbers in gathered.items():
                numbers.append(_as_numbers(batch.column(name)))
        # One after the other, so that at most one column is in memory twice.
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
    """A summary of lengths of time: their number, three percentiles, the maximum and the sum, in microseconds."""

    number: int
    percentiles: tuple[float, ...] | None
    longest: float | None
    together: float = 0.0

    @classmethod
    def of(cls, values: Numbers) -> Self:
        """The summary of these values; unknown ones are left out."""
        known = values[~np.isnan(values)]
        if not len(known):
            return cls(0, None, None)
        return cls(
            len(known),
            tuple(float(part) for part in np.quantile(known, _QUANTILES)),
            float(known.max()),
            float(known.sum()),
        )

    @property
    def p95(self) -> float | None:
        """The 95th percentile; None if there were no values."""
        return None if self.percentiles is None else self.percentiles[_P95]


class Summaries:
    """Summaries of lengths of time for each name."""

    def __init__(self, names: Names, values: Numbers) -> None:
        """Group values by the names of their rows."""
        known = ~np.isnan(values)
        codes, kept = names.codes[known], values[known]
        order = np.lexsort((kept, codes))
        self._values = kept[order]
        self._codes = codes[order]
        self._ends = np.cumsum(np.bincount(codes, minlength=len(names.names)))
        self._names = names.names

    def slowest(self) -> list[int]:
        """The codes of all names with values, without OTHERS, by their 95th percentile, the greatest first."""
        numbers = np.diff(self._ends, prepend=0)
        numbers[OTHERS] = 0
        there = np.flatnonzero(numbers)
        at = (numbers[there] - 1) * _RANKED_BY
        below, first = at.astype(np.int64), self._ends[there] - numbers[there]
        low, high = self._values[first + below], self._values[first + np.ceil(at).astype(np.int64)]
        part = dict(zip(there.tolist(), (low + (high - low) * (at - below)).tolist(), strict=True))
        return sorted(part, key=lambda code: (-part[code], self._names[code]))

    def of(self, code: int) -> Summary:
        """The summary of one name."""
        return Summary.of(self._values[self._ends[code - 1] if code else 0 : self._ends[code]])

    def others(self, codes: Sequence[int]) -> Summary:
        """The summary of all names but these."""
        return Summary.of(self._values[~np.isin(self._codes, codes)])

    @property
    def together(self) -> float:
        """The sum of all values."""
        return float(self._values.sum())


def read(folder: Path, table: Table, wanted: arrow.Expression, columns: Sequence[str]) -> Columns:
    """Some columns of a table."""
    schema = pa.schema([_declared(table).field(name) for name in columns])
    return Columns(schema, batches(folder, table, wanted, columns))


def batches(folder: Path, table: Table, wanted: arrow.Expression, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a table for which an expression holds, batch by batch; none if the table does not exist."""
    place = folder / table.name
    if not place.is_dir():
        return
    schema = _declared(table)
    names = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    # Spark writes moments with 96 bits. By default Arrow reads them as nanoseconds, in which the years 1600 and 5000
    # overflow.
    reading = arrow.ParquetReadOptions(dictionary_columns=names, coerce_int96_timestamp_unit="us")
    kind = arrow.ParquetFileFormat(read_options=reading)
    partitioning = arrow.partitioning(_PARTITIONED, flavor="hive")
    found = arrow.dataset(place, format=kind, partitioning=partitioning, schema=schema, exclude_invalid_files=False)
    scanner = found.scanner(
        columns=list(columns), filter=wanted, batch_size=_ROWS, batch_readahead=1, fragment_readahead=1
    )
    yield from scanner.to_batches()


def _declared(table: Table) -> pa.Schema:
    files = [(name, _KINDS[kind]) for name, kind in table.kinds.items() if name not in PARTITIONS]
    return pa.schema([*files, *_PARTITIONED])
