"""A stream that is killed again and again, and goes on from its checkpoint each time."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final

import pytest

from astyqueue import MessageId, MessageQueue, connect
from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.model.event import Event as Happened
from astyqueue.model.event import Kind
from astyqueue.protocol.history import record_events
from astyqueue.spark import session
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.spark.conftest import SETTINGS
from tests.spark.frames import drained
from tests.support.places import Place

ROOT: Final = Path(__file__).parents[2]
#: How often, unless `--kills` says otherwise: each start takes long, and `make test-kills` kills ten times.
KILLS: Final = 3
EVENTS: Final = 1_500
ROWS_PER_BATCH: Final = 50
#: Events seen since a start, or none at all, after which the stream may be killed.
SEEN_BEFORE_KILL: Final = (1, 10, 30, 50, 75)
PATIENCE: Final = 300 * SECOND
CLOCK: Final = SystemClock()
#: Spark has a task for each row, and each begins a worker.
FEW: Final = {"time_shards": 1, "concurrency_shards": 2}


class Taking:
    """A consumer that acks all it is handed, and remembers it; while the store is away it tries again."""

    def __init__(self, queue: MessageQueue) -> None:
        self.seen: Counter[str] = Counter()
        self._handed: set[MessageId] = set()  # a message comes again if the store did not answer its ack
        self._queue = queue
        self._ended = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            with suppress(StoreUnavailable), self._queue.receive(100, wait="50ms") as batch:
                self.seen.update(str(delivery.body) for delivery in batch if delivery.message_id not in self._handed)
                self._handed.update(delivery.message_id for delivery in batch)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self.seen.update(map(str, drained(self._queue)))


@contextmanager
def taking_from(queue: MessageQueue) -> Iterator[Taking]:
    """A consumer that goes on all the time."""
    taking = Taking(queue)
    try:
        yield taking
    finally:
        taking.end()


def happened(queue: MessageQueue) -> list[Happened]:
    """Events of some days, several at one moment."""
    id_ = queue.send("hello").id
    now = CLOCK.now()
    return [
        Happened(now - (1 + number // 3) * 60 * SECOND, kind, queue.name, id_, attempt=number)
        for number in range(EVENTS // 2)
        for kind in (Kind.FAILED, Kind.RETRIED)
    ]


class Job:
    """The stream, run in a process of its own again and again."""

    def __init__(self, url: str, checkpoint: Path) -> None:
        self._command = [sys.executable, __file__, url, "source", "target", str(checkpoint), str(ROWS_PER_BATCH)]

    def run(self) -> bytes:
        """Let it run to its end, and say what it told."""
        told, _ = self._started().communicate(timeout=PATIENCE // SECOND)
        return told

    def run_until_killed(self, taking: Taking, more: int) -> None:
        """Kill it, and Spark with it, when so many more events came; its workers notice by themselves a bit later.

        One that failed before, as when the store does not answer on a busy machine, has died as well.
        """
        process = self._started()
        ended_or_seen(process, taking, more)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode, "it ended before it was killed"

    def _started(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        told, hidden = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(self._command, env=environment, start_new_session=True, stdout=told, stderr=hidden)


def ended_or_seen(process: subprocess.Popen[bytes], taking: Taking, more: int) -> None:
    """Wait until so many more events came, or the stream ended."""
    deadline, before = CLOCK.monotonic() + PATIENCE, taking.seen.total()
    while process.poll() is None and taking.seen.total() < before + more:
        assert CLOCK.monotonic() < deadline
        Wakeup(CLOCK).wait(CLOCK.monotonic() + SECOND // 50)


@pytest.mark.full
@pytest.mark.stores("sqlite", "cassandra")
@pytest.mark.timeout(1_800)
def test_a_stream_killed_again_and_again_sends_each_event_once_while_others_consume(
    java: Path, place: Place, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    faulthandler.cancel_dump_traceback_later()  # it takes minutes, and is not stuck
    assert java
    chance, job = random.Random(7), Job(place.url, tmp_path / "checkpoint")
    with connect(place.url) as connection, taking_from(connection.queue("target", **FEW)) as taking:
        source = connection.queue("source", **FEW)
        events = happened(source)
        source.run(record_events(source.core.ring, events, 10**13))
        for _ in range(pytestconfig.getoption("--kills") or KILLS):
            job.run_until_killed(taking, chance.choice(SEEN_BEFORE_KILL))
        told = job.run()
    assert b"ended" in told
    assert set(taking.seen.values()) == {1}
    assert taking.seen.total() == len({(event.at, event.kind, event.message) for event in events})


def main(url: str, *names: str) -> None:
    """Run the stream: `test_kills.py URL SOURCE TARGET CHECKPOINT ROWS_PER_BATCH` is a process that a test kills.

    It follows the history of one queue and sends each event to another, until nothing is left.
    """
    source, target, checkpoint, most = names
    spark = session("local[2]", settings=SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    place = {"url": url, "queue": source}
    events = (
        spark.readStream.format("astyqueue")
        .options(**place, table="history", since="30d", lag="0s", rows_per_batch=most)
        .load()
    )
    rows = events.selectExpr("concat(message, ' ', kind, ' ', at) AS event", "kind", "attempt")
    sink = rows.writeStream.format("astyqueue").options(
        url=url, queue=target, id_column="event", checkpointLocation=checkpoint
    )
    sys.stdout.write("ready\n")
    sink.trigger(availableNow=True).start().awaitTermination()
    sys.stdout.write("ended\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
