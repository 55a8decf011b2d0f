"""The slots that run handlers, shared by all queues of a dispatcher, and how much is claimed for them.

- `slot_pool`: the slots, each a thread that takes messages of all queues in turn.
- `free_slots`: which queue may claim for a slot that is free, and how many messages each may have waiting.
- `ready_deliveries`: the claimed deliveries of one queue that wait for a slot.

A claim thread asks `ClaimCredit` how many messages its queue may claim. `FreeSlots` promises each free slot to one
queue, and refuses the others until their turn comes; so no more is claimed than slots can begin, besides a few that
wait because handlers are quick. The claim thread puts what it claimed into `ReadyDeliveries`, whose consumer manager
(`astyqueue.dispatch.consumers`) wakes a slot. The slot pulls, handles the delivery in its own thread, pulls the next
one, and sleeps when no queue has any. The monitor starts a new slot for one whose thread died.

All of this is safe from any thread, under locks that barge (docs/decisions/0057). docs/how-to/many-queues.md explains
turns and weights, docs/decisions/0047 why queues share slots.
"""

from astyqueue.dispatch.slots.free_slots import ClaimCredit, FreeSlots
from astyqueue.dispatch.slots.ready_deliveries import ReadyDeliveries
from astyqueue.dispatch.slots.slot_pool import Executions, ServedLine, SlotPool

__all__ = ["ClaimCredit", "Executions", "FreeSlots", "ReadyDeliveries", "ServedLine", "SlotPool"]
