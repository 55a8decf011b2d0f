"""What all tests have in common."""

from __future__ import annotations

from typing import Final

import pytest

# The shipped conformance suites assert like tests, so pytest rewrites them too: their assertions bite under -O.
pytest.register_assert_rewrite("astyqueue.testing")

pytest_plugins = ["astyqueue.testing.cassandra.fixtures", "tests.places"]


#: Tests whose output is told although they passed: what they show is worth as much as the numbers in it.
_TOLD: Final = {
    "orders of steps explored": "interleavings",
    "killed workers": "test_kill",
    "a ring under fire": "tests/ring/",
    "memory of the report": "test_report_size",
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was explored, and what was survived."""
    passed: list[pytest.TestReport] = terminalreporter.stats.get("passed", [])
    for title, name in _TOLD.items():
        told = [report.capstdout.strip() for report in passed if name in report.nodeid and report.capstdout.strip()]
        if told:
            terminalreporter.section(title)
            terminalreporter.write_line("\n".join(told))
