"""A producer that writes its sends to a journal: `python producer.py URL QUEUE JOURNAL FIRST AHEAD`.

It sends numbers from FIRST on, as many as its standard input says, some hundreds a line, by a clock that is
AHEAD seconds ahead of this machine's, or behind if negative.
"""

from __future__ import annotations

import itertools
import logging
import sys
from typing import Final

from astyqueue import MessageQueue
from astyqueue.clock import Clock, SystemClock
from astyqueue.errors import OutcomeUnknown, StoreError
from astyqueue.stores import open_store
from astyqueue.units import SECOND
from tests.ring.journal import Journal, JournalingStore, joined

#: As many messages sent together are one batch of one row; more are spread over several.
BATCH: Final = 50


class WrongClock(SystemClock):
    """This machine's clock, set wrong; being delivered in, it is not corrected by the store's time."""

    def __init__(self, ahead: int) -> None:
        self._ahead = ahead

    def now(self) -> int:
        return super().now() + self._ahead


def main(url: str, name: str, path: str, *numbers: str) -> None:
    logging.basicConfig(level=logging.CRITICAL)
    first, ahead = map(int, numbers)
    clock: Clock | None = WrongClock(ahead * SECOND) if ahead else None
    journal = Journal(path)
    store = JournalingStore(open_store(url, clock=clock or SystemClock()), journal)
    with MessageQueue.builder().store(store).name(name).clock(clock).build() as queue:
        journal.write("ready")
        for together in itertools.chain.from_iterable(range(int(line) // BATCH) for line in sys.stdin):
            del together
            send(queue, journal, first)
            first += BATCH
    store.close()


def send(queue: MessageQueue, journal: Journal, first: int) -> None:
    """Send one batch, and write its outcome to the journal; a failed batch is not sent again."""
    count = BATCH
    journal.write("sending", first, count)
    try:
        ids = [id_ for id_ in queue.send_many(range(first, first + count)).ids if id_]
    except OutcomeUnknown:
        journal.write("unknown", first, count)
    except StoreError:
        journal.write("refused", first, count)
    else:
        assert len({(id_.row, id_.priority) for id_ in ids}) == 1
        journal.write("sent", first, count, ids[0].row, ids[0].priority, joined(ids))


if __name__ == "__main__":
    main(*sys.argv[1:])
