"""Huey, on Redis or on SQLite as the URL says: `huey_consumer benchmarks.peers.huey_app.huey`."""

from __future__ import annotations

from collections.abc import Callable

from huey import RedisHuey, SqliteHuey

from benchmarks.peers import measurement

_url = measurement.server_url()
huey = RedisHuey("peers", url=_url) if _url.startswith("redis:") else SqliteHuey("peers", filename=_url)


@huey.task()  # type: ignore[untyped-decorator]  # it is not installed here
def empty(sent_us: int) -> None:
    """Do nothing but report."""
    measurement.done(sent_us)


def sender() -> Callable[[], None]:
    """Send one task."""

    def send() -> None:
        empty(measurement.CLOCK.now())

    return send
