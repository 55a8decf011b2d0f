"""Programs on a real node of which processes are killed: the demo, and producers with a spool. They lose nothing."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import pytest

from astyqueue.stores.cassandra.connection.settings import PORT
from astyqueue.testing.cassandra import Contacts
from tests.examples.test_demo import demo, is_there, workers
from tests.unit.spool.killed_producers import on_cassandra


def listens(said: str) -> bool:
    """Whether the node of which this was said takes connections."""
    [address] = re.findall(r"it takes requests at (\S+?),", said)
    with socket.socket() as tried:
        return tried.connect_ex((address, PORT)) == 0


@pytest.mark.full
@pytest.mark.usefixtures("cassandra")
def test_on_cassandra_the_demo_loses_nothing_although_a_worker_is_killed_while_it_runs_a_task(tmp_path: Path) -> None:
    with demo(tmp_path, "--cassandra") as running:
        said, _ = running.communicate(timeout=110)
    assert running.returncode == 0, said
    [balance] = re.findall(
        r"^sent (\d+), done (\d+), dead (\d+), lost (\d+), delivered twice (\d+)$", said, re.MULTILINE
    )
    sent, done, dead, lost, twice = map(int, balance)
    assert (sent, lost) == (done + dead, 0)
    assert twice >= 1
    assert re.search(r"worker \d was killed \(SIGKILL\) while it ran \S+\.py", said)
    assert len(workers(tmp_path)) >= 2
    assert not any(map(is_there, workers(tmp_path)))
    assert not listens(said)


@pytest.mark.usefixtures("cassandra")
@pytest.mark.full
def test_the_demo_leaves_no_node_behind_when_it_is_ended(tmp_path: Path) -> None:
    with demo(tmp_path, "--cassandra") as running:
        assert running.stdout is not None
        told = next(line for line in running.stdout if "it takes requests at" in line)
        assert listens(told)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
    assert running.returncode == 143
    assert not any(map(is_there, workers(tmp_path)))
    assert not listens(told)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("messages", [1_500, pytest.param(20_000, marks=pytest.mark.full)])
def test_a_producer_killed_twice_loses_and_doubles_nothing_while_a_node_cannot_be_reached(
    messages: int, cassandra: Contacts, url: str, tmp_path: Path
) -> None:
    on_cassandra(url, (cassandra.contact_points[0], cassandra.port), tmp_path, messages).check()
