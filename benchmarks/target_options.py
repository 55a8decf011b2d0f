"""The options that choose the store to measure, and the store they choose."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.cassandra import on_cassandra
from benchmarks.target import Embedded, Target, fresh_queue
from benchmarks.throughput import drain, send_per_s

STORES: Final = ("sqlite", "memory", "cassandra")
_BODY: Final = 200
_THREADS: Final = 8


class whole_number:  # noqa: N801 - argparse names it in its complaints
    """A whole number that is not less than `least`."""

    def __init__(self, least: int) -> None:
        """Refuse what is less."""
        self._least = least
        self.__name__ = f"whole number from {least} on,"

    def __call__(self, text: str) -> int:
        """The number that was written; ValueError for any other text."""
        if (number := int(text)) < self._least:
            raise ValueError
        return number


def parser(name: str, text: str | None, stores: Sequence[str] = STORES) -> argparse.ArgumentParser:
    """A parser that knows where to measure, how often, and whether to print JSON."""
    made = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=text)
    made.add_argument("--store", choices=stores, default=stores[0], help="default: %(default)s")
    made.add_argument(
        "--synchronous", choices=("full", "normal"), default="full", help="of SQLite (default: %(default)s)"
    )
    made.add_argument("--directory", help="where SQLite files are made (default: the system's for temporary files)")
    made.add_argument(
        "--nodes", type=int, choices=(1, 3), default=1, help="of a Cassandra started for this (default: %(default)s)"
    )
    made.add_argument(
        "--at", metavar="HOST[:PORT]", help="measure on a Cassandra that runs already, instead of starting one"
    )
    made.add_argument(
        "--warming",
        type=whole_number(0),
        default=100_000,
        help="messages that go before, on Cassandra (default: %(default)s)",
    )
    made.add_argument("--runs", type=whole_number(1), default=5, help="default: %(default)s")
    made.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return made


def progress(text: str) -> None:
    """Say what is going on."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def opened(options: argparse.Namespace) -> Iterator[Target]:
    """The target that the options choose, for the length of the block; a node is warmed up first."""
    if options.store != "cassandra":
        yield Embedded(options.store, options.synchronous, options.directory)
        return
    progress(
        f"starting Cassandra, nodes: {options.nodes}" if options.at is None else f"using Cassandra at {options.at}"
    )
    with on_cassandra(options.nodes, options.at) as target:
        if options.warming:
            progress(f"warming it with {options.warming} messages")
            _warm(target, options.warming)
        yield target


def _warm(target: Target, messages: int) -> None:
    with fresh_queue(target) as queue:
        send_per_s(queue, messages, _BODY)
        drain(queue, messages, _THREADS)
