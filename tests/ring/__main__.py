"""A chaos test of a ring of three nodes, with any number of messages: `python -m tests.ring --messages 1000000`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from astyqueue.units import SECOND
from tests.ring.fault_schedule import schedule
from tests.ring.report import run
from tests.ring.run import Plan


def main(arguments: list[str]) -> int:
    """Print the progress and a report; returns 1 if a check failed."""
    options = _parser().parse_args(arguments)
    plan = Plan(
        messages=options.messages,
        per_second=options.per_second,
        ahead=options.ahead,
        lease=options.lease * SECOND,
        faults=schedule(options.lasts, options.rest) if options.faults else (),
        minutes=options.minutes,
        every=options.every,
        window=options.window,
    )
    before = os.getloadavg()
    report = run(plan, _report, keep=options.keep)
    sys.stdout.write(f"{report}\n")
    if options.json:
        target = {name: value for name, value in vars(options).items() if name not in ("json", "keep")}
        conditions = {**target, "processors": os.cpu_count(), "load_before": before, "load_after": os.getloadavg()}
        Path(options.json).write_text(json.dumps({**report.figures, "conditions": conditions}, indent=2) + "\n")
    return bool(report.result.violations)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.ring", description=__doc__)
    made.add_argument(
        "--messages", type=int, default=1_000_000, help="send at least N (default: %(default)s)", metavar="N"
    )
    made.add_argument("--per-second", type=int, default=100_000, help="send at most N a second", metavar="N")
    made.add_argument(
        "--ahead",
        type=int,
        default=20_000,
        help="at most N sent and not yet handled (default: %(default)s)",
        metavar="N",
    )
    made.add_argument("--lease", type=int, default=10, help="seconds (default: %(default)s)")
    made.add_argument("--lasts", type=float, default=25, help="seconds that a fault lasts (default: %(default)s)")
    made.add_argument("--rest", type=float, default=20, help="seconds between two faults (default: %(default)s)")
    made.add_argument("--minutes", type=float, default=0, help="run for at least N minutes", metavar="N")
    made.add_argument("--no-faults", dest="faults", action="store_false", help="inject no faults")
    made.add_argument("--every", default="1m", help="length of a time shard (default: %(default)s)")
    made.add_argument(
        "--window",
        type=float,
        default=0,
        help="report the rate and the nodes' work for each window of N seconds (default: none)",
        metavar="N",
    )
    made.add_argument("--keep", type=Path, help="keep the journals in this directory, which must be empty or absent")
    made.add_argument("--json", help="write the figures to this file")
    return made


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
