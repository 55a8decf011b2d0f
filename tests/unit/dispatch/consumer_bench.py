"""Where consumers of a manager are tried: in one thread, with time that the test moves."""

from __future__ import annotations

from astyqueue.dispatch.consumers.consumer_manager import ConsumerManager
from astyqueue.dispatch.consumers.consumer_states import Consumer
from astyqueue.dispatch.consumers.credit import Credit
from astyqueue.dispatch.consumers.ready_buffer import ALL, Ready, Selector

ONLY_A = Selector(frozenset({"a"}))


class Bench:
    """A manager whose time the test moves, and the names of the consumers it woke."""

    def __init__(self, **options: int) -> None:
        self.time = 0
        self.woken: list[str] = []
        self.expired: list[object] = []
        self.manager: ConsumerManager[object] = ConsumerManager(
            lambda: self.time, on_expired=lambda late: self.expired.extend(one.message for one in late), **options
        )

    def consumer(
        self,
        name: str = "c",
        *,
        credit: Credit | None = None,
        priority: int = 0,
        selector: Selector = ALL,
        browser: bool = False,
    ) -> Consumer[object]:
        """A consumer that sleeps, or is woken at once for what waits."""
        consumer: Consumer[object] = Consumer(
            lambda: self.woken.append(name), credit=credit, priority=priority, selector=selector, browser=browser
        )
        self.manager.add_consumer(consumer)
        self.manager.refresh(consumer)
        return consumer

    def put(self, *messages: object, task: str | None = None, size: int = 0) -> list[Ready[object]]:
        ready = [Ready(message, task=task, size=size) for message in messages]
        self.manager.put(ready)
        return ready

    def pull(self, consumer: Consumer[object]) -> object:
        ready = self.manager.pull(consumer)
        return None if ready is None else ready.message

    def all(self, consumer: Consumer[object]) -> list[object]:
        """All that a consumer gets until it misses."""
        return list(iter(lambda: self.pull(consumer), None))
