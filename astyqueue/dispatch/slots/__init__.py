"""The slots that run handlers, shared by all queues of a dispatcher, and how much is claimed for them.

- `slot_pool`: the slots, each a thread that takes messages of all queues in turn.
- `free_slots`: which queue may claim for a slot that is free, and how many messages each may have waiting.
- `ready_deliveries`: the claimed deliveries of one queue that wait for a slot.
"""

from astyqueue.dispatch.slots.free_slots import ClaimCredit, FreeSlots
from astyqueue.dispatch.slots.ready_deliveries import ReadyDeliveries
from astyqueue.dispatch.slots.slot_pool import ServedQueue, SlotPool

__all__ = ["ClaimCredit", "FreeSlots", "ReadyDeliveries", "ServedQueue", "SlotPool"]
