"""How the tests of a run are dealt out to processes, and what is kept of how long they took."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.run_costs import Took, processor_seconds, told
from tests.support.xdist_scheduling import run_with

ROOT: Final = Path(__file__).parents[2]
#: Uses 0.3 seconds of a processor. Each of the four figures that are added up has whole hundredths.
BUSY: Final = "import time\nwhile time.process_time() < 0.3: pass"
LEAST: Final = 0.25


def test_one_process_runs_all_tests_on_spark_and_other_tests_file_by_file() -> None:
    files = ["tests/spark/test_stream.py", "tests/spark/pipeline/test_facts.py", "tests/unit/test_ids.py"]
    first, second, other = (run_with(f"{file}::test_it[a::b]") for file in files)
    assert first == second
    assert other == "tests/unit/test_ids.py"


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


def test_folders_and_tests_are_told_the_most_expensive_first() -> None:
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
