"""One request to the driver, begun anew for a moment while no node has a connection to begin it on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cassandra import OperationTimedOut, Timeout, Unavailable
from cassandra.cluster import ExecutionProfile, NoHostAvailable, ResponseFuture, ResultSet, Session
from cassandra.connection import ConnectionException
from cassandra.pool import Host
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage
from cassandra.query import Statement

from astyqueue.clock import SECOND, SystemClock
from astyqueue.stores.cassandra.speculation import Speculation
from astyqueue.stores.cassandra.wary import Wary
from astyqueue.wakeup import Wakeup

REQUEST_SECONDS: Final = 2.0
#: How soon the driver is asked again whether it has a connection.
_GLANCE: Final = SECOND // 50
_WATCH: Final = SystemClock()


class Attempt:
    """A request under way.

    A connection that broke is replaced within a quarter of a second, and until then the driver has nowhere to send to
    when no other node is left. That says nothing was sent, so the same may be tried once more, commits as well. So it may
    after a node said that it knows too few others alive: it did not begin, and if it is only cut off, another can.
    """

    def __init__(
        self,
        session: Session,
        statement: Statement,
        profile: ExecutionProfile,
        *,
        reading: bool = False,
        speculation: Speculation | None = None,
    ) -> None:
        """Send it. One that only reads is asked once more whatever happened, while there is time.

        The driver does not do that: when a read was sent to a second node and the first one's connection breaks, it fails.
        `speculation` is told how it went.
        """
        self._session = session
        self._statement = statement
        self._profile = profile
        self._reading = reading
        self._speculation = speculation
        self._until = _WATCH.monotonic() + int(REQUEST_SECONDS * SECOND)
        self._unable: set[Host] = set()
        self._future = self._begun()

    def result(self) -> ResultSet:
        """The answer; when no node could be asked for as long as a request may take, NoHostAvailable."""
        while (answer := self._answer()) is None:
            Wakeup(_WATCH).wait(_WATCH.monotonic() + _GLANCE)
            self._future = self._begun()
        return answer

    def _answer(self) -> ResultSet | None:
        """None when nothing was begun, and it may be anew."""
        try:
            answer = self._future.result()
        except (OperationTimedOut, ConnectionException, Timeout) as error:
            if not isinstance(error, ConnectionException):
                self._be_wary()
            if self._is_over or not self._reading:
                raise
        except NoHostAvailable:
            if self._is_over:
                raise
        except Unavailable:
            self._be_wary()
            if self._is_over or not self._is_news():
                raise
        except (OverloadedErrorMessage, IsBootstrappingErrorMessage):
            self._be_wary()
            raise
        else:
            self._observe()
            return answer
        return None

    def _observe(self) -> None:
        """Learn from an answer, and ask a node last that alone was too slow for several requests."""
        asked = self._future.attempted_hosts
        if self._speculation is None or not asked:
            return
        took = _WATCH.monotonic() - self._began
        if self._speculation.answered(asked[0], took, in_time=len(set(asked)) == 1):
            self._ask_last([asked[0]])

    @property
    def _is_over(self) -> bool:
        return self._session.is_shutdown or _WATCH.monotonic() >= self._until

    def _is_news(self) -> bool:
        """Whether the one node that was asked had not said yet that it cannot; of several, one may have done it."""
        asked = set(self._future.attempted_hosts)
        news = len(asked) == 1 and not asked <= self._unable
        self._unable |= asked
        return news

    @property
    def nodes(self) -> int:
        """How many nodes it was sent to."""
        return len(self._future.attempted_hosts)

    def _be_wary(self) -> None:
        """Have others asked first from now on, if the session is one of ours; another's chooses as it likes.

        A node that answers only that it waited for others in vain may be the one that is cut off: the others may not need it.
        """
        answered = self._future.coordinator_host
        self._ask_last([answered] if answered else self._future.attempted_hosts)

    def _ask_last(self, nodes: Iterable[Host]) -> None:
        choosing = self._profile.load_balancing_policy
        if isinstance(choosing, Wary):
            choosing.was_silent(nodes)

    def _begun(self) -> ResponseFuture:
        self._began = _WATCH.monotonic()
        if self._speculation is not None:
            self._speculation.asked()
        return self._session.execute_async(self._statement, execution_profile=self._profile)
