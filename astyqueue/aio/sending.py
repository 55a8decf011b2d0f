"""Sends what an async generator yields, in chunks; a queue for threads has no such generators."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence

from astyqueue.queue.producing.producer import CHUNK, SendReport


async def send_as_they_come(
    items: AsyncIterable[object], send_many: Callable[[Sequence[object]], Awaitable[SendReport]]
) -> SendReport:
    """Send the items whenever 1000 have come, and the last of them when the generator ends; one report for all."""
    report, chunk = SendReport(), list[object]()
    async for item in items:
        chunk.append(item)
        if len(chunk) == CHUNK:
            report.extend(await send_many(chunk))
            chunk.clear()
    report.extend(await send_many(chunk))
    return report
