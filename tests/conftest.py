"""What all tests have in common."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import settings

# An example has as long as a test: on a loaded machine the default deadline of 200 ms fails examples that are right.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")

# The shipped conformance suites assert like tests, so pytest rewrites them too: their assertions bite under -O.
pytest.register_assert_rewrite("astyqueue.testing")

pytest_plugins = [
    "astyqueue.testing.cassandra.fixtures",
    "tests.support.places",
    "tests.support.runs",
]


#: Tests whose output is shown although they passed: what they show is worth as much as the numbers in it.
_TOLD: Final = {
    "orders of steps explored": "interleavings",
    "killed workers": "tests/killed_processes/",
    "a ring under fire": "tests/ring/",
    "memory of the report": "test_report_size",
}


@pytest.fixture(scope="session", autouse=True)
def signals() -> Iterator[None]:
    """Have tests, and programs that they start, react to signals that are ignored where all was started as a job.

    `nohup` ignores hangups, and a shell without job control Ctrl-C in what it starts in the background.
    """
    ignored = [number for number in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was explored, and what was survived."""
    passed: list[pytest.TestReport] = terminalreporter.stats.get("passed", [])
    for title, name in _TOLD.items():
        told = [report.capstdout.strip() for report in passed if name in report.nodeid and report.capstdout.strip()]
        if told:
            terminalreporter.section(title)
            terminalreporter.write_line("\n".join(told))
    if shown := list(_pairs_shown(passed)):
        terminalreporter.section("pairs of kinds of commits")
        terminalreporter.write_line("\n".join(shown))


def _pairs_shown(passed: list[pytest.TestReport]) -> Iterator[str]:
    """Which pairs would show that a guard is missing, as this run saw; orders of the others do not count as shown."""
    said: dict[str, list[object]] = defaultdict(list)
    for report in passed:
        for name, value in report.user_properties:
            said[name].append(value)
    if not said["pairs"]:
        return
    could, could_not = (
        sum(map(int, map(str, said[name]))) for name in ("orders that could fail", "orders not counted")
    )
    able = len({*said["able to fail"]})
    yield f"{able} of {said['pairs'][0]} pairs shown able to fail; {could} orders of these were played to their end"
    yield from sorted({str(one) for one in said["unable to fail"]})
    yield f"not counted as shown: {could_not} orders of pairs that cannot fail"
