"""The worker command on empty tasks, beside those of other task queues, each with its defaults and its log in a file.

For each system, in turns: a process sends messages, then the worker command starts and handles them. The rate and the
processor time of its processes count from its first task to its last; log lines go to a file at the default level. Then
messages are sent one by one, 20 ms apart, to the idle worker: how long until a task has each. `bare` is a dispatcher of
astyqueue without tasks, log lines and command.

What the systems promise differs: SQLite and PostgreSQL sync each commit, Redis with Debian's settings loses the last
minutes with its machine, and Dramatiq, Huey and PgQueuer start 2 x 8 threads, one thread and one event loop; astyqueue
starts 8 threads.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from astyqueue.units import SECOND, MonotonicUs
from astyqueue.waiting import Wakeup
from benchmarks.cassandra import OnCassandra, cpu_s, on_cassandra
from benchmarks.figures import Run, figures, percentile, table
from benchmarks.peers import servers
from benchmarks.peers.servers import Server, peers_environment
from benchmarks.target import CLOCK
from benchmarks.target_options import progress, whole_number
from benchmarks.workload import NotMeasured

_PROJECT: Final = Path(__file__).parents[1]
_GLANCE: Final = SECOND // 100
_PATIENCE: Final = 120 * SECOND
_PAUSE: Final = SECOND // 50
_WARMING: Final = 50


@dataclass(frozen=True, slots=True)
class System:
    """A task queue: its server, its worker command, and what sends to it, by module and function."""

    name: str
    server: Callable[[], AbstractContextManager[Server]]
    command: tuple[str, ...]
    module: str
    function: str = "sender"

    @property
    def ours(self) -> bool:
        """Whether it runs in this environment; the others have one of their own."""
        return self.module == "astyqueue_app"

    def arguments(self) -> list[str]:
        """The worker command."""
        if self.ours:
            return [sys.executable, *self.command]
        return [str(peers_environment() / "bin" / self.command[0]), *self.command[1:]]

    def sending(self, count: int, pause: int) -> list[str]:
        """The command that sends."""
        python = sys.executable if self.ours else str(peers_environment() / "bin" / "python")
        return [python, "-m", "benchmarks.peers.measurement", self.module, self.function, str(count), str(pause)]


_WORKER: Final = ("-m", "astyqueue", "worker", "benchmarks.peers.astyqueue_app:app")
_BARE: Final = ("-m", "benchmarks.peers.astyqueue_app")
_ON_SQLITE: Final = partial(servers.sqlite, as_url=True)
SYSTEMS: Final = (
    System("astyqueue_sqlite", _ON_SQLITE, _WORKER, "astyqueue_app"),
    System("bare_sqlite", _ON_SQLITE, _BARE, "astyqueue_app", "sender_without_task"),
    System("pgqueuer", servers.postgresql, ("pgq", "run", "benchmarks.peers.pgqueuer_app:main"), "pgqueuer_app"),
    System("dramatiq", servers.redis, ("dramatiq", "benchmarks.peers.dramatiq_app"), "dramatiq_app"),
    System("huey_redis", servers.redis, ("huey_consumer", "benchmarks.peers.huey_app.huey"), "huey_app"),
    System(
        "huey_sqlite",
        partial(servers.sqlite, as_url=False),
        ("huey_consumer", "benchmarks.peers.huey_app.huey"),
        "huey_app",
    ),
)
_CASSANDRA: Final = "astyqueue_cassandra"
NAMES: Final = (*(system.name for system in SYSTEMS), _CASSANDRA)


def main(arguments: list[str]) -> int:
    """Measure, and print; 1 if a system that was asked for could not be measured."""
    made = argparse.ArgumentParser(
        "python -m benchmarks worker", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--runs", type=whole_number(1), default=5, help="default: %(default)s")
    made.add_argument("--messages", type=whole_number(100), default=10_000, help="of a run (default: %(default)s)")
    made.add_argument(
        "--spaced", type=whole_number(1), default=200, help="messages sent one by one (default: %(default)s)"
    )
    made.add_argument("--systems", nargs="+", choices=NAMES, default=list(NAMES), help="default: all", metavar="NAME")
    options = made.parse_args(arguments)
    with contextlib.ExitStack() as held:
        systems = [system for system in SYSTEMS if system.name in options.systems]
        if _CASSANDRA in options.systems:
            target = held.enter_context(on_cassandra(1, None))
            systems.append(System(_CASSANDRA, partial(_cassandra, target), _WORKER, "astyqueue_app"))
        runs, problems = _measured(systems, options)
    named = figures(runs)
    conditions = {"runs": options.runs, "messages": options.messages}
    found = {"question": "worker", "conditions": conditions, "not_measured": problems, **named}
    print(json.dumps(found, indent=2) if options.json else table(named))
    return 1 if problems else 0


@contextlib.contextmanager
def _cassandra(target: OnCassandra) -> Iterator[Server]:
    with target.fresh() as url:
        yield Server(url, target.nodes.pid(1) if target.nodes else None)


def _measured(systems: list[System], options: argparse.Namespace) -> tuple[list[Run], dict[str, str]]:
    """The runs, each of all systems in turn; and why some could not be measured."""
    problems: dict[str, str] = {}
    runs: list[Run] = []
    for number in range(options.runs):
        run: dict[str, float | None] = {}
        for system in systems:
            if system.name in problems:
                continue
            progress(f"run {number + 1} of {options.runs}: {system.name}")
            try:
                run |= {
                    f"{system.name}_{what}": value
                    for what, value in _one(system, options.messages, options.spaced).items()
                }
            except NotMeasured as error:
                problems[system.name] = str(error)
                progress(f"{system.name} IS NOT MEASURED: {error}")
        runs.append(run)
    return [run for run in runs if run.keys() == runs[-1].keys()], problems


def _one(system: System, messages: int, spaced: int) -> dict[str, float | None]:
    """One run of one system."""
    with system.server() as server, tempfile.TemporaryDirectory(prefix="worker-") as folder:
        report = Path(folder) / "report"
        report.touch()
        environment = os.environ | {"BENCHMARK_URL": server.url, "BENCHMARK_REPORT": str(report)}
        _send(system, messages, 0, environment)
        with _worker(system, environment, Path(folder) / "log") as worker:
            try:
                handled = _handled(worker, server, report, messages)
                delays = _delays(system, worker, report, spaced, environment)
            except NotMeasured as error:
                last = (Path(folder) / "log").read_text(errors="replace").strip().splitlines()[-12:]
                raise NotMeasured(f"{error}: {last}") from error
        handled["log_bytes_per_message"] = (Path(folder) / "log").stat().st_size / (messages + len(delays))
    return handled | {"p50_ms": percentile(delays, 50), "p99_ms": percentile(delays, 99)}


def _send(system: System, count: int, pause: int, environment: dict[str, str]) -> None:
    sent = subprocess.run(system.sending(count, pause), env=environment, cwd=_PROJECT, capture_output=True, check=False)
    if sent.returncode:
        raise NotMeasured(f"sending failed: {sent.stderr.decode().strip().splitlines()[-1:]}")


@contextlib.contextmanager
def _worker(system: System, environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The worker command, in a session of its own, until the block ends; its log goes to a file."""
    arguments = system.arguments()
    with log.open("wb") as output:
        worker = subprocess.Popen(
            arguments, env=environment, cwd=_PROJECT, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield worker
    finally:
        worker.terminate()
        try:
            worker.wait(_PATIENCE / SECOND)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)


def _handled(worker: subprocess.Popen[bytes], server: Server, report: Path, messages: int) -> dict[str, float | None]:
    """The rate, and the processor time a task, from the first to the last."""
    began = _awaited(worker, report, 1)
    cpu, server_cpu = _cpu_s(worker.pid), _server_cpu_s(server)
    ended = _awaited(worker, report, messages)
    count = ended.handled - began.handled
    run: dict[str, float | None] = {
        "per_s": count * SECOND / (ended.at - began.at),
        "cpu_us": (_cpu_s(worker.pid) - cpu) * SECOND / count,
    }
    if server_cpu is not None:
        run["server_cpu_us"] = ((_server_cpu_s(server) or 0) - server_cpu) * SECOND / count
    return run


@dataclass(frozen=True, slots=True)
class _Progress:
    handled: int
    at: MonotonicUs


def _awaited(worker: subprocess.Popen[bytes], report: Path, messages: int) -> _Progress:
    """Wait until that many tasks have reported."""
    until, wakeup = CLOCK.monotonic() + _PATIENCE, Wakeup(CLOCK)
    while (handled := report.read_bytes().count(b"\n")) < messages:
        if worker.poll() is not None or CLOCK.monotonic() > until:
            raise NotMeasured(f"{handled} of {messages} tasks ran; its exit code is {worker.poll()}")
        wakeup.wait(CLOCK.monotonic() + _GLANCE)
    return _Progress(handled, CLOCK.monotonic())


def _delays(
    system: System, worker: subprocess.Popen[bytes], report: Path, spaced: int, environment: dict[str, str]
) -> list[float]:
    """Milliseconds from each send to its task, while the worker has nothing else to do; the first sends warm it up."""
    before = report.read_bytes().count(b"\n")
    _send(system, _WARMING + spaced, _PAUSE, environment)
    _awaited(worker, report, before + _WARMING + spaced)
    with report.open() as lines:
        return [int(line) / 1_000 for line in itertools.islice(lines, before + _WARMING, None)]


def _cpu_s(session: int) -> float:
    """Seconds of processor time of all processes of a session."""
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                total += cpu_s(int(stat.parent.name))
    return total


def _server_cpu_s(server: Server) -> float | None:
    """The same of a server and its children, which PostgreSQL has one of for each connection; None for a file."""
    if server.pid is None:
        return None
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    total = cpu_s(server.pid)
    for child in children:
        with contextlib.suppress(OSError):
            total += cpu_s(int(child))
    return total


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
