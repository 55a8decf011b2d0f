from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import TESTING, written


@pytest.mark.parametrize(
    ("program", "least"), [("test_reminders.py", 1), ("test_failures.py", 3), ("test_my_store.py", 100)]
)
def test_the_tests_that_the_page_shows_pass_for_a_user(program: str, least: int, tmp_path: Path) -> None:
    folder = written(TESTING, tmp_path)
    folder.joinpath("conftest.py").unlink()  # its fixtures are for tests on Cassandra: tests/cassandra runs those
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", program]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(ran.stdout.splitlines()[-1].split(" passed")[0]) >= least
