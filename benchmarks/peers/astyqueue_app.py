"""astyqueue: `astyqueue worker benchmarks.peers.astyqueue_app:app`, and a dispatcher without tasks beside it."""

from __future__ import annotations

from collections.abc import Callable

from astyqueue import App, Delivery, Dispatcher, MessageQueue
from benchmarks.peers import measurement

app = App(measurement.server_url())


@app.task(name="empty")
def empty(sent_us: int) -> None:
    """Do nothing but report."""
    measurement.done(sent_us)


def sender() -> Callable[[], None]:
    """Send one task."""

    def send() -> None:
        empty.send(measurement.CLOCK.now())

    return send


def serve_without_tasks() -> None:
    """Handle what `send_without_task` sends by a dispatcher with its defaults, until this process is terminated."""

    def handle(delivery: Delivery) -> None:
        measurement.done(int(str(delivery.body)))

    with MessageQueue.builder().store(measurement.server_url()).name("bare").build() as queue:
        Dispatcher.builder().queue(queue).handler(handle).build().run()


def sender_without_task() -> Callable[[], None]:
    """Send one message of no task."""
    queue = MessageQueue.builder().store(measurement.server_url()).name("bare").build()

    def send() -> None:
        queue.send(measurement.CLOCK.now())

    return send


if __name__ == "__main__":
    serve_without_tasks()
