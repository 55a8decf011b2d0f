"""A dispatcher: a handler that runs in eight threads of this process, for every message of a queue."""

from __future__ import annotations

import hashlib
import threading

from astyqueue import Delivery, Dispatcher, MessageQueue, Reject

MESSAGES = 1_000


def main() -> None:
    """Hash a thousand texts, eight at a time, and stop when the queue is empty."""
    queue = MessageQueue.builder().store("memory://").name("texts").lease("30s").build()
    done = threading.Event()
    digests: dict[int, str] = {}

    def digest(delivery: Delivery) -> None:
        """Returning acks the message; an exception makes it due again later, and Reject makes it a dead letter."""
        match delivery.body:
            case {"number": int(number), "text": str(text)}:
                digests[number] = hashlib.sha256(text.encode()).hexdigest()
            case other:
                raise Reject(f"{other!r} has no text")
        if len(digests) == MESSAGES:
            done.set()

    with queue, Dispatcher.builder().queue(queue).handler(digest, threads=8).build():
        queue.send("this body has no number")
        queue.send_many({"number": number, "text": f"text {number}"} for number in range(MESSAGES))
        done.wait(timeout=60)
        # Leaving the block drains: no more messages are claimed, running handlers finish, every outcome is recorded.
    print(f"{len(digests)} digests, the first {digests[0][:12]}")


if __name__ == "__main__":
    main()
