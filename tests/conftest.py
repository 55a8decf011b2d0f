"""What all tests have in common."""

from __future__ import annotations

import pytest

# The shipped conformance suites assert like tests, so pytest rewrites them too: their assertions bite under -O.
pytest.register_assert_rewrite("astyqueue.testing")

pytest_plugins = ["astyqueue.testing.cassandra.fixtures", "tests.places"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was explored: a proof by all orders is worth as much as their number."""
    passed: list[pytest.TestReport] = terminalreporter.stats.get("passed", [])
    told = [line for report in passed if "test_interleavings" in report.nodeid for line in report.capstdout.splitlines()]
    if told:
        terminalreporter.section("orders of steps explored")
        terminalreporter.write_line("\n".join(told))
