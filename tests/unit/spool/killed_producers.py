"""Three processes send through one spool: the first two are killed, and the second never reaches the store.

`python -m tests.unit.spool --store cassandra --messages 200000` is such a run, with its figures.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from astyqueue import MessageQueue
from astyqueue.errors import StoreUnavailable
from tests.support.places import ONE_ROW
from tests.support.proxy import Proxy
from tests.unit.spool.spool_process import DRAINED

T = TypeVar("T")

PROGRAM: Final = Path(__file__).with_name("spool_process.py")
#: The processes, each named for the store while it sends.
PHASES: Final = ("there", "away", "back")
#: The sends of a process that is killed before it made so many.
_ENDLESS: Final = 1_000_000_000
_TAKEN: Final = 200
#: Requests in a row that a node may leave unanswered before the run ends.
_UNANSWERED: Final = 5


class Sends(NamedTuple):
    """The sends of one process: the number of those known to have returned, and the microseconds that each took."""

    returned: int
    delays: list[int]


class Forwarding(NamedTuple):
    """What the last process had left to forward, and the microseconds, of the clock and of the processors, it took."""

    messages: int
    took: int
    used: int


class Consumed(NamedTuple):
    """A delivery that was acked: its process, its number, and the id of its message."""

    process: str
    number: int
    message_id: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was sent, and what came of it."""

    sends: dict[str, Sends]
    forwarding: Forwarding
    consumed: Sequence[Consumed]

    @property
    def back(self) -> int:
        """Deliveries of a message that was consumed before."""
        return len(self.consumed) - len({one.message_id for one in self.consumed})

    @property
    def twice(self) -> int:
        """Sends of which two messages were made."""
        made = Counter((one.process, one.number) for one in {one.message_id: one for one in self.consumed}.values())
        return sum(count > 1 for count in made.values())

    @property
    def lost(self) -> int:
        """Sends that returned and were not delivered."""
        there = {(one.process, one.number) for one in self.consumed}
        return sum((name, number) not in there for name, sent in self.sends.items() for number in range(sent.returned))

    @property
    def out_of_order(self) -> int:
        """Deliveries right after a later send of their process."""
        orders = [[one.number for one in self.consumed if one.process == name] for name in self.sends]
        return sum(after <= before for order in orders for before, after in itertools.pairwise(order))

    def check(self) -> None:
        """What was sent came once, in the order of each process."""
        assert (self.lost, self.twice, self.back, self.out_of_order) == (0, 0, 0, 0)


def consumed(queue: MessageQueue) -> list[object]:
    """The bodies of all messages that are in the store now, in the order of delivery; each is acked."""
    return [body for body, _ in _taken(queue)]


def _taken(queue: MessageQueue) -> Iterator[tuple[object, str]]:
    """The bodies and ids of all messages that are in the store now, each after it was acked."""
    waiting = queue.counts().waiting
    while waiting > 0 and (received := _answered(partial(queue.receive, _TAKEN, wait="10s"))):
        found = [(delivery.body, str(delivery.message_id)) for delivery in received]
        _answered(received.ack)
        waiting -= len(found)
        yield from found


def _answered(call: Callable[[], T]) -> T:
    """What a call of the consumer returns; a busy node may take longer for a request than its caller waits."""
    for _ in range(_UNANSWERED):
        with suppress(StoreUnavailable):
            return call()
    return call()


class KilledProducers:
    """One such run; the processes and the consumer may reach the store by different URLs."""

    def __init__(self, url: str, consumers: str, folder: Path) -> None:
        self._url = url
        self._consumers = consumers
        self._folder = folder
        self._forwarding = Forwarding(0, 0, 0)

    def run(self, messages: int, outage: AbstractContextManager[None]) -> Outcome:
        """Send a third of the messages by each process, and consume between them and after the last."""
        found = self._taken()
        known = {"there": self._sent("there", messages // 3, is_killed=True)}
        found += self._taken()  # a batch whose cursor was not saved comes again after its messages were consumed
        with outage:
            known["away"] = self._sent("away", messages // 3, is_killed=True)
        known["back"] = self._sent("back", messages // 3, is_killed=False)
        found += self._taken()
        return Outcome(known, self._forwarding, found)

    def _sent(self, name: str, count: int, *, is_killed: bool) -> Sends:
        """Run a process that sends this number of messages, and is then killed or drains."""
        sends = _ENDLESS if is_killed else count
        words = [sys.executable, str(PROGRAM), "send", self._url, str(self._folder), name, "0", str(sends)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            known = 0
            delays: list[int] = []
            for line in process.stdout:
                word, *numbers = line.split()
                if word == DRAINED:
                    known, self._forwarding = count, Forwarding(*map(int, numbers))
                    continue
                known = int(word) + 1
                delays += map(int, numbers)
                if is_killed and known >= count:
                    process.kill()
        assert process.returncode == (-signal.SIGKILL if is_killed else 0)
        return Sends(known, delays)

    def _taken(self) -> list[Consumed]:
        with MessageQueue.builder().store(self._consumers).name("emails").options(**ONE_ROW).build() as queue:
            return [Consumed(str(body[0]), int(body[1]), id_) for body, id_ in _taken(queue) if isinstance(body, list)]


def on_sqlite(folder: Path, messages: int) -> Outcome:
    """A run on a file that nothing can open during the outage."""
    file, aside = folder / "q.db", folder / "aside.db"

    @contextmanager
    def outage() -> Iterator[None]:
        file.rename(aside)
        file.mkdir()
        yield
        file.rmdir()
        aside.rename(file)

    url = f"sqlite:///{file}?synchronous=normal"
    return KilledProducers(url, url, folder / "spool").run(messages, outage())


def on_cassandra(url: str, node: tuple[str, int], folder: Path, messages: int) -> Outcome:
    """A run on a keyspace whose node no question of the processes reaches during the outage."""
    with Proxy(*node) as proxy:

        @contextmanager
        def outage() -> Iterator[None]:
            proxy.hold_questions()
            yield
            proxy.cut()
            proxy.pass_on()

        through = f"cassandra://{proxy.host}:{proxy.port}/{url.rpartition('/')[2]}"
        return KilledProducers(through, url, folder / "spool").run(messages, outage())
