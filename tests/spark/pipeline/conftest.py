"""Where a report is looked at."""

from __future__ import annotations

import shutil
from typing import Final

import pytest

_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_TOLD: Final = pytest.StashKey[str]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was not tested."""
    if reason := config.stash.get(_TOLD, ""):
        terminalreporter.section("report")
        terminalreporter.write_line(reason)


@pytest.fixture(scope="session")
def browser(pytestconfig: pytest.Config) -> str:
    """A browser on this machine; without one what needs it is skipped, and that is said at the end."""
    for name in _BROWSERS:
        if path := shutil.which(name):
            return path
    reason = (
        f"NOT TESTED in a browser: the report was not opened in any of {', '.join(_BROWSERS)}; "
        "install chromium to have it looked at"
    )
    pytestconfig.stash[_TOLD] = reason
    pytest.skip(reason)
