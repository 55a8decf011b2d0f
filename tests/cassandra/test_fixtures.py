"""The fixtures for our users' tests do what the page about testing says.

A run without a Cassandra never looks like one with a Cassandra.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread

import pytest

from astyqueue.testing.cassandra import Contacts
from astyqueue.testing.cassandra.provider import provided_to_all
from tests.unit.test_how_to_pages import TESTING, written


def tried(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("CI", "JAVA_HOME", "ASTYQUEUE_CASSANDRA")
    }
    return subprocess.run(
        command, cwd=folder, env=inherited | environment, capture_output=True, text=True, check=False, timeout=110
    )


def nothing_here(folder: Path) -> dict[str, str]:
    """The environment of a machine that has neither jars nor Maven nor a Docker engine."""
    return {"XDG_CACHE_HOME": str(folder), "PATH": str(folder), "DOCKER_HOST": f"unix://{folder}/nowhere"}


@pytest.mark.full
def test_the_tests_that_the_page_shows_pass(cassandra: Contacts, tmp_path: Path) -> None:
    names = ("test_reminders.py", "test_orders.py", "test_outage.py")
    named = f"{','.join(cassandra.contact_points)}:{cassandra.port}"
    ran = tried(written(TESTING, tmp_path), *names, "--cassandra", named)
    assert ran.returncode == 0, ran.stdout
    assert re.search(r"^3 passed", ran.stdout, re.MULTILINE), ran.stdout
    assert f"tested on {named}, as configured" in ran.stdout


def test_without_a_cassandra_tests_on_it_are_skipped_and_the_last_lines_say_why(tmp_path: Path) -> None:
    ran = tried(written(TESTING, tmp_path), "test_orders.py", **nothing_here(tmp_path))
    assert ran.returncode == 0, ran.stdout
    assert re.search(r"^1 skipped", ran.stdout, re.MULTILINE), ran.stdout
    assert re.search(
        r"^NOT TESTED on Cassandra: a local Cassandra needs Java|^NOT TESTED on Cassandra: the jars",
        ran.stdout,
        re.MULTILINE,
    )
    assert "no Cassandra in a container" in ran.stdout


def test_where_tests_are_to_prove_something_the_want_of_a_cassandra_fails_them(tmp_path: Path) -> None:
    ran = tried(written(TESTING, tmp_path), "test_orders.py", CI="true", **nothing_here(tmp_path))
    assert ran.returncode == 1, ran.stdout
    assert re.search(r"^1 error", ran.stdout, re.MULTILINE), ran.stdout


def test_who_asks_for_a_container_is_given_nothing_else(tmp_path: Path) -> None:
    ran = tried(
        written(TESTING, tmp_path), "test_orders.py", "--cassandra=container", DOCKER_HOST=f"unix://{tmp_path}/nowhere"
    )
    assert re.search(r"^1 skipped", ran.stdout, re.MULTILINE), ran.stdout
    assert "NOT TESTED on Cassandra: no Cassandra in a container" in ran.stdout


def test_all_that_name_one_folder_use_what_the_first_of_them_provides(tmp_path: Path) -> None:
    with provided_to_all("10.0.0.1:9043", tmp_path) as first, provided_to_all("10.0.0.2", tmp_path) as second:
        assert first.contacts == Contacts(("10.0.0.1",), 9043)
        assert second == first
    with provided_to_all("10.0.0.2", tmp_path) as later:
        assert later.contacts == Contacts(("10.0.0.2",))


def test_the_one_that_provides_it_leaves_last(tmp_path: Path) -> None:
    leaving = Event()
    left: list[str] = []
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(provided_to_all("10.0.0.1", tmp_path))
        second.enter_context(provided_to_all("10.0.0.1", tmp_path))

        def leave() -> None:
            leaving.wait()
            left.append("second")
            second.close()

        other = Thread(target=leave)
        other.start()
        leaving.set()
        first.close()
        assert left == ["second"]
        other.join()
