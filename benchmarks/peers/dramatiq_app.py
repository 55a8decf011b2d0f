"""Dramatiq on Redis: `dramatiq benchmarks.peers.dramatiq_app`."""

from __future__ import annotations

from collections.abc import Callable

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers import report

dramatiq.set_broker(RedisBroker(url=report.server_url()))


@dramatiq.actor  # type: ignore[untyped-decorator]  # it is not installed here
def empty(sent_us: int) -> None:
    """Do nothing but report."""
    report.done(sent_us)


def sender() -> Callable[[], None]:
    """Send one task."""

    def send() -> None:
        empty.send(report.CLOCK.now())

    return send
