"""Rates of a journal on the local disk beside a bare file, the delay of a search by time, and of opening it.

The bare loop gathers the same payloads into a buffer, writes it to one file with one system call for a batch, and syncs
that file as often as the journal does. Both get the payloads in batches of the same number of records.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from astyqueue.clock import SystemClock, instant
from astyqueue.journal import BYTES, Journal
from astyqueue.units import SECOND
from benchmarks.figures import Run, figures, table

_SIZES: Final = {"1k": 1024, "200b": 200, "40b": 40}
_MEGABYTE: Final = 1_000_000
_GIGABYTE: Final = 1_000 * _MEGABYTE
_SEARCHES: Final = 50
_HINTS: Final = ("*.index", "*.meta")
_clock: Final = SystemClock()


def main(arguments: list[str]) -> int:
    """Measure, and print."""
    made = argparse.ArgumentParser("python -m benchmarks journal", description=__doc__)
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--runs", type=int, default=5, help="default: %(default)s")
    made.add_argument("--megabytes", type=int, default=100, help="of payload for each rate (default: %(default)s)")
    made.add_argument("--search-megabytes", type=int, default=1000, help="searched and opened (default: %(default)s)")
    made.add_argument("--batch", type=int, default=256, help="records in a batch (default: %(default)s)")
    made.add_argument("--durability", choices=("none", "batch", "each"), default="batch", help="default: %(default)s")
    made.add_argument("--folder", type=Path, default=None, help="on the disk to measure (default: the temporary one)")
    options = made.parse_args(arguments)
    with _scratch(options.folder) as folder:
        runs = [_run(options, folder) for _ in range(options.runs)]
    named = figures(runs)
    conditions = {name: getattr(options, name) for name in ("runs", "megabytes", "search_megabytes", "batch")}
    found = {"question": "journal", "conditions": conditions | {"durability": options.durability}, **named}
    print(json.dumps(found, indent=2) if options.json else table(named))
    return 0


@contextmanager
def _scratch(parent: Path | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="journal-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _run(options: argparse.Namespace, folder: Path) -> Run:
    run: dict[str, float | None] = {}
    for name, size in _SIZES.items():
        count = options.megabytes * _MEGABYTE // size
        payloads = [os.urandom(size)] * options.batch
        batches = [payloads] * (count // options.batch)
        volume = len(batches) * options.batch * size / _MEGABYTE
        with _scratch(folder) as place:
            bare = _seconds(lambda: _bare(place / "bare", batches, options.durability))  # noqa: B023 - called at once
            append = _seconds(lambda: _append(place, batches, options))  # noqa: B023 - called at once
            read = _seconds(lambda: _read(place, len(batches) * options.batch))  # noqa: B023 - called at once
        run[f"bare_{name}_mb_per_s"] = volume / bare
        run[f"append_{name}_mb_per_s"] = volume / append
        run[f"append_{name}_part_of_bare"] = bare / append
        run[f"read_{name}_mb_per_s"] = volume / read
    run.update(_searched(options, folder))
    return run


def _bare(path: Path, batches: list[list[bytes]], durability: str) -> None:
    with path.open("wb", buffering=0) as file:
        groups = batches if durability != "each" else ([payload] for batch in batches for payload in batch)
        for group in groups:
            buffer = bytearray()
            for payload in group:
                buffer += payload
            file.write(buffer)
            if durability != "none":
                os.fdatasync(file.fileno())


def _append(folder: Path, batches: list[list[bytes]], options: argparse.Namespace) -> None:
    opened = Journal.open(folder, codec=BYTES, durability=options.durability, batch_records=options.batch)
    with opened as journal:
        if options.durability == "each":
            for payload in itertools.chain.from_iterable(batches):
                journal.append(payload)
        else:
            for batch in batches:
                journal.append_many(batch)


def _read(folder: Path, count: int) -> None:
    with Journal.open(folder, codec=BYTES) as journal:
        found = sum(1 for _ in journal.read())
    if found != count:
        message = f"{found} records of {count} came back"
        raise RuntimeError(message)


def _searched(options: argparse.Namespace, folder: Path) -> Run:
    """Delays on a journal of records of 1 KiB: of the first record since a moment, and of opening without hints."""
    size = _SIZES["1k"]
    count = options.search_megabytes * _MEGABYTE // size
    with _scratch(folder) as place:
        with Journal.open(place, codec=BYTES, durability="none") as journal:
            payload = os.urandom(size)
            journal.append_many(itertools.repeat(payload, count))
            moments = [record.arrived_us for record in journal.read()][:: max(1, count // _SEARCHES)]
        with Journal.open(place, codec=BYTES) as journal:
            searches = sorted(_seconds(lambda: _first_since(journal, moment)) for moment in moments)  # noqa: B023 - called at once
        for hint in itertools.chain.from_iterable(place.glob(pattern) for pattern in _HINTS):
            hint.unlink()
        reopen = _seconds(lambda: Journal.open(place, codec=BYTES).close())
        with Journal.open(place, codec=BYTES) as journal:
            derived = _seconds(lambda: _first_since(journal, moments[len(moments) // 2]))
    return {
        "since_ms": searches[len(searches) // 2] * 1_000,
        "since_worst_ms": searches[-1] * 1_000,
        "since_without_index_ms": derived * 1_000,
        "reopen_s_per_gb": reopen * _GIGABYTE / (count * size),
    }


def _first_since(journal: Journal[bytes], moment: int) -> None:
    with closing(journal.read(since=instant(moment))) as reader:
        next(reader)


def _seconds(work: Callable[[], object]) -> float:
    start = _clock.monotonic()
    work()
    return (_clock.monotonic() - start) / SECOND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
