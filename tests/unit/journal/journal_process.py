"""A process of a test: `write FOLDER DURABILITY` appends until it is killed, `follow FOLDER` prints what arrives."""

from __future__ import annotations

import itertools
import sys

from astyqueue.journal import BYTES, Journal, ReadOnlyJournal


def write(folder: str, durability: str) -> None:
    with Journal.open(folder, codec=BYTES, page_size="64KiB", durability=durability, batch_records=50) as journal:
        for number in itertools.count(journal.stat().last_sequence):
            journal.append(b"%d " % number + bytes(number * 37 % 300))
            if durability == "none" and number % 50 == 49:
                journal.sync()
            if durability == "each" or number % 10 == 9:
                print(journal.stat().synced_sequence, flush=True)  # noqa: T201 - the test reads it


def follow(folder: str) -> None:
    for record in ReadOnlyJournal.open(folder, codec=BYTES).read(follow=True):
        print(record.sequence, record.value.split()[0].decode(), flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(*sys.argv[2:])
    else:
        follow(*sys.argv[2:])
