"""The runbooks of docs/how-to/production.md do what they say, on a real ring of three nodes.

Clients are on wherever they may be.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self, TypeVar

import pytest
from cassandra.cluster import Session

from astyqueue import Delivery, MessageQueue
from astyqueue.clock import SystemClock, instant
from astyqueue.durations import as_microseconds
from astyqueue.errors import AstyqueueError, StoreError
from astyqueue.model.envelope import MessageId
from astyqueue.model.message import Message
from astyqueue.queue.connection import connect
from astyqueue.stores.admin import administer
from astyqueue.stores.cassandra.schema.check import GC_GRACE, LEAST_GC_GRACE
from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra import CannotRunHere, NodeNotReady
from astyqueue.testing.cassandra.fixtures import lacking
from astyqueue.units import SECOND
from tests.cassandra.runbooks import STORAGE, ByHand, Operator, section
from tests.cassandra.test_store_ring import told
from tests.unit.test_docs import DOCS, table_below

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

CLOCK = SystemClock()
Answer = TypeVar("Answer")
ALL = (1, 2, 3)
PATIENCE = 120 * SECOND
EVERY_NODE = {"on every node": ALL, "on one node": (1,)}
STARTS = "sudo systemctl start cassandra"
#: What an operator does to replace a node, and what that is here. The local ring adds the option by itself.
REPLACEMENT = [
    "sudo systemctl stop cassandra",
    f"sudo rm -rf {STORAGE}/*",
    "echo '-Dcassandra.replace_address_first_boot=10.0.0.3' | sudo tee -a /etc/cassandra/jvm-server.options",
    STARTS,
]
#: What the page has operators add to cassandra.yaml.
CHECKS: Mapping[str, object] = {
    "startup_checks": {"check_data_resurrection": {"enabled": True, "excluded_tables": "jobs.history"}}
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the nodes keep their data."""
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture(scope="module")
def nodes(folder: Path, pytestconfig: pytest.Config) -> Iterator[LocalCassandra]:
    """Three nodes that are as careful as those of an operator when ranges move."""
    with ExitStack() as held:
        try:
            careful = ["-Dcassandra.consistent.rangemovement=true"]
            ring = held.enter_context(LocalCassandra(3, settings=CHECKS, java_options=careful, directory=folder))
        except CannotRunHere as error:
            lacking(pytestconfig, str(error))
        yield ring


@pytest.fixture
def keyspace() -> str:
    return f"runbook_{secrets.token_hex(3)}"


@pytest.fixture
def operator(nodes: LocalCassandra, folder: Path, keyspace: str) -> Iterator[Operator]:
    """Three nodes that run, and a keyspace of the test's own, which the test makes."""
    addresses = nodes.contact_points
    stands_for = {
        "h1,h2,h3": ",".join(addresses),
        "dc1": "datacenter1",
        **{f"10.0.0.{node}": addresses[node - 1] for node in ALL},
    }
    yield Operator(nodes, keyspace, folder, stands_for)
    nodes.restart(*nodes.down)
    with told(nodes, 1) as session:
        for name in (keyspace, f"{keyspace}_restored"):
            session.execute(f'DROP KEYSPACE IF EXISTS "{name}"', timeout=60)


def made(operator: Operator, copies: int) -> str:
    """The URL of the keyspace, with `copies` copies of everything."""
    url = operator.ring.url(operator.keyspace)
    with administer(url, clock=CLOCK, replication=f"datacenter1:{copies}") as administration:
        administration.migrate()
    return url


@contextmanager
def emails(url: str) -> Iterator[MessageQueue]:
    with connect(url) as store:
        yield store.queue("emails", lease="10s", concurrency_shards=2)


def drained(queue: MessageQueue, wanted: AbstractSet[str]) -> list[str]:
    """What is handed out and acked until all that is wanted has come, and nothing more comes for a while."""
    got: list[str] = []
    end = CLOCK.monotonic() + PATIENCE
    while wanted - set(got) and CLOCK.monotonic() < end:
        got += taken(queue, "1s")
    return got + taken(queue, "3s")


def taken(queue: MessageQueue, wait: str) -> list[str]:
    """What is handed out, and acked as far as the store answers; it may not for seconds after a node was killed."""
    got: list[str] = []
    with suppress(StoreError), queue.receive(100, wait=wait) as batch:
        got += [str(delivery.body) for delivery in batch]
    return got


def sent(queue: MessageQueue, *bodies: str | Message) -> None:
    """Send until the store confirms all; messages of unknown outcome may be there twice."""
    insisted(lambda: queue.send_many(bodies))


def insisted(ask: Callable[[], Answer]) -> Answer:
    """The answer of a store of which a node was just killed: the driver notices that within seconds."""
    end = CLOCK.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except StoreError:
            if CLOCK.monotonic() >= end:
                raise


def numbered(word: str) -> list[str]:
    return [f"{word} {number}" for number in range(20)]


class Clients:
    """A process that sends and handles messages while a runbook is carried out, whatever errors it meets.

    `sent` and `acked` hold what the store confirmed. A message that was `handed` out and whose ack raised may be done
    or come again.
    """

    def __init__(self, url: str) -> None:
        self.sent: dict[str, MessageId] = {}
        self.handed: set[str] = set()
        self.acked: set[str] = set()
        self.again: list[str] = []
        self.errors: list[str] = []
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        with emails(self._url) as queue:
            while not self._over.is_set():
                self._try(lambda: self._send(queue))
                self._try(lambda: self._handle(queue))

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except AstyqueueError as error:
            self.errors.append(str(error))

    def _send(self, queue: MessageQueue) -> None:
        body = f"message {secrets.token_hex(6)}"
        self.sent[body] = queue.send(body).id

    def _handle(self, queue: MessageQueue) -> None:
        for delivery in queue.receive(10, wait="200ms"):
            body = str(delivery.body)
            if body in self.acked:
                self.again.append(body)
            self.handed.add(body)
            delivery.ack()
            self.acked.add(body)

    def lost_or_doubled(self) -> list[str]:
        """With the clients off: what was sent and is never handed out, and what came after its ack."""
        assert len(self.acked) > 0, self.errors
        with emails(self._url) as queue:
            rest = drained(queue, self.sent.keys() - self.handed)
            lost = [str(queue.explain(self.sent[body])) for body in self.sent.keys() - self.handed - set(rest)]
        return [
            *lost,
            *(f"acked before: {body}" for body in [*self.again, *(body for body in rest if body in self.acked)]),
        ]


def in_sync(operator: Operator) -> bool:
    """Whether all copies are the same, as the page has one find out."""
    operator.follow("## Runbooks", EVERY_NODE)
    return "Previewed data was in sync" in operator.said["nodetool repair --preview --full jobs"]


def away(ring: LocalCassandra, node: int, action: Callable[[], None]) -> None:
    """Do something while a node is down, of which it gets no hints.

    The others write none meanwhile, for hints in memory cannot be truncated.
    """
    others = sorted(set(ALL) - {node})
    for other in others:
        ring.nodetool(other, "disablehandoff")
    ring.kill(node)
    action()
    ring.restart(node)
    for other in others:
        ring.nodetool(other, "enablehandoff")


def back_with_hints(operator: Operator, queue: MessageQueue) -> None:
    """Have the third node miss what is sent and acked, and get all of it by hints."""
    operator.ring.kill(3)
    sent(queue, *numbered("meanwhile"))
    assert set(drained(queue, {"meanwhile 7"})) <= set(numbered("meanwhile"))
    sent(queue, *numbered("left"))
    operator.ring.restart(3)
    delivered: set[int] = set()
    end = CLOCK.monotonic() + PATIENCE
    while delivered != {1, 2} and CLOCK.monotonic() < end:
        for node in {1, 2} - delivered:
            operator.follow("### Away for less than the hints last", {"on every other node": (node,)})
            if "does not have hints" in operator.said["nodetool listpendinghints"]:
                delivered.add(node)


def test_a_node_that_was_away_for_less_than_hints_last_has_everything_once_they_are_drained(operator: Operator) -> None:
    with emails(made(operator, 3)) as queue:
        back_with_hints(operator, queue)
    assert in_sync(operator)


def test_a_node_that_was_away_for_longer_than_hints_last_has_everything_after_its_runbook(operator: Operator) -> None:
    with emails(made(operator, 3)) as queue:
        sent(queue, *numbered("before"))

        def work() -> None:
            assert set(drained(queue, set(numbered("before")))) == set(numbered("before"))
            sent(queue, *numbered("meanwhile"))

        away(operator.ring, 3, work)
    assert not in_sync(operator)
    operator.follow("### Away for longer than the hints last", {"on the node": (3,)})
    assert in_sync(operator)


def test_a_node_with_a_new_disk_replaces_itself_while_clients_are_off(operator: Operator) -> None:
    """The message is on nodes 2 and 3 only: without the disk of 3 and before a repair, two of three nodes lack it."""
    url = made(operator, 3)
    with emails(url) as queue:
        sent(queue, *numbered("before"))
        away(operator.ring, 1, lambda: sent(queue, "on two nodes"))
    stop, wipe, option, start = REPLACEMENT
    began = len(operator.ring.log(3))
    by_hand: ByHand = {
        stop: operator.ring.kill,
        wipe: operator.ring.wipe,
        option: lambda _: None,
        start: operator.ring.restart,
    }
    operator.follow("### A lost disk", {**EVERY_NODE, "on the node": (3,)}, by_hand)
    assert f"-Dcassandra.replace_address_first_boot={operator.ring.contact_points[2]}" in operator.ring.log(3)[began:]
    assert in_sync(operator)
    wanted = {"on two nodes", *numbered("before")}
    with emails(url) as queue:
        assert set(drained(queue, wanted)) == wanted


def test_a_node_with_a_new_disk_replaces_itself_with_clients_on_once_the_others_agree(operator: Operator) -> None:
    url = made(operator, 3)
    with emails(url) as queue:
        away(operator.ring, 1, lambda: sent_later(queue, "on two nodes"))
    with Clients(url) as clients:
        operator.ring.wipe(3)
        operator.follow("#### With clients on", {"on one of the nodes that are left": (1,)})
        operator.ring.restart(3)
    assert clients.lost_or_doubled() == []
    operator.ring.kill(2)  # of those that had the message at first, none is left now
    with emails(url) as queue:
        assert {seen.body for seen in insisted(lambda: queue.peek(100, include="future"))} == {"on two nodes"}


def sent_later(queue: MessageQueue, body: str) -> None:
    """As `sent`, due in an hour."""
    sent(queue, Message(body, delay="1h"))


def test_copies_are_made_more_one_at_a_time_with_clients_on(operator: Operator) -> None:
    url = made(operator, 1)
    with Clients(url) as clients:
        operator.follow("### More copies, or fewer", EVERY_NODE)
    assert "3 of each row, on 3 nodes" in operator.said["astyqueue doctor"]
    assert clients.lost_or_doubled() == []
    operator.follow("## Deletes, repair and the lap", EVERY_NODE)
    assert in_sync(operator)
    with emails(url) as queue:
        sent(queue, *numbered("before"))
        operator.ring.kill(1)
        assert set(drained(queue, set(numbered("before")))) == set(numbered("before"))


def test_a_node_leaves_and_joins_under_paxos_v2_with_clients_on(operator: Operator) -> None:
    with told(operator.ring, 1) as session:  # three copies need three nodes, of Cassandra's own keyspaces too
        two = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 2}"
        for name in ("system_distributed", "system_traces"):
            session.execute(f"ALTER KEYSPACE {name} WITH replication = {two}", timeout=60)
    url = made(operator, 2)
    places = {
        "on the node that leaves": (3,),
        "on the node that joins": (3,),
        "on every node that was there before": (1, 2),
    }
    with Clients(url) as clients:
        by_hand: ByHand = {"nodetool decommission": operator.ring.retire, STARTS: operator.ring.restart}
        operator.follow("### Nodes that join and leave", places, by_hand)
    assert operator.ring.nodetool(1, "status").count("UN ") == 3
    assert clients.lost_or_doubled() == []


def test_what_is_restored_is_what_the_snapshot_had(operator: Operator) -> None:
    """What was acked since is handed out again, what was sent since is lost, and nothing else."""
    url = made(operator, 3)
    with emails(url) as queue:
        queue.send("acked before")
        assert drained(queue, {"acked before"}) == ["acked before"]
        queue.send("dead")
        for delivery in queue.receive(10, wait="30s"):
            delivery.reject("bad")
        queue.send_many(["acked since", "waiting"])
        queue.send("delayed", delay="1h")
    operator.follow("### Snapshots", EVERY_NODE)
    with emails(url) as queue:
        while "acked since" not in [acked_or_released(delivery) for delivery in queue.receive(1, wait="30s")]:
            pass
        queue.send("sent since")
    operator.follow("### A restore of snapshots", EVERY_NODE)
    with emails(operator.environment["ASTYQUEUE_URL"]) as queue:
        assert sorted(drained(queue, {"acked since", "waiting"})) == ["acked since", "waiting"]
        assert [seen.body for seen in queue.peek(100, include="all")] == ["delayed"]
        assert [letter.reason for letter in queue.dead_letters()] == ["bad"]
    with emails(url) as queue:
        assert sorted(drained(queue, {"sent since", "waiting"})) == ["sent since", "waiting"]


def acked_or_released(delivery: Delivery) -> object:
    """Ack one message, and give any other back."""
    if delivery.body == "acked since":
        delivery.ack()
    else:
        delivery.release()
    return delivery.body


@pytest.mark.parametrize("keyspace", ["jobs"])
def test_a_node_that_was_away_for_longer_than_gc_grace_does_not_start_until_it_is_wiped(operator: Operator) -> None:
    """It starts for as long as the tombstones of messages are kept.

    Those of the history, which are kept for less, do not count.
    """
    assert written(CHECKS) in section("## Deletes, repair and the lap")
    made(operator, 3)
    ring = operator.ring
    ring.kill(3)
    was_alive(operator, hours=5)
    ring.restart(3)
    ring.kill(3)
    was_alive(operator, hours=25)
    with pytest.raises(NodeNotReady, match=r"Cassandra node will not start(?s:.)*jobs\.entries"):
        ring.restart(3)
    ring.wipe(3)
    ring.restart(3)


def was_alive(operator: Operator, *, hours: int) -> None:
    """Have the third node say that it was last alive `hours` hours ago."""
    then = instant(CLOCK.now() - hours * 3600 * SECOND)
    beat = operator.folder / "node3/data/data/cassandra-heartbeat"
    assert beat.exists()
    beat.write_text(json.dumps({"last_heartbeat": then.isoformat().replace("+00:00", "Z")}))


def written(settings: Mapping[str, object], indent: str = "") -> str:
    """As cassandra.yaml has it."""
    lines = [
        f"{indent}{name}:\n{written(value, indent + '  ')}"
        if isinstance(value, dict)
        else f"{indent}{name}: {json.dumps(value).strip(chr(34))}\n"
        for name, value in settings.items()
    ]
    return "".join(lines)


def test_what_is_to_be_watched_is_there(operator: Operator) -> None:
    with emails(made(operator, 3)) as queue:
        back_with_hints(operator, queue)  # a node that has delivered none yet has no figures of hints
    operator.follow("## What to watch", {"on every node": (1,)})
    told_of = re.findall(r"^\| `(type=[^`]+)`", section("## What to watch"), re.MULTILINE)
    there = operator.ring.nodetool(1, "sjk", "mxdump", "-q", "org.apache.cassandra.metrics:*")
    names = [name.replace("keyspace=jobs", f"keyspace={operator.keyspace}") for name in told_of]
    assert len(names) > 0
    assert [name for name in names if f'"org.apache.cassandra.metrics:{name}"' not in there] == []


def test_the_page_tells_the_defaults_of_hints_and_the_window_is_shorter_than_gc_grace(session: Session) -> None:
    told = {cells[0]: cells[1] for cells in table_below(DOCS / "how-to/production.md", "| hints |")}
    found = {f"`{row.name}`": row.value for row in session.execute("SELECT name, value FROM system_views.settings")}
    assert {name: cell.split("`")[1] for name, cell in told.items()} == {name: found[name] for name in told}
    assert as_microseconds(found["`max_hint_window`"]) < LEAST_GC_GRACE * SECOND < GC_GRACE * SECOND
