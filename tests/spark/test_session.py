"""A session of Spark: which Java it takes, and what a process shows on stderr while it starts."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from astyqueue.errors import BadSetting
from astyqueue.spark import session
from astyqueue.spark.session import NoJava, java_home, kept_back

_PROCESS: Final = ["sh", "-c", "echo early >&2; printf 'no end' >&2; echo ready; read word; echo $word >&2"]


def java(home: Path, version: str, *modules: str) -> Path:
    """A java that tells this of itself."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    told = "\n".join(modules)
    command.write_text(f"""#!/bin/sh
case "$1" in
-XshowSettings:properties) echo '    java.specification.version = {version}' >&2 ;;
--list-modules) echo '{told}' ;;
esac
""")
    command.chmod(0o755)
    return home


def test_the_java_that_java_home_names_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java(tmp_path / "jdk", "21", "java.base@21", "jdk.incubator.vector@21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


@pytest.mark.parametrize(
    ("version", "modules", "told"),
    [
        ("11", ("jdk.incubator.vector@11",), "it is Java 11"),
        ("17", ("java.base@17",), "it is a trimmed runtime without the module jdk.incubator.vector"),
        ("1.8", (), "it is Java 1.8"),
        ("", (), "it is Java of an unknown version"),
    ],
)
def test_a_java_that_spark_does_not_run_on_is_reported_with_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, modules: tuple[str, ...], told: str
) -> None:
    home = java(tmp_path / "jdk", version, *modules)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(NoJava, match="Install one") as refused:
        java_home()
    assert refused.value.found == {str(home): told}


def test_a_java_home_without_a_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava, match="it does not run"):
        java_home()


def test_a_python_for_the_workers_that_the_driver_has_not_got_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "nowhere/bin/python")
    with pytest.raises(BadSetting, match="unpack an archive that they get into the current directory"):
        session()


class NotStarted(Exception):
    """It did not start."""


def started(stderr: int) -> subprocess.Popen[str]:
    """A process that has said all that it says while it starts."""
    process = subprocess.Popen(_PROCESS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def fail_to_start(processes: list[subprocess.Popen[str]]) -> None:
    with kept_back() as stderr:
        processes.append(started(stderr))
        raise NotStarted


def finish(process: subprocess.Popen[str]) -> None:
    """Let it say one thing more, which has been passed on when this returns."""
    process.communicate("later\n")
    for thread in threading.enumerate():
        if thread.name == "astyqueue:stderr":
            thread.join()


def test_what_is_said_until_it_has_started_is_dropped_and_all_that_comes_later_is_shown(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with kept_back() as stderr:
        process = started(stderr)
    finish(process)
    assert capfd.readouterr().err == "later\n"


def test_a_start_that_fails_ends_also_if_stderr_cannot_be_written() -> None:
    program = (
        "import os\n"
        "from astyqueue.spark.session import kept_back\n"
        "os.dup2(os.open(os.devnull, os.O_RDONLY), 2)\n"
        "try:\n"
        "    with kept_back() as stderr:\n"
        "        os.write(stderr, b'why')\n"
        "        raise RuntimeError\n"
        "except RuntimeError:\n"
        "    print('it did not start')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert ended.stdout == "it did not start\n"


def test_all_of_it_is_shown_if_it_does_not_start(capfd: pytest.CaptureFixture[str]) -> None:
    processes: list[subprocess.Popen[str]] = []
    with pytest.raises(NotStarted):
        fail_to_start(processes)
    assert capfd.readouterr().err == "early\nno end"
    finish(*processes)
    assert capfd.readouterr().err == "later\n"
