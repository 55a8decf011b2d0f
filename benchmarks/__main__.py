"""Run one benchmark: `python -m benchmarks NAME ...`.

`python -m benchmarks NAME --help` prints its options.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

#: Each is a module here with a `main(arguments)`; the first line of its docstring says what it measures.
BENCHMARKS: Final = (
    "drain",
    "profile",
    "paths",
    "flat",
    "steady",
    "contention",
    "idle",
    "locks",
    "recovery",
    "faults",
    "schedule",
    "sizes",
    "spark",
    "pipeline",
    "journal",
    "worker",
    "spool",
    "queues",
    "prefetch",
    "kinds",
    "aio",
)


def listing() -> str:
    """The list of benchmarks."""
    lines = [
        f"  {name:<12}{(importlib.import_module(f'benchmarks.{name}').__doc__ or '').splitlines()[0]}"
        for name in BENCHMARKS
    ]
    return "\n".join(
        [
            "usage: python -m benchmarks NAME [options]",
            "",
            *lines,
            "",
            "python -m benchmarks NAME --help prints its options",
        ]
    )


def main(arguments: list[str]) -> int:
    """Run the benchmark named first; returns 2 if there is none of that name."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(listing())
        return 0
    if name not in BENCHMARKS:
        print(f"there is no benchmark {name!r}\n\n{listing()}", file=sys.stderr)
        return 2
    code: int = importlib.import_module(f"benchmarks.{name}").main(rest)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
