"""One request to the driver: when it is sent again, and which nodes are tried last after it.

It is written as steps, which a thread or a task of an event loop carries out: see `RequestSteps`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final, NamedTuple, TypeVar

from cassandra import OperationTimedOut, Timeout, Unavailable
from cassandra.cluster import ExecutionProfile, NoHostAvailable, ResponseFuture, ResultSet, Session
from cassandra.connection import ConnectionException
from cassandra.pool import Host
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage
from cassandra.query import Statement

from astyqueue.clock import SystemClock
from astyqueue.stores.cassandra.connection.cluster import SilentNodesLast
from astyqueue.stores.cassandra.connection.errors import RequestKind, may_be_decided
from astyqueue.stores.cassandra.requests.speculation import Speculation
from astyqueue.units import SECOND, MonotonicUs
from astyqueue.waiting import Wakeup

T = TypeVar("T")

REQUEST_SECONDS: Final = 2.0
#: The wait before a retry when the driver has no connection.
_RETRY: Final = SECOND // 50
REAL_TIME: Final = SystemClock()


class Pause(NamedTuple):
    """A wait until this moment."""

    until: MonotonicUs


#: Steps of a request to the store: they yield each answer of the driver and each pause that they wait for, and are
#: resumed once it is over. What they return, or raise, is the outcome of the request.
RequestSteps = Generator[ResponseFuture | Pause, None, T]


def carried_out(steps: RequestSteps[T]) -> T:
    """The outcome of the steps, carried out in this thread."""
    try:
        while True:
            awaited = next(steps)
            if isinstance(awaited, Pause):
                Wakeup(REAL_TIME).wait(awaited.until)
            # An answer needs no wait here: the steps go on with its `result`, which waits for it.
    except StopIteration as finished:
        outcome: T = finished.value
        return outcome


class Attempt:
    """A request in flight.

    The driver replaces a broken connection within a quarter of a second, and until then has no node to send to if no
    other is left. In that case it sent nothing, so every request may be retried, commits too. The same holds when a
    node knows too few live replicas: it did not begin, and if only that node is cut off, another one can. Only a commit
    may be decided then, and is not sent again: it would be refused, as if another had changed the row.
    """

    def __init__(
        self,
        session: Session,
        statement: Statement,
        profile: ExecutionProfile,
        *,
        kind: RequestKind,
        speculation: Speculation | None = None,
        paging_state: bytes | None = None,
    ) -> None:
        """Send it. A read is retried after a timeout or a lost connection, until `REQUEST_SECONDS` have passed.

        The driver does not do that: when a read was sent to a second node and the first one's connection breaks, it
        fails. `speculation` records the outcome. `paging_state` is that of the page before.
        """
        self._session = session
        self._statement = statement
        self._profile = profile
        self._kind = kind
        self._speculation = speculation
        self._paging_state = paging_state
        self._until = REAL_TIME.monotonic() + int(REQUEST_SECONDS * SECOND)
        self._unable: set[Host] = set()
        self._future = self._begun()

    def result(self) -> RequestSteps[ResultSet]:
        """The answer; NoHostAvailable if no node could be reached for `REQUEST_SECONDS`."""
        while True:
            yield self._future
            if (answer := self._answer()) is not None:
                return answer
            yield Pause(REAL_TIME.monotonic() + _RETRY)
            self._future = self._begun()

    def next_page(self, answer: ResultSet) -> Attempt | None:
        """The request for the page behind this one, sent; None if it was the last.

        It is a request of its own: the driver's future for the next page of a request has no timeout, and takes a late
        answer of a further node to the page before for its own.
        """
        if not answer.paging_state:
            return None
        return Attempt(
            self._session,
            self._statement,
            self._profile,
            kind=self._kind,
            speculation=self._speculation,
            paging_state=answer.paging_state,
        )

    def _answer(self) -> ResultSet | None:
        """The answer; None if the request may be sent again."""
        try:
            answer = self._future.result()
        except (OperationTimedOut, ConnectionException, Timeout) as error:
            if not isinstance(error, ConnectionException):
                self._demote()
            if self._is_over or self._kind is not RequestKind.READ:
                raise
        except NoHostAvailable:
            if self._is_over:
                raise
        except Unavailable as error:
            self._demote()
            may_be = self._kind is RequestKind.COMMIT and may_be_decided(error)
            if self._is_over or not self._is_news() or may_be:
                raise
        except (OverloadedErrorMessage, IsBootstrappingErrorMessage):
            self._demote()
            raise
        else:
            self._observe()
            return answer
        return None

    def _observe(self) -> None:
        """Record the time of an answer; a node that alone was too slow several times is tried last from now on."""
        asked = self._future.attempted_hosts
        if self._speculation is None or not asked:
            return
        took = REAL_TIME.monotonic() - self._began
        if self._speculation.answered(asked[0], took, in_time=len(set(asked)) == 1):
            self._ask_last([asked[0]])

    @property
    def _is_over(self) -> bool:
        return self._session.is_shutdown or REAL_TIME.monotonic() >= self._until

    def _is_news(self) -> bool:
        """Whether the only node tried reported this for the first time.

        Of several nodes, one may have applied the change.
        """
        asked = set(self._future.attempted_hosts)
        news = len(asked) == 1 and not asked <= self._unable
        self._unable |= asked
        return news

    @property
    def nodes(self) -> int:
        """The number of nodes that it was sent to."""
        return len(self._future.attempted_hosts)

    def _demote(self) -> None:
        """Have other nodes tried first from now on, unless the caller's session has its own load balancing.

        A node that reports a timeout of its replicas may itself be cut off: the other nodes may not need it.
        """
        answered = self._future.coordinator_host
        self._ask_last([answered] if answered else self._future.attempted_hosts)

    def _ask_last(self, nodes: Iterable[Host]) -> None:
        choosing = self._profile.load_balancing_policy
        if isinstance(choosing, SilentNodesLast):
            choosing.was_silent(nodes)

    def _begun(self) -> ResponseFuture:
        self._began = REAL_TIME.monotonic()
        if self._speculation is not None:
            self._speculation.asked()
        return self._session.execute_async(
            self._statement, execution_profile=self._profile, paging_state=self._paging_state
        )
