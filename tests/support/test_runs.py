"""A run of the tests: which tests a process gets, how long they took, and that they fail under `python -O` too."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

import astyqueue.testing
from tests.support.runs import Took, processor_seconds, run_with, told

ROOT: Final = Path(__file__).parents[2]
#: Uses 0.3 seconds of a processor. Each of the four figures that are added up has whole hundredths.
BUSY: Final = "import time\nwhile time.process_time() < 0.3: pass"
LEAST: Final = 0.25


def test_one_process_runs_all_tests_on_spark_and_other_tests_file_by_file() -> None:
    files = ["tests/spark/test_stream.py", "tests/spark/pipeline/test_facts.py", "tests/unit/test_ids.py"]
    first, second, other = (run_with(f"{file}::test_it[a::b]") for file in files)
    assert first == second
    assert other == "tests/unit/test_ids.py"


def test_one_process_runs_all_tests_that_may_kill_a_node() -> None:
    using = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests" / "cassandra").glob("test_*.py")
        if re.search(r"\b(one_node|node): LocalCassandra|\"one_node\"", file.read_text())
    }
    assert len(using) > 1
    assert len({run_with(f"{file}::test_it") for file in using}) == 1


def test_the_time_of_processes_that_were_started_counts_also_while_they_run() -> None:
    before = processor_seconds()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    ended = processor_seconds()
    assert ended - before >= LEAST
    waiting = f"{BUSY}\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", waiting], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert processor_seconds() - ended >= LEAST
        running.communicate(b"\n")


def test_durations_list_folders_and_tests_the_most_expensive_first() -> None:
    tests = {"tests/a/test_it.py::one": Took(1, 2, 1), "tests/a/test_it.py::two": Took(3, 3, 1)}
    lines = "".join(told(tests | {"tests/b/test_it.py::three": Took(2, 9, 1)})).splitlines()
    figures = [line.split() for line in lines if line[:9].strip()[:1].isdigit()]
    assert figures == [
        ["4.0", "5.0", "2", "tests/a"],
        ["2.0", "9.0", "1", "tests/b"],
        ["6.0", "14.0", "3", "all"],
        ["3.0", "3.0", "1", "tests/a/test_it.py::two"],
        ["2.0", "9.0", "1", "tests/b/test_it.py::three"],
        ["1.0", "2.0", "1", "tests/a/test_it.py::one"],
    ]


@pytest.mark.full
def test_a_run_in_several_processes_writes_how_long_its_tests_took(tmp_path: Path) -> None:
    to = tmp_path / "new" / "durations.txt"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "1",
        "--durations-to",
        str(to),
        "tests/unit/test_durations.py",
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [folder] = [line.split() for line in to.read_text().splitlines() if line.endswith(" tests/unit")]
    assert float(folder[0]) > 0
    assert int(folder[2]) > 1


#: pytest rewrites the assertions of tests, so `python -O`, which drops assert statements, leaves these in place.
PLANTED: Final = (
    "def test_that_python_is_optimised():\n    assert not __debug__\n\ndef test_that_fails():\n    assert 1 == 2\n"
)
SUITES: Final = [module.name for module in pkgutil.walk_packages(astyqueue.testing.__path__, "astyqueue.testing.")]


def test_a_false_assertion_fails_under_python_o_too(tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text(PLANTED, encoding="utf-8")
    settings = ["-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", "-q"]
    ran = subprocess.run(
        [sys.executable, "-O", "-m", "pytest", *settings, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "1 failed, 1 passed" in ran.stdout
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("suite", ["astyqueue.testing", *SUITES])
def test_the_assertions_of_a_shipped_suite_are_rewritten(suite: str) -> None:
    spec = find_spec(suite)
    assert spec is not None
    assert isinstance(spec.loader, AssertionRewritingHook)
