"""What equal consumers cost and get over many messages: wake-ups for each message, and their shares.

Time is a number that counts up, so the figures do not depend on the machine. Each consumer handles one message at a
time, as a slot of a dispatcher does.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from astyqueue.dispatch.consumers.consumer_manager import ConsumerManager
from astyqueue.dispatch.consumers.consumer_states import Consumer
from astyqueue.dispatch.consumers.ready_buffer import Ready

CONSUMERS: Final = 4
MESSAGES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Load:
    """A message each `interval` units of time on average, which a handler takes `duration` units for on average.

    Both are the same each time, unless they are `random`: then from half to one and a half of that.
    """

    name: str
    interval: int
    duration: int
    random: bool = False


#: Together the consumers handle a message in a quarter of its duration.
LOADS: Final = (
    Load("handlers faster than arrivals", 20, 10),
    Load("handlers slower than arrivals", 10, 50),
    Load("handlers as fast as arrivals, both at random", 20, 80, random=True),
    Load("handlers faster than arrivals, both at random", 20, 40, random=True),
    Load("handlers slower than arrivals, both at random", 20, 120, random=True),
)


@dataclass(frozen=True, slots=True)
class Shares:
    """How many messages were delivered, wake-ups for each, and the largest share by the smallest."""

    delivered: int
    wakeups_per_message: float
    max_to_min: float


def measured(load: Load, messages: int = MESSAGES) -> Shares:
    """Have equal consumers handle this number of messages under a load."""
    return _Run(load).shares(messages)


class _Run:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._random = Random(0)
        self._manager: ConsumerManager[int] = ConsumerManager(lambda: 0)
        self._woken: list[int] = []
        self._free_at: dict[int, int] = {}
        self._consumers = [self._made(number) for number in range(CONSUMERS)]

    def _made(self, number: int) -> Consumer[int]:
        consumer: Consumer[int] = Consumer(lambda: self._woken.append(number))
        self._manager.add_consumer(consumer)
        self._manager.refresh(consumer)
        return consumer

    def _time(self, average: int) -> int:
        return self._random.randint(average // 2, average + average // 2) if self._load.random else average

    def shares(self, messages: int) -> Shares:
        """Send a message at each arrival, and after the last one let the consumers finish."""
        moment = 0
        for number in range(messages):
            self._handle_until(moment)
            self._manager.put([Ready(number)])
            self._begin(moment)
            moment += self._time(self._load.interval)
        while self._free_at:
            moment = min(self._free_at.values())
            self._handle_until(moment)
        shares = [one.delivered for one in self._consumers]
        counters = self._manager.counters
        return Shares(counters.delivered, counters.wakeups_per_delivery, max(shares) / min(shares))

    def _handle_until(self, moment: int) -> None:
        """Let the consumers that are free by then pull, each when its handler has ended."""
        while self._free_at and (at := min(self._free_at.values())) <= moment:
            number = min(one for one, free in self._free_at.items() if free == at)
            self._pull(number, at)
            self._begin(at)

    def _begin(self, moment: int) -> None:
        """Have those pull that were woken."""
        while self._woken:
            number = self._woken.pop(0)
            if number not in self._free_at:
                self._pull(number, moment)

    def _pull(self, number: int, moment: int) -> None:
        if self._manager.pull(self._consumers[number]) is None:
            self._free_at.pop(number, None)
        else:
            self._free_at[number] = moment + self._time(self._load.duration)
