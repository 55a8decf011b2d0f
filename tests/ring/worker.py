"""A worker that writes its deliveries and their outcomes to a journal: `python worker.py URL QUEUE JOURNAL`.

It runs until its standard input ends. It acks most messages; it handles a few slowly, rejects a few, and fails a few at
their first attempt.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

from astyqueue import Delivery, Hook, MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.errors import Reject, Retry
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.stores import open_store
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.ring.journal import Journal, JournalingStore

THREADS: Final = 2
#: One message in this many is rejected.
REJECTED: Final = 997
#: One message in this many is handled slowly, for `SLOW_FOR`.
SLOW: Final = 97
SLOW_FOR: Final = SECOND // 20
#: One message in this many fails at its first attempt.
FAILED: Final = 499
REASON: Final = "of no use"


class JournalHook(Hook):
    """Writes to the journal which outcome is requested and what comes of it; extensions are left out."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        self._report("settle", delivery, outcome)

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        self._report("settled", delivery, outcome)

    def _report(self, word: str, delivery: BaseDelivery, outcome: str) -> None:
        if outcome != "extended":
            self._journal.settle(word, number_of(delivery), delivery, outcome=outcome)


def number_of(delivery: BaseDelivery) -> int:
    assert isinstance(delivery.body, int)
    return delivery.body


def main(url: str, name: str, path: str) -> None:
    logging.basicConfig(level=logging.CRITICAL)
    clock = SystemClock()
    journal = Journal(path)

    def handle(delivery: Delivery) -> None:
        number = number_of(delivery)
        journal.delivered(number, delivery)
        if number % SLOW == 1:
            Wakeup(clock).wait(clock.monotonic() + SLOW_FOR)
        if number % REJECTED == 1:
            raise Reject(REASON)
        if number % FAILED == 1 and delivery.attempt == 1:
            raise Retry(1)

    store = JournalingStore(open_store(url, clock=clock), journal)
    queue = MessageQueue.builder().store(store).name(name).hook(JournalHook(journal)).build()
    with queue, Dispatcher.builder().queue(queue).handler(handle, threads=THREADS).build():
        journal.write("ready")
        sys.stdin.buffer.read()
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
