"""Dramatiq on Redis: `dramatiq benchmarks.peers.dramatiq_app`."""

from __future__ import annotations

from collections.abc import Callable

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers import measurement

dramatiq.set_broker(RedisBroker(url=measurement.server_url()))


@dramatiq.actor  # type: ignore[untyped-decorator]  # it is not installed here
def empty(sent_us: int) -> None:
    """Do nothing but report."""
    measurement.done(sent_us)


def sender() -> Callable[[], None]:
    """Send one task."""

    def send() -> None:
        empty.send(measurement.CLOCK.now())

    return send
