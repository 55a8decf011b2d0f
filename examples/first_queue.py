"""Send and receive: a queue in one file, with a message that fails and becomes a dead letter."""

from __future__ import annotations

from astyqueue import MessageQueue, Received, connect


def main() -> None:
    """Send three messages, and receive until nothing is left."""
    with connect("sqlite:///first_queue.db") as store:
        emails = store.queue("emails", lease="1m", max_attempts=2, backoff="0s")
        emails.send({"to": "ada@example.org", "subject": "Welcome"})
        emails.send({"to": "nobody", "subject": "Welcome"}, key="welcome:nobody")
        emails.send({"to": "grace@example.org", "subject": "See you tomorrow"}, delay="1d")

        work_off(emails)

        print(f"waiting for tomorrow: {emails.counts().delayed}")
        for letter in emails.dead_letters():
            print(f"dead letter {letter.key} after {letter.attempts} attempts: {letter.reason}")
        emails.clear()  # so that another run begins with an empty queue


def work_off(emails: MessageQueue) -> None:
    """Receive one message at a time until none is due."""
    batch = emails.receive()
    while batch:
        try:
            handle(batch)
        except ValueError as error:
            print(f"failed: {error}")
        batch = emails.receive()


def handle(batch: Received) -> None:
    """Leaving the block acks the messages; an error gives them back, or makes dead letters after the last attempt."""
    with batch:
        for delivery in batch:
            deliver(delivery.body)


def deliver(email: object) -> None:
    """Pretend to deliver an e-mail."""
    match email:
        case {"to": str(address), "subject": subject} if "@" in address:
            print(f"delivered {subject!r} to {address}")
        case {"to": address}:
            message = f"{address!r} is not an address"
            raise ValueError(message)


if __name__ == "__main__":
    main()
