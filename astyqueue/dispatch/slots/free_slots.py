"""How many messages each queue of a dispatcher may claim: for slots that are free, and a few that wait.

A slot that is free is promised to one queue at a time. So however many queues there are, no more messages are claimed
than slots can begin at once, besides those that wait because handlers are quick.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from itertools import count

from astyqueue.dispatch.consumers import stride_of
from astyqueue.dispatch.flow_control import AdaptivePrefetch
from astyqueue.dispatch.slots.ready_deliveries import ReadyDeliveries
from astyqueue.waiting import BargingLock


class FreeSlots:
    """The slots of a dispatcher that have nothing to do, and which queue may claim for them.

    Each free slot is for a message that waits, or is promised to a queue that claims; the promise ends when the claimed
    message comes, or when the claims of that queue rest. Queues that were refused get their turn by weight, the one
    that has claimed least first. Safe from any thread.
    """

    def __init__(self) -> None:
        """All slots are busy."""
        self._lock = BargingLock()
        self._free = 0
        self._promised = 0
        self._position = 0
        self._numbers = count()
        self._refused: list[tuple[int, int, ClaimCredit]] = []
        self._queues = 0
        self._waiting: set[ClaimCredit] = set()
        self._weight_of_waiting = 0

    def __repr__(self) -> str:
        """The numbers of slots that are free and promised, and of queues that wait for one."""
        return f"<FreeSlots: {self._free} free, {self._promised} promised, {len(self._refused)} queues refused>"

    def add_free(self, slots: int = 1) -> None:
        """Count this number of slots as free, too, and have the next queues claim that were refused."""
        with self._lock:
            self._free += slots
            offered = self._offered()
        _wake(offered)

    def take_free(self, slots: int = 1) -> None:
        """Mark `slots` free slots as taken: their threads were woken."""
        with self._lock:
            self._free -= slots

    def offer(self) -> None:
        """Have queues claim that were refused, as many as there are free slots left."""
        if self._refused:
            with self._lock:
                offered = self._offered()
            _wake(offered)

    def enter(self) -> None:
        """Count one more queue."""
        with self._lock:
            self._queues += 1

    def leave(self, queue: ClaimCredit) -> None:
        """Forget a queue, which claims no more."""
        with self._lock:
            self._queues -= 1
            self._drop_promise(queue)
            self._count_waiting(queue, waits=False)
            queue.refused = False
            offered = self._offered()
        _wake(offered)

    def part_of(self, queue: ClaimCredit) -> float:
        """This queue's part of the slots' time, by weight, among the queues that have something waiting."""
        with self._lock:
            return queue.weight / (self._weight_of_waiting + (0 if queue in self._waiting else queue.weight))

    def grant(self, queue: ClaimCredit, bound: int, *, promise: bool) -> int:
        """How many messages a queue may claim, if `bound` of them may wait; with `promise`, free slots are kept for it.

        Grants are for half of the bound at least, because each claim costs a commit, however few messages it returns;
        one stays valid when part of it has arrived. A queue that gets nothing is woken when a slot is free for it.
        """
        with self._lock:
            self._drop_promise(queue)
            waiting = len(queue.ready)
            self._count_waiting(queue, waits=waiting > 0)
            usable = self._usable(queue)
            room = bound + usable - waiting
            if room >= max(1, bound // 2):
                queue.granted = room
            credit = max(0, min(room, queue.granted))
            queue.asked = credit > 0
            if promise:
                queue.promised = min(credit, max(0, usable - waiting))
                self._promised += queue.promised
            queue.refused = not credit
            if queue.refused and not queue.listed:
                queue.position = max(queue.position, self._position)
                self._list(queue)
            return credit

    def _list(self, queue: ClaimCredit) -> None:
        queue.listed = True
        heapq.heappush(self._refused, (queue.position, next(self._numbers), queue))

    def _usable(self, queue: ClaimCredit) -> int:
        """How many free slots this queue may use: beside other queues only one, until it has had messages."""
        left = self._left(besides=queue) if self._free else 0
        if not queue.known and self._queues > 1:
            left = min(left, 1)
        return left if queue.places is None else min(left, queue.places)

    def _left(self, besides: ClaimCredit | None = None) -> int:
        """The free slots that neither a promise nor a waiting message needs."""
        waiting = 0
        for queue in tuple(self._waiting):
            if queue is not besides:
                waits = len(queue.ready)
                self._count_waiting(queue, waits=waits > 0)
                waiting += waits if queue.places is None else min(waits, queue.places)
        return max(0, self._free - self._promised - waiting)

    def arrived(self, queue: ClaimCredit, messages: int) -> None:
        """Claimed messages came, and wait now."""
        with self._lock:
            queue.known, queue.asked = True, False
            queue.granted -= messages
            queue.position = max(queue.position, self._position) + messages * stride_of(queue.weight)
            kept = min(messages, queue.promised)
            queue.promised -= kept
            self._promised -= kept
            self._count_waiting(queue, waits=True)

    def end_promise(self, queue: ClaimCredit, *, wants: bool) -> None:
        """Release the slots that were promised to a queue, as its claim loop is idle.

        With `wants` it keeps its place in the turn order; without, its claims ask again once they know of messages.
        """
        with self._lock:
            self._drop_promise(queue)
            queue.refused = queue.refused and wants
            if queue.asked:
                queue.known = queue.asked = False
            offered = self._offered() if self._refused else ()
        _wake(offered)

    def _drop_promise(self, queue: ClaimCredit) -> None:
        self._promised -= queue.promised
        queue.promised = 0

    def _count_waiting(self, queue: ClaimCredit, *, waits: bool) -> None:
        """Count a queue among those that have something waiting, or not."""
        if waits != (queue in self._waiting):
            self._weight_of_waiting += queue.weight if waits else -queue.weight
            if waits:
                self._waiting.add(queue)
            else:
                self._waiting.remove(queue)

    def _offered(self) -> list[ClaimCredit]:
        """The queues that may claim now, as many as there are slots left; those at their limit keep their turn."""
        left = self._left() if self._refused and self._free else 0
        offered: list[ClaimCredit] = []
        kept: list[ClaimCredit] = []
        while self._refused and len(offered) < left:
            position, _, queue = heapq.heappop(self._refused)
            queue.listed = False
            if not queue.refused:
                continue  # it was granted something meanwhile, or has left
            if position < queue.position:
                self._list(queue)  # it has claimed meanwhile
            elif queue.places == 0:
                kept.append(queue)
            else:
                queue.refused = False
                self._position = position
                offered.append(queue)
        for queue in kept:
            self._list(queue)
        return offered


class ClaimCredit:
    """How many messages one queue may claim.

    `weight` decides the queue's part under load. The other fields belong to `FreeSlots`: whether the queue is `known`
    to have messages, whether it `asked` and nothing came yet, what was `granted` and `promised` to it, its `position`
    among the queues, and whether it was `refused`, so that it waits for its turn (`listed`).
    """

    __slots__ = (
        "_ask_at",
        "_claims_in",
        "_prefetch",
        "_shut",
        "_slots",
        "_unasked",
        "_wake",
        "asked",
        "granted",
        "known",
        "listed",
        "position",
        "promised",
        "ready",
        "refused",
        "weight",
    )

    def __init__(
        self,
        slots: FreeSlots,
        ready: ReadyDeliveries,
        prefetch: AdaptivePrefetch,
        *,
        weight: int,
        wake: Callable[[], None],
    ) -> None:
        """`wake` makes the claims of the queue read their credit again."""
        self.ready = ready
        self.weight = weight
        self.known = False
        self.asked = False
        self.granted = 0
        self.promised = 0
        self.position = 0
        self.refused = False
        self.listed = False
        self._slots = slots
        self._prefetch = prefetch
        self._wake = wake
        self._shut = False
        self._unasked = False
        self._ask_at = 0
        self._claims_in: int | None = None
        slots.enter()

    @property
    def places(self) -> int | None:
        """How many more of its messages may begin, if that has a limit."""
        return self.ready.places

    def ask(self) -> None:
        """Have the credit read again."""
        self._unasked = False
        self._wake()

    def credit(self) -> int:
        """How many messages may be claimed now. Whichever thread leads the claims of the queue calls this."""
        if self._shut:
            return 0
        self._prefetch.part = self._slots.part_of(self)
        self._prefetch.adapt()
        bound = self._prefetch.bound
        # Set before the waiting messages are counted: a slot that makes room after that sees them, and asks.
        self._ask_at = bound - max(1, bound // 2)
        self._unasked = True
        credit = self._slots.grant(self, bound, promise=self._claims_in in {None, threading.get_ident()})
        if credit:
            self._unasked = False
        return credit

    def taken(self) -> None:
        """A slot has taken a message: ask for more once half of what may wait is gone."""
        if self._unasked and len(self.ready) <= self._ask_at:
            self.ask()

    def arrived(self, messages: int) -> None:
        """Claimed messages came."""
        self._slots.arrived(self, messages)

    def end_promise(self, *, wants: bool = True) -> None:
        """Release the promised slots: the claim thread has nothing to do for this queue now.

        `wants`: there may be messages to claim. Only that thread calls this: while another thread of the process leads
        the claims, as in `receive`, no slot is promised to them.
        """
        self._claims_in = threading.get_ident()
        self._slots.end_promise(self, wants=wants)

    def shut(self) -> None:
        """Have no credit from now on. More calls do nothing."""
        if not self._shut:
            self._shut = True
            self._slots.leave(self)


def _wake(queues: list[ClaimCredit] | tuple[()]) -> None:
    for queue in queues:
        queue.ask()
