"""A spool over an outage and two kills, with its figures: `python -m tests.unit.spool --store cassandra`.

Prints JSON; microseconds for one send. Exit code 1 if a message was lost or doubled, came back, or was out of order.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from astyqueue.units import SECOND
from benchmarks.cassandra import on_cassandra as cassandra_started
from benchmarks.figures import percentile
from tests.unit.spool.killed_producers import Outcome, on_cassandra, on_sqlite


def main(arguments: list[str]) -> int:
    """Run once, and print."""
    made = argparse.ArgumentParser("python -m tests.unit.spool", description=__doc__)
    made.add_argument("--store", choices=("sqlite", "cassandra"), default="sqlite", help="default: %(default)s")
    made.add_argument("--messages", type=int, default=200_000, help="default: %(default)s")
    made.add_argument("--at", help="contact points of a Cassandra, its first is used (default: a node of its own)")
    options = made.parse_args(arguments)
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        outcome = _run(options, Path(folder))
    report = {"store": options.store, "load_before": load, "load_after": os.getloadavg(), **_figures(outcome)}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return int(bool(outcome.lost or outcome.twice or outcome.back or outcome.out_of_order))


def _run(options: argparse.Namespace, folder: Path) -> Outcome:
    if options.store == "sqlite":
        return on_sqlite(folder, options.messages)
    with cassandra_started(1, options.at) as cluster, cluster.fresh() as url:
        node = cluster.contacts.contact_points[0], cluster.contacts.port
        return on_cassandra(url, node, folder, options.messages)


def _figures(outcome: Outcome) -> dict[str, object]:
    waiting, took, used = outcome.forwarding
    return {
        "sends_that_returned": sum(sent.returned for sent in outcome.sends.values()),
        "delivered": len(outcome.consumed),
        **{name: getattr(outcome, name) for name in ("lost", "twice", "back", "out_of_order")},
        "send_us": {name: _delays(sent.delays) for name, sent in outcome.sends.items()},
        "last_backlog": waiting,
        "forwarded_per_s": round(waiting * SECOND / took) if took else None,
        "forwarding_cpu_us": round(used / waiting, 1) if waiting else None,
    }


def _delays(samples: list[int]) -> dict[str, float]:
    found = [float(one) for one in samples]
    return {"median": percentile(found, 50), "p99": percentile(found, 99), "greatest": max(found)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
