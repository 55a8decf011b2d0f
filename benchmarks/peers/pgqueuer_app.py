"""PgQueuer on PostgreSQL: `pgq run benchmarks.peers.pgqueuer_app:main`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries

from benchmarks.peers import measurement


@asynccontextmanager
async def main() -> AsyncGenerator[PgQueuer, None]:
    """The worker."""
    connection = await asyncpg.connect(measurement.server_url())
    try:
        pgq = PgQueuer(AsyncpgDriver(connection))

        @pgq.entrypoint("empty")  # type: ignore[untyped-decorator]  # it is not installed here
        async def empty(job: Job) -> None:
            measurement.done(int(job.payload or b"0"))

        yield pgq
    finally:
        await connection.close()


def sender() -> Callable[[], None]:
    """Send one task."""
    loop = asyncio.new_event_loop()
    queries = Queries(AsyncpgDriver(loop.run_until_complete(asyncpg.connect(measurement.server_url()))))

    def send() -> None:
        loop.run_until_complete(queries.enqueue("empty", b"%d" % measurement.CLOCK.now()))

    return send
