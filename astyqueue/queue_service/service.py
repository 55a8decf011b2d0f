"""The interface of a queue service, and the rules that every flavour of it applies before it does anything."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput
from astyqueue.model.validation import check_several
from astyqueue.units import SECOND

#: The visibility timeout of a queue that is created without one, in seconds; that of SQS too.
DEFAULT_VISIBILITY: Final = 30
#: The longest visibility timeout and the longest wait, in seconds, and the largest body, in bytes of UTF-8. They are
#: limits of SQS; it takes bodies of up to 1 MiB since 2025, in queues that are set up for that.
VISIBILITY_MOST: Final = 12 * 3_600
WAIT_MOST: Final = 20
BODY_MOST: Final = 256 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
#: What a body of SQS may not contain: control characters other than tab and the ends of lines, and two noncharacters.
_REFUSED: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class PulledMessage:
    """A message that one pull returned.

    `id` is the same at each pull, `receipt` another one. `receive_count` is the number of pulls that returned the
    message, this one included.
    """

    id: str
    body: str
    receipt: str
    receive_count: int


class QueueService(ABC):
    """Queues by name: push messages, pull them, and delete each one by the receipt of its last pull.

    A pulled message stays in its queue, hidden until its visibility timeout ends or `change_visibility` ends it. It is
    delivered at least once: until it is deleted, later pulls return it again.

    Invalid arguments raise BadInput, an unknown queue QueueDoesNotExist, and a store or server that cannot be reached
    StoreError. Durations are seconds, `timedelta`s or text like "10m", always of whole seconds. Safe to use from many
    threads; a process opens its own after a fork.
    """

    def create(self, name: str, visibility: Duration = DEFAULT_VISIBILITY) -> str:
        """Create a queue with this visibility timeout, from 0 seconds to 12 hours, and return its URL.

        If it exists with the same timeout, nothing changes; with another one, QueueNameExists is raised.
        """
        return self._create(check_name(name), whole_seconds(visibility, "visibility", VISIBILITY_MOST))

    def push(self, queue: str, body: str) -> str:
        """Append one message, visible at once; it is stored safely when this returns its id."""
        return self._push(check_name(queue), [check_body(body)])[0]

    def push_many(self, queue: str, bodies: Iterable[str]) -> list[str]:
        """Append messages in this order and return their ids.

        Not one transaction: an error that comes after a part says how many messages were pushed before it.
        """
        several = check_several(bodies, "push_many pushes several bodies", "give a list of them, or push one by push")
        checked = [check_body(body, f"body number {number}") for number, body in enumerate(several, 1)]
        return self._push(check_name(queue), checked)

    def pull(self, queue: str, *, wait: Duration = 0) -> PulledMessage | None:
        """The first visible message, hidden from now on; None if there is none until `wait`, 20 s at most, has passed.

        A message is visible again at the very moment at which its visibility timeout ends, before those pushed after
        it.
        """
        return self._pull(check_name(queue), whole_seconds(wait, "wait", WAIT_MOST))

    def delete(self, queue: str, receipt: str) -> None:
        """Delete the message of this receipt, also when its visibility timeout has ended.

        Nothing happens if the receipt is not that of the message's last pull, or if the message is gone already. A text
        that cannot be a receipt of this queue raises BadInput.
        """
        self._delete(check_name(queue), check_receipt(receipt))

    def change_visibility(self, queue: str, receipt: str, visibility: Duration) -> bool:
        """Hide the message of this receipt until `visibility` from now, which may be sooner or later than before.

        False, and nothing happens, if the message is not hidden by this receipt: its visibility timeout has ended, it
        is gone, or the receipt is not that of its last pull. Another consumer may have the message then, or get it.
        """
        seconds = whole_seconds(visibility, "visibility", VISIBILITY_MOST)
        return self._change_visibility(check_name(queue), check_receipt(receipt), seconds)

    def purge(self, queue: str) -> None:
        """Remove all messages of a queue, hidden ones too."""
        self._purge(check_name(queue))

    def delete_queue(self, queue: str) -> None:
        """Remove a queue and its messages."""
        self._delete_queue(check_name(queue))

    @abstractmethod
    def queues(self) -> list[str]:
        """The names of all queues, in alphabetical order."""

    @abstractmethod
    def close(self) -> None:
        """Give back connections and files; queues and messages stay, unless they are in memory."""

    def __enter__(self) -> Self:
        """Close on leaving the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Call `close`."""
        self.close()

    @abstractmethod
    def _create(self, name: str, visibility: int) -> str: ...

    @abstractmethod
    def _push(self, name: str, bodies: list[str]) -> list[str]: ...

    @abstractmethod
    def _pull(self, name: str, wait: int) -> PulledMessage | None: ...

    @abstractmethod
    def _delete(self, name: str, receipt: str) -> None: ...

    @abstractmethod
    def _change_visibility(self, name: str, receipt: str, visibility: int) -> bool: ...

    @abstractmethod
    def _purge(self, name: str) -> None: ...

    @abstractmethod
    def _delete_queue(self, name: str) -> None: ...


def check_name(name: object) -> str:
    """The name itself; BadInput unless SQS takes it as the name of a standard queue."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    message = f"{name!r:.120} is not a valid queue name: use 1 to 80 letters (A-Z, a-z), digits, '_' and '-'"
    raise BadInput(message)


def check_body(body: object, what: str = "body") -> str:
    """The body itself; BadInput, which calls it `what`, unless SQS takes it: text, not empty, of characters of XML.

    The error does not show the body: it may be a secret.
    """
    if not isinstance(body, str):
        message = f"{what} is of the type {type(body).__name__}: give text, for example JSON"
        raise BadInput(message)
    if not body:
        message = f"{what} is empty: SQS takes no empty body, so no flavour does"
        raise BadInput(message)
    if (refused := _REFUSED.search(body)) is not None:
        message = (
            f"{what} has {refused[0]!r} at position {refused.start()}: SQS takes no control characters but tab, line "
            "feed and carriage return, so no flavour does. Encode binary data, in base64 for example"
        )
        raise BadInput(message)
    if (size := len(body.encode())) > BODY_MOST:
        message = f"{what} is {size} bytes; the limit is {BODY_MOST}: store it elsewhere and push a reference to it"
        raise BadInput(message)
    return body


def check_receipt(receipt: object) -> str:
    """The receipt itself; BadInput unless it is text."""
    if isinstance(receipt, str) and receipt:
        return receipt
    raise not_a_receipt(receipt)


def how_far(pushed: int, total: int) -> str:
    """How many messages a push appended before an error, for that error; empty for none."""
    return f"The first {pushed} of {total} messages were pushed before that" if pushed else ""


def not_a_receipt(receipt: object) -> BadInput:
    """The error for what cannot be a receipt of the queue."""
    return BadInput(f"{receipt!r:.120} is not a receipt of this queue: give the `receipt` of a pulled message")


def whole_seconds(duration: Duration, what: str, most: int) -> int:
    """A duration in seconds; BadInput, which calls it `what`, unless it is whole and at most `most`."""
    seconds, rest = divmod(as_microseconds(duration), SECOND)
    if rest or seconds > most:
        message = f"{what} is {duration!r:.80}, and must be whole seconds from 0 to {most}"
        raise BadInput(message)
    return seconds
