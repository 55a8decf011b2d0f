"""A run of the tests: which of them one process of pytest-xdist runs together, and how long they took.

One process runs all tests on Spark, so that one Java is started and gets warm, while the others run the rest. One runs
all tests that may kill a Cassandra node, so that one such node is started.

How long tests took goes to the file that `--durations-to` names. Seconds of wall clock depend on what else the machine
does; processor seconds hardly do. Those of a test are those of its process and of all that it started, such as Java;
where several processes of pytest-xdist use one Cassandra, it counts for the one that started it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

_ON_SPARK: Final = "tests/spark/"
#: The files that use the fixture `one_node`.
_ON_ONE_NODE: Final = frozenset(
    f"tests/cassandra/{name}.py"
    for name in ("test_async_store", "test_local", "test_model_against_truth", "test_store")
)
_PROCESSES: Final = Path("/proc")
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
#: In `/proc/PID/stat` after the name: the parent, and user and system time of the process and of its ended children.
_PARENT: Final = 1
_TIMES: Final = slice(11, 15)
_SLOWEST: Final = 100
_HEAD: Final = """\
Seconds that the tests of the last full run took: processor time of all processes together, and wall clock.
`make test-full` writes this file.
"""


@pytest.hookimpl(optionalhook=True)  # a run without pytest-xdist does not know it
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """With `--dist loadfile`, tests that share what is slow to start count as one file."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - only a run in several processes needs it

    class SharedStarts(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return run_with(nodeid)

    return SharedStarts(config, log)


def run_with(test: str) -> str:
    """The name of those that one process runs together with this test."""
    file = test.partition("::")[0]
    if file.startswith(_ON_SPARK):
        return _ON_SPARK
    return "one node" if file in _ON_ONE_NODE else file


@dataclass
class Took:
    """What some tests took, in seconds, and how many they are."""

    processor: float = 0.0
    elapsed: float = 0.0
    tests: int = 0

    def add(self, other: Took) -> None:
        self.processor += other.processor
        self.elapsed += other.elapsed
        self.tests += other.tests


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-to", metavar="FILE", type=Path, help="Write how long tests and folders took there.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--durations-to") is not None:
        config.pluginmanager.register(Durations(config.getoption("--durations-to")), "durations")


class Durations:
    """Measures tests in the process that runs them, and adds up in the process that reports them."""

    def __init__(self, to: Path) -> None:
        self._to = to
        self._tests: defaultdict[str, Took] = defaultdict(Took)
        self._before = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._before = processor_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = processor_seconds()
        vars(report)["processor"] = now - self._before  # pytest-xdist hands on all attributes
        self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        took = Took(getattr(report, "processor", 0.0), report.duration, report.when == "call")
        self._tests[report.nodeid].add(took)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            self._to.parent.mkdir(parents=True, exist_ok=True)
            self._to.write_text(_HEAD + "".join(told(self._tests)))


def processor_seconds() -> float:
    """The time on processors of this process and all below it so far; 0 on a system without `/proc`.

    The time of an ended process is that of its parent, unless nobody waited for it.
    """
    children: defaultdict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for process in _PROCESSES.glob("[0-9]*/stat"):
        try:
            fields = process.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        number = int(process.parent.name)
        children[int(fields[_PARENT])].append(number)
        ticks[number] = sum(map(int, fields[_TIMES]))
    total, left = 0, [os.getpid()]
    while left:
        one = left.pop()
        total += ticks.get(one, 0)
        left += children[one]
    return total / _TICKS_A_SECOND


def told(tests: Mapping[str, Took]) -> Iterable[str]:
    """The folders, the most expensive first, then the most expensive tests."""
    folders: defaultdict[str, Took] = defaultdict(Took)
    every = Took()
    for name, took in tests.items():
        folders[str(PurePosixPath(name.partition("::")[0]).parent)].add(took)
        every.add(took)
    yield "\nprocessor elapsed  tests folder\n"
    yield from (_line(name, took) for name, took in _by_cost(folders))
    yield _line("all", every)
    yield "\nprocessor elapsed  tests test\n"
    yield from (_line(name, took) for name, took in _by_cost(tests)[:_SLOWEST])


def _by_cost(tests: Mapping[str, Took]) -> list[tuple[str, Took]]:
    return sorted(tests.items(), key=lambda item: -item[1].processor)


def _line(name: str, took: Took) -> str:
    return f"{took.processor:9.1f} {took.elapsed:7.1f} {took.tests:6} {name}\n"
