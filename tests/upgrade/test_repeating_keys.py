"""The previous version beside a repeating message with a unique key.

It fails clearly or does no harm, and never frees the key.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from astyqueue import KeyTaken, MessageQueue
from astyqueue.store import Slice
from astyqueue.triggers import Every
from tests.support.places import Place
from tests.upgrade import upgrade_process
from tests.upgrade.upgrade_process import KEY, QUEUE

RunsPrevious = Callable[..., list[str]]
pytestmark = [pytest.mark.stores("sqlite", "cassandra")]


@pytest.fixture
def queue(place: Place) -> Iterator[MessageQueue]:
    with MessageQueue.builder().store(place.url).name(QUEUE).concurrency_shards(1).build() as opened:
        yield opened


@pytest.fixture
def previous_client_does(place: Place, previous: Path) -> RunsPrevious:
    """Does operations in a process of the previous version; returns their outcomes."""

    def run(*operations: str) -> list[str]:
        environment = {**os.environ, "PYTHONPATH": str(previous), "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, str(Path(upgrade_process.__file__)), "use", place.url, *operations]
        return subprocess.run(
            command, env=environment, capture_output=True, check=True, text=True, timeout=120
        ).stdout.split()

    return run


def keys(queue: MessageQueue) -> list[bytes]:
    return [column.value for column in queue.store.read((Slice(f"{QUEUE}:home:0", 1),))[0]]


def test_the_previous_version_neither_takes_nor_frees_the_key_and_says_so(
    queue: MessageQueue, previous_client_does: RunsPrevious
) -> None:
    queue.send("work", key=KEY, unique="reject", trigger=Every("1h"))
    held = keys(queue)
    assert previous_client_does("reject", "keep", "replace") == ["StoreCorrupt"] * 3
    assert previous_client_does("receive") == ["1"]
    assert keys(queue) == held
    with pytest.raises(KeyTaken):
        queue.send("work", key=KEY, unique="reject")


def test_the_previous_version_clears_runs_and_leaves_the_key(
    queue: MessageQueue, previous_client_does: RunsPrevious
) -> None:
    queue.send("work", key=KEY, unique="reject", trigger=Every("1h"))
    held = keys(queue)
    assert previous_client_does("clear") == ["1"]
    assert keys(queue) == held


@pytest.mark.every_store
def test_the_key_of_a_schedule_that_the_previous_version_removed_or_ended_is_taken_over(
    queue: MessageQueue, previous_client_does: RunsPrevious
) -> None:
    queue.send("work", key=KEY, unique="reject", trigger=Every("1h"))
    assert previous_client_does("stop", "reject") == ["True", "StoreCorrupt"]
    assert len(keys(queue)) == 1
    assert queue.send("again", key=KEY, unique="reject", trigger=Every("1h", count=1)).new
    assert previous_client_does("receive") == ["1"]
    assert queue.send("once more", key=KEY, unique="keep").new
