"""Which node to ask: near ones that hold the row first, and those that were silent a moment ago last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from cassandra.cluster import Cluster
from cassandra.policies import LoadBalancingPolicy
from cassandra.pool import Host
from cassandra.query import Statement

from astyqueue.clock import SECOND, Clock

#: A node that has not answered is asked last for so long; by then its connections were tried by heartbeats, and it counts as down.
_WARY: Final = 10 * SECOND


class Wary(LoadBalancingPolicy):  # type: ignore[misc] # the driver has no types
    """Another policy's choice, in which nodes that let a request time out come last for a while.

    A node that freezes keeps its connections. Until heartbeats find that out, the driver would send it every third request
    of a ring of three, and each that may not be asked twice would wait for its whole time.
    """

    def __init__(self, child: LoadBalancingPolicy, clock: Clock) -> None:
        """Nobody was silent yet."""
        super().__init__()
        self._child = child
        self._clock = clock
        self._silent: dict[Host, int] = {}

    def was_silent(self, hosts: Iterable[Host]) -> None:
        """Ask these last for a while."""
        self._silent = self._silent | dict.fromkeys(hosts, self._clock.monotonic() + _WARY)  # plans are made meanwhile

    def make_query_plan(self, working_keyspace: str | None = None, query: Statement | None = None) -> Iterator[Host]:
        """The nodes in the order in which to ask them."""
        plan = self._child.make_query_plan(working_keyspace, query)
        known = self._silent
        if not known:
            yield from plan
            return
        now = self._clock.monotonic()
        silent = {host for host, until in known.items() if until > now}
        if not silent:
            self._silent = {}
        yield from sorted(plan, key=silent.__contains__)

    def populate(self, cluster: Cluster, hosts: list[Host]) -> None:
        """As the other policy does."""
        self._child.populate(cluster, hosts)

    def distance(self, host: Host) -> int:
        """As the other policy says."""
        distance: int = self._child.distance(host)
        return distance

    def check_supported(self) -> None:
        """As the other policy does."""
        self._child.check_supported()

    def on_up(self, host: Host) -> None:
        """A node is there again."""
        self._child.on_up(host)

    def on_down(self, host: Host) -> None:
        """A node went away."""
        self._child.on_down(host)

    def on_add(self, host: Host) -> None:
        """A node is new."""
        self._child.on_add(host)

    def on_remove(self, host: Host) -> None:
        """A node left for good."""
        self._child.on_remove(host)
