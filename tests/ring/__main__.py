"""A ring of three under fire, for as many messages as one likes: `python -m tests.ring --messages 1000000`."""

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
    """Print how it goes and a report; 1 if anything is to be held against it."""
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
    report = run(plan, _tell, keep=options.keep)
    sys.stdout.write(f"{report}\n")
    if options.json:
        asked = {name: value for name, value in vars(options).items() if name not in ("json", "keep")}
        conditions = {**asked, "processors": os.cpu_count(), "load_before": before, "load_after": os.getloadavg()}
        Path(options.json).write_text(json.dumps({**report.figures, "conditions": conditions}, indent=2) + "\n")
    return bool(report.verdict.violations)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.ring", description=__doc__)
    made.add_argument("--messages", type=int, default=1_000_000, help="so many at least (default: %(default)s)")
    made.add_argument(
        "--per-second", type=int, default=100_000, help="send so many at most (default: as many as are handled)"
    )
    made.add_argument(
        "--ahead", type=int, default=20_000, help="so many are sent and not handled at most (default: %(default)s)"
    )
    made.add_argument("--lease", type=int, default=10, help="seconds (default: %(default)s)")
    made.add_argument("--lasts", type=float, default=25, help="seconds that a fault lasts (default: %(default)s)")
    made.add_argument("--rest", type=float, default=20, help="seconds between two of them (default: %(default)s)")
    made.add_argument("--minutes", type=float, default=0, help="go on for so many at least (default: %(default)s)")
    made.add_argument("--no-faults", dest="faults", action="store_false", help="let nothing happen")
    made.add_argument("--every", default="1m", help="length of a time shard (default: %(default)s)")
    made.add_argument(
        "--window",
        type=float,
        default=0,
        help="tell the rate and the nodes' work for so many seconds each (default: not at all)",
    )
    made.add_argument(
        "--keep", type=Path, help="leave the journals in this directory, which must be empty or not there"
    )
    made.add_argument("--json", help="write the figures to this file")
    return made


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
