from __future__ import annotations

import pytest

from astyqueue import LeaseLost, MessageQueue
from astyqueue.errors import Undecodable
from astyqueue.protocol.layout.columns import HEADER, message_name
from astyqueue.store import Batch, Put, Store
from astyqueue.testing import TimeMachine


@pytest.mark.every_store
def test_all_that_happens_is_counted(queue: MessageQueue, clock: TimeMachine) -> None:
    row = queue.send("a").id.row
    queue.send_many(["b", "c", "d"])
    acked, released, rejected, late = queue.receive(4)
    acked.ack()
    released.release("1h")
    rejected.reject("no")
    clock.advance("31s")
    assert [again.body for again in queue.receive(4)] == ["d"]
    with pytest.raises(LeaseLost):
        late.ack()
    assert len(queue.receive()) == 0
    stats = queue.stats
    assert (stats.sent, stats.received, stats.acked, stats.released, stats.rejected, stats.lost) == (4, 5, 1, 1, 1, 1)
    assert stats.rows == {row: 5}
    assert stats.empty_polls >= 1
    assert stats.refused_commits == 0


def test_what_was_tried_before_counts_as_redelivered(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("again")
    queue.receive()[0].fail()
    clock.advance("3s")
    queue.receive()
    assert queue.stats.redelivered == 1


def test_what_cannot_be_read_is_counted_whether_message_or_header(queue: MessageQueue, store: Store) -> None:
    sent = queue.send("will be damaged").id
    store.send(Batch(sent.row, (Put(message_name(sent.priority, sent.id), b"nonsense"),)))
    assert len(queue.receive()) == 0
    assert [letter.kind for letter in queue.dead_letters()] == ["undecodable"]
    store.send(Batch(sent.row, (Put(HEADER, b"nonsense"),)))
    queue.core.claimer.changed(sent.row)
    with pytest.raises(Undecodable, match="its header"):
        queue.receive()
    assert queue.stats.undecodable == 2
