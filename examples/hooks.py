"""A hook: it refuses what should not be sent, and learns how each message ends."""

from __future__ import annotations

from astyqueue import BaseDelivery, Hook, Message, MessageId, Vetoed, connect


class Audit(Hook):
    """A check of what is sent, and a record of how it ended."""

    def before_send(self, message: Message) -> None:
        """Raising Vetoed refuses the message: it is not sent, and the caller of `send` gets the error."""
        if not isinstance(message.body, dict) or "to" not in message.body:
            problem = "an email needs an address"
            raise Vetoed(problem)

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        """Called once the outcome is in the store: it cannot be refused any more."""
        print(f"{outcome} at attempt {delivery.attempt}: {delivery.body}")

    def after_delete(self, message: MessageId, why: str) -> None:
        """Called for what ended without a delivery."""
        print(f"{why}: a message of {message.queue}")


def main() -> None:
    """Send, fail once, succeed, and clear what is left."""
    with connect("sqlite:///hooks.db", hooks=[Audit()]) as store:
        emails = store.queue("emails", backoff="0s")
        try:
            emails.send("hello")
        except Vetoed as refusal:
            print(f"refused: {refusal}")

        emails.send({"to": "ada@example.org"})
        emails.receive()[0].fail("the mail server is busy")
        emails.receive(wait="1s").ack()

        emails.send({"to": "grace@example.org"}, delay="1d")
        emails.clear()


if __name__ == "__main__":
    main()
