"""A master with two workers, as the how-to says, and Spark Connect."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark
import pytest

from astyqueue import connect
from astyqueue.clock import SystemClock
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.support.places import Place

JOB: Final = Path(__file__).with_name("cluster_job.py")
ROOT: Final = Path(__file__).parents[2]
CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"
ROWS: Final = 1_000
SECONDS: Final = 240
CLOCK: Final = SystemClock()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def daemon(log: Path, *command: str, java: Path) -> Iterator[None]:
    """A process of Spark's own, killed at the end with all that it started."""
    environment = os.environ | {"JAVA_HOME": str(java), "SPARK_DAEMON_MEMORY": "256m", "PYTHONPATH": str(ROOT)}
    with log.open("w") as told:
        process = subprocess.Popen(
            [str(CLASS), *command], env=environment, stdout=told, stderr=told, start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(log: Path, words: str, times: int = 1) -> None:
    deadline = CLOCK.monotonic() + SECONDS * SECOND
    while log.read_text().count(words) < times:
        assert CLOCK.monotonic() < deadline, log.read_text()
        Wakeup(CLOCK).wait(CLOCK.monotonic() + SECOND // 10)


@pytest.fixture
def master(java: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of a master with two workers, who have different addresses: Spark speculates only then."""
    port, package = free_port(), "org.apache.spark.deploy"
    url, log = f"spark://127.0.0.1:{port}", tmp_path / "master.log"
    with ExitStack() as held:
        told = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()))
        held.enter_context(daemon(log, f"{package}.master.Master", *told, java=java))
        wait_for(log, "Starting Spark master")
        for number in (1, 2):
            place = (
                "--host",
                f"127.0.0.{number}",
                "--webui-port",
                str(free_port()),
                "--work-dir",
                str(tmp_path / f"work-{number}"),
            )
            worker = (f"{package}.worker.Worker", "--cores", "1", "--memory", "1g", *place, url)
            held.enter_context(daemon(tmp_path / f"worker-{number}.log", *worker, java=java))
        wait_for(log, "Registering worker", 2)
        yield url


def run(job: str, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(JOB), job, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout


@pytest.mark.full
@pytest.mark.stores("sqlite", "cassandra")
def test_two_workers_that_send_the_same_rows_at_once_send_each_once(master: str, place: Place, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    with connect(place.url) as connection:
        queue = connection.queue("emails")
        told = run("speculate", master, place.url, str(marks), str(ROWS))
        found = [one.body for one in queue.peek(2 * ROWS, include="all")]
    assert f"messages {ROWS}" in told
    assert sorted(str(body["id"]) for body in found if isinstance(body, dict)) == sorted(map(str, range(ROWS)))
    assert (marks / "other").exists(), "no task was run twice at once"


@pytest.mark.full
@pytest.mark.stores("sqlite", "cassandra")
def test_a_client_of_spark_connect_sends_and_reads(java: Path, place: Place) -> None:
    assert java
    with connect(place.url) as connection:
        connection.queue("emails")
        told = run("connect", place.url)
    assert "connect.session messages 100" in told
    assert "not on a Spark Connect server: use a master" in told
