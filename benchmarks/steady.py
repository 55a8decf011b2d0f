"""The rate stays steady over minutes of sending and handling with `astyqueue worker`.

Producers keep the queue as full as `--ahead` says, and `astyqueue worker` processes, with their usual settings and log
lines, handle what they send. For each window: how many messages, what a message cost this side and the nodes, and what
the nodes say they did. Then the queue and a new one beside it, with processes of its own, take turns: what is slower
then is slower for its age.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from typing import Final, cast

from benchmarks.cassandra import OnCassandra
from benchmarks.figures import Figure, figure
from benchmarks.process_load import Load, LoadSettings, Window
from benchmarks.server_load import ServerLoad
from benchmarks.target import Target
from benchmarks.target_options import opened, parser, progress, whole_number
from benchmarks.workload import NotMeasured

#: The last window must reach this part of the second (in the first Java compiles what runs often), and an old queue of
#: a new one.
_HOLDS: Final = 0.9
#: Each turn begins with this many seconds that do not count: the queue is empty then, and the processes have waited.
_LEAD_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, in how many windows; and how many turns, of how many seconds, the queue and a new one take then."""

    minutes: float
    windows: int = 10
    turns: int = 5
    turn_seconds: float = 30.0
    settings: LoadSettings = field(default_factory=LoadSettings)


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if anything was lost."""
    made = parser("steady", __doc__, ("cassandra", "sqlite"))
    made.add_argument("--minutes", type=float, default=25, help="of load (default: %(default)s)")
    made.add_argument("--windows", type=whole_number(2), default=10, help="of equal length (default: %(default)s)")
    made.add_argument(
        "--turns", type=whole_number(1), default=5, help="of the old queue and a new one (default: %(default)s)"
    )
    made.add_argument(
        "--turn-seconds", type=float, default=30, help="how long each of the two is loaded (default: %(default)s)"
    )
    made.add_argument("--workers", type=whole_number(1), default=2, help="processes that handle (default: %(default)s)")
    made.add_argument("--producers", type=whole_number(1), default=1, help="processes that send (default: %(default)s)")
    made.add_argument(
        "--ahead",
        type=whole_number(100),
        default=20_000,
        help="messages sent and not handled, at most (default: %(default)s)",
    )
    made.add_argument("--every", default="1h", help="length of a time shard (default: %(default)s)")
    options = made.parse_args(arguments)
    settings = LoadSettings(options.workers, options.producers, options.ahead, options.every)
    plan = Plan(options.minutes, options.windows, options.turns, options.turn_seconds, settings)
    try:
        with opened(options) as target:
            report = measured(target, plan)
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2) if options.json else page(report))
    return 0


def measured(target: Target, plan: Plan) -> dict[str, object]:
    """The windows of one run, the turns after it, and what it was measured with."""
    with target.fresh() as url, Load(target, plan.settings, url) as old:
        windows = _windows(target, plan, old)
        turns = _turns(target, plan, old)
        old.check_empty()
    ratio = windows[-1]["per_s"] / windows[1]["per_s"]
    old_to_new = cast("Figure", figure([before["per_s"] / fresh["per_s"] for before, fresh in turns]))
    checked = [
        ("the last window at least {} of the second", ratio),
        ("the old queue at least {} of a new one, alternately", cast("float", old_to_new["median"])),
    ]
    aims = [
        {"aim": aim.format(_HOLDS), "measured": value, "bound": _HOLDS, "reached": value >= _HOLDS}
        for aim, value in checked
    ]
    conditions = {"store": target.store, "processors": os.cpu_count(), **target.conditions, **asdict(plan)}
    lines = {"last_to_second": ratio, "old_to_new": old_to_new, "windows": windows}
    return {
        **lines,
        "turns": [{"old": before, "new": fresh} for before, fresh in turns],
        "aims": aims,
        "conditions": conditions,
    }


def page(report: dict[str, object]) -> str:
    """The windows as a table, a line each, and what they come to."""
    windows = cast("list[Window]", report["windows"])
    names = list(windows[0])
    lines = [names, *([f"{window[name]:,.1f}" for name in names] for window in windows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    old_to_new = cast("Figure", report["old_to_new"])
    turns = f"{old_to_new['median']:.2f} [{old_to_new['min']:.2f}, {old_to_new['max']:.2f}]"
    return "\n".join(
        [
            *table,
            "",
            f"last to second: {report['last_to_second']:.2f}; the old queue to a new one, alternately: {turns}",
        ]
    )


def _windows(target: Target, plan: Plan, load: Load) -> list[Window]:
    nodes = target.nodes if isinstance(target, OnCassandra) else None
    server = ServerLoad(nodes, f"{cast('OnCassandra', target).keyspace}.entries") if nodes else None
    windows: list[Window] = []
    for number in range(1, plan.windows + 1):
        window = {"window": float(number)} | load.window(plan.minutes * 60 / plan.windows)
        windows.append(window | server.since_last() if server else window)
        _tell(f"window {number}", windows[-1])
    load.drain()
    return windows


def _turns(target: Target, plan: Plan, old: Load) -> list[tuple[Window, Window]]:
    """The rates of the old queue and a new one, measured alternately.

    A first turn of the new one does not count, because its processes start then.
    """
    with target.beside() as url, Load(target, plan.settings, url) as new:
        _turn("new, warming", plan, new)
        turns = [(_turn("old", plan, old), _turn("new", plan, new)) for _ in range(plan.turns)]
        new.check_empty()
    return turns


def _turn(name: str, plan: Plan, load: Load) -> Window:
    load.keep_full(_LEAD_SECONDS)
    window = load.window(plan.turn_seconds)
    load.drain()
    _tell(name, window)
    return window


def _tell(name: str, window: Window) -> None:
    progress("  ".join([name, *(f"{what} {value:,.1f}" for what, value in window.items())]))
