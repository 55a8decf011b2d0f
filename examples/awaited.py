"""A queue in asyncio: a producer and two consumers as tasks of one event loop."""

from __future__ import annotations

import asyncio

from astyqueue import aio

MESSAGES = 20


async def main() -> None:
    """Send twenty numbers, and let two consumers add up their squares."""
    async with await aio.connect("memory://") as store:
        numbers = await store.queue("numbers", lease="30s")
        async with asyncio.TaskGroup() as group:
            group.create_task(produce(numbers))
            consumers = [group.create_task(consume(numbers)) for _ in range(2)]
        squares = [square for consumer in consumers for square in consumer.result()]
        print(f"{len(squares)} squares, {sum(squares)} together, {(await numbers.counts()).total} left")


async def produce(numbers: aio.MessageQueue) -> None:
    """Send the numbers, five at a time."""
    for first in range(0, MESSAGES, 5):
        report = await numbers.send_many(range(first, first + 5))
        print(f"sent {report.sent}")


async def consume(numbers: aio.MessageQueue) -> list[int]:
    """Receive batches until none comes for a second; leaving the block acks a batch as a whole."""
    squares: list[int] = []
    while True:
        async with await numbers.receive(limit=3, wait="1s") as batch:
            squares += [delivery.body**2 for delivery in batch if isinstance(delivery.body, int)]
        if not batch:
            return squares


if __name__ == "__main__":
    asyncio.run(main())
