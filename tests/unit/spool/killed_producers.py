"""Three processes send through one spool: the first two are killed, and the second never sees the store."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from astyqueue import MessageQueue
from tests.support.places import ONE_ROW
from tests.unit.spool.conftest import bodies

PROGRAM: Final = Path(__file__).with_name("spool_process.py")


def consumed(queue: MessageQueue) -> list[object]:
    """All messages that are in the store now, in the order of delivery; each is acked."""
    waiting = queue.counts().waiting
    return bodies(queue, waiting) if waiting else []


class KilledProducers:
    """One such run; the processes and the consumer may reach the store by different URLs."""

    def __init__(self, url: str, consumers: str, folder: Path) -> None:
        self._url = url
        self._consumers = consumers
        self._folder = folder

    def check(self, messages: int, outage: AbstractContextManager[None]) -> None:
        """Send a third of the messages by each process; what was acknowledged comes once and in order."""
        self._taken()
        known = {"first": self._sent("first", messages // 3, is_killed=True)}
        found = self._taken()
        with outage:
            known["second"] = self._sent("second", messages // 3, is_killed=True)
        known["third"] = self._sent("third", messages // 3, is_killed=False)
        found += self._taken()
        assert max(Counter(found).values()) == 1
        for name, number in known.items():
            numbers = [sent for sender, sent in found if sender == name]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) > number

    def _sent(self, name: str, count: int, *, is_killed: bool) -> int:
        """Run a process that sends this number of messages, perhaps not to its end; the last one acknowledged."""
        words = [sys.executable, str(PROGRAM), "send", self._url, str(self._folder), name, "0", str(count)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            known = 0
            for line in process.stdout:
                known = int(line) if line != "drained\n" else count - 1
                if is_killed and known >= count // 2:
                    process.kill()
            process.wait()
        assert process.returncode == (-signal.SIGKILL if is_killed else 0)
        return known

    def _taken(self) -> list[tuple[object, object]]:
        with MessageQueue.builder().store(self._consumers).name("emails").options(**ONE_ROW).build() as queue:
            return [(body[0], body[1]) for body in consumed(queue) if isinstance(body, list)]
