"""Which consumer of this process gets which claimed message of a queue, and which one is woken for it.

A dispatcher has one manager for each queue; each of its slots is a consumer of all of them (`dispatch.slots`).

- `ready_buffer`: the claimed messages that wait, in lanes of those that the same consumers may take; selectors.
- `credit`: whether a consumer can accept a message now.
- `consumer_states`: the consumers by state and priority, each moved in one place.
- `matching`: who may take what, and who is woken.
- `consumer_manager`: the lock around these, and the calls of producers and consumers.
- `multi_queue`: one consumer of several queues, which take turns by weight.

A dispatcher has one priority for all its consumers, no selectors, browsers or expiry, and no credit in a consumer of
several queues. What it does not use serves rows Q03 to Q14 of the lineage: tests/unit/dispatch has a test for each row,
and tests/consumer_schedules plays priorities, selectors, expiry and credit.

How the rows of the broker's consumer manager are met is in docs/reference/lineage.md.
"""

from astyqueue.dispatch.consumers.consumer_manager import ConsumerManager
from astyqueue.dispatch.consumers.consumer_states import Consumer
from astyqueue.dispatch.consumers.credit import Credit
from astyqueue.dispatch.consumers.multi_queue import MultiQueueConsumer, Pulled, stride_of
from astyqueue.dispatch.consumers.ready_buffer import Ready

__all__ = [
    "Consumer",
    "ConsumerManager",
    "Credit",
    "MultiQueueConsumer",
    "Pulled",
    "Ready",
    "stride_of",
]
