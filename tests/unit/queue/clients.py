"""A process that receives from one row, and can be stopped before any request it makes."""

from __future__ import annotations

from collections.abc import Callable

from astyqueue.clock import Clock
from astyqueue.model.message import Message
from astyqueue.model.settings import Layout, Settings
from astyqueue.protocol.layout.columns import HEADER
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.steps import Commit, Request, Steps, perform, run
from astyqueue.queue.delivery.base_delivery import BaseDelivery, new_deliveries
from astyqueue.queue.options import DEFAULT_OPTIONS, ClientOptions
from astyqueue.queue.runtime import QueueRuntime, ReceiveRequest
from astyqueue.store import Store
from astyqueue.waiting import Rest


def claims(request: Request) -> bool:
    """Whether a request is the commit of a claim."""
    return isinstance(request, Commit) and any(expected.name == HEADER for expected in request.expects)


class Party:
    """It takes up to ten messages at a time, and does not wait for any."""

    def __init__(
        self, store: Store, clock: Clock, client_options: ClientOptions = DEFAULT_OPTIONS, layout: Layout | None = None
    ) -> None:
        self.core = QueueRuntime(
            Settings(name="mail", layout=layout or Layout()), clock, (), client_options=client_options
        )
        self.requests: list[Request] = []
        self._store = store
        self._taking: ReceiveRequest | None = None
        self._steps: Steps[list[BaseDelivery]] | None = None
        self._pending: Request | None = None

    def send(self, count: int = 1, **options: object) -> None:
        run(self.core.send_many([None] * count, Message(None, **options)), self._store)  # type: ignore[arg-type]  # a message's options

    def stop_before(self, stops: Callable[[Request], bool] = claims) -> None:
        """Begin to take, and stop before a request such as this."""
        self._taking = ReceiveRequest(10, 0, new_deliveries)
        self._steps, self._pending = self.core.take(self._taking), None
        assert not self._go_on(stops), "it ended before"

    def go_on(self) -> list[BaseDelivery]:
        """Go on from there to the end; what it got."""
        assert self._taking is not None
        assert self._go_on(lambda _: False)
        return self._taking.taken

    def take(self) -> list[BaseDelivery]:
        self._taking = ReceiveRequest(10, 0, new_deliveries)
        self._steps, self._pending = self.core.take(self._taking), None
        return self.go_on()

    def is_current(self, delivery: BaseDelivery) -> bool:
        """Whether it may ack; that is done then."""
        return not run(self.core.claimer.settle([(delivery, ACK)]), self._store)

    def _go_on(self, stops: Callable[[Request], bool]) -> bool:
        """Whether it came to its end."""
        assert self._steps is not None
        try:
            request = self._pending or next(self._steps)
            while not (stops(request) and request is not self._pending):
                request = self._steps.send(self._done(request))
        except StopIteration:
            return True
        self._pending = request
        return False

    def _done(self, request: Request) -> object:
        if not isinstance(request, Rest):
            self.requests.append(request)
        return perform(request, self._store)
