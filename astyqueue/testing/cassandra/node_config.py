"""The configuration of a node: its settings, its logging, and the options of its Java."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from astyqueue.files import replace_file
from astyqueue.java import Java
from astyqueue.testing.cassandra.node import Beginning

_NODETOOL: Final = "org.apache.cassandra.tools.NodeTool"
_TOKENS: Final = 2**64
#: The JMX user, and the files with its password and its rights.
_MANAGER: Final = "nodetool"
_LOGIN: Final = "jmx.login"
_ACCESS: Final = "jmx.access"
_EXPORTED: Final = (
    "java.base/jdk.internal.misc",
    "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.management/com.sun.jmx.remote.security",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
_OPENED: Final = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
)
#: For a fast start and little memory: the serial collector and the first-tier compiler only.
_SMALL: Final = (
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
)
#: The waits that protect a real cluster take half a minute and are useless on one machine.
_HASTE: Final = {
    "skip_wait_for_gossip_to_settle": "0",
    "ring_delay_ms": "1000",
    "superuser_setup_delay_ms": "0",
    "shutdown_announce_in_ms": "0",
    "consistent.rangemovement": "false",
    "skip_sync": "true",  # the kernel keeps the writes of a killed process; only a crash of the machine loses them
    "available_processors": "2",
}
#: A node logs the range of another one at DEBUG only (`Node.sees` waits for it).
_LOGGING: Final = """\
<configuration>
  <logger name="org.apache.cassandra.service.StorageService" level="DEBUG"/>
  <appender name="CONSOLE" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level [%thread] %date{ISO8601,UTC} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="CONSOLE"/></root>
</configuration>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The common configuration of a cluster; `known` maps the address at which a node listens to its public one."""

    java: Java
    jars: Path
    addresses: Sequence[str]
    known: Mapping[str, str]
    port: int
    storage_port: int
    management_port: int
    heap: str
    java_options: Sequence[str]
    settings: Mapping[str, object]

    def configure(self, address: str, home: Path, *, beginning: Beginning) -> Sequence[str]:
        """Write the files of this node into its folder; the command that runs it.

        A node without data fetches its ranges from the others before it takes requests.
        """
        home.mkdir(parents=True, exist_ok=True)
        (home / "cassandra.yaml").write_text(json.dumps(self._settings(address, beginning), indent=2))  # JSON is YAML
        (home / "logback.xml").write_text(_LOGGING)
        replace_file(home / _LOGIN, f"{_MANAGER} {secrets.token_hex(16)}\n".encode())
        (home / _ACCESS).write_text(f"{_MANAGER} readwrite\n")
        return (
            *self._java(home),
            *self._managed_at(address, home),
            *_fetching(beginning, self.known[address]),
            *self._program(home),
        )

    def nodetool(self, address: str, home: Path, words: Sequence[str]) -> Sequence[str]:
        """The command that runs nodetool on this node, which must be running."""
        places = (
            f"-Duser.home={home}",
            f"-Dcassandra.storagedir={home}",
            f"-Dlogback.configurationFile={home / 'logback.xml'}",
        )
        reached = ("-h", address, "-p", str(self.management_port), "-u", _MANAGER, "-pwf", str(home / _LOGIN))
        return (
            str(self.java.program),
            "-Xmx128m",
            *_SMALL,
            *_opened(),
            *places,
            "-cp",
            f"{self.jars}/*",
            _NODETOOL,
            *reached,
            *words,
        )

    def _settings(self, address: str, beginning: Beginning) -> dict[str, object]:
        """The settings of one node; the caller's override the defaults."""
        node = self.addresses.index(address)
        fetches = beginning is not Beginning.WITH_ITS_DATA
        # All nodes are seeds, so that any may start first; but a seed would not fetch its data from the others.
        seeds = ",".join(self.known[seed] for seed in self.addresses if seed != address or not fetches)
        return {
            "cluster_name": "astyqueue",
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "num_tokens": 1,
            "initial_token": str(_TOKENS * node // len(self.addresses) - _TOKENS // 2),
            "auto_bootstrap": fetches,
            "endpoint_snitch": "SimpleSnitch",
            "seed_provider": [
                {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": [{"seeds": seeds}]}
            ],
            "listen_address": address,
            "rpc_address": address,
            "broadcast_address": self.known[address],
            "broadcast_rpc_address": self.known[address],
            "storage_port": self.storage_port,
            "native_transport_port": self.port,
            "paxos_variant": "v2",
            "dynamic_snitch": False,
            "auto_snapshot": False,
            "commitlog_sync": "batch",  # "periodic" would lose the last 100 ms of acknowledged writes at a kill
            "commitlog_segment_size": "8MiB",
            "commitlog_total_space": "256MiB",
            "memtable_heap_space": "64MiB",
            "memtable_offheap_space": "64MiB",
            "key_cache_size": "8MiB",
            "file_cache_size": "32MiB",
            **self.settings,
        }

    def _java(self, home: Path) -> Iterator[str]:
        yield from (str(self.java.program), f"-Xms{self.heap}", f"-Xmx{self.heap}", *_SMALL)
        yield from _opened()
        yield from (f"-javaagent:{agent}" for agent in self.jars.glob("jamm-*.jar"))
        yield from (
            "-Djdk.attach.allowAttachSelf=true",
            "-Dio.netty.tryReflectionSetAccessible=true",
            "-Dcassandra-foreground=yes",
        )
        yield from (f"-Dcassandra.{name}={value}" for name, value in _HASTE.items())
        yield f"-Dcassandra.config={(home / 'cassandra.yaml').as_uri()}"
        yield from (f"-Dcassandra.storagedir={home / 'data'}", f"-Dcassandra.logdir={home}")
        yield f"-Dlogback.configurationFile={home / 'logback.xml'}"
        yield from self.java_options

    def _managed_at(self, address: str, home: Path) -> Iterator[str]:
        """Java's JMX agent, because Cassandra's would listen on 127.0.0.1 whatever the address of the node.

        A user of the agent can run any code in the node, so it requires a password, which other users cannot read.
        """
        ports = {"port": self.management_port, "rmi.port": self.management_port}
        login = {
            "authenticate": "true",
            "password.file": home / _LOGIN,
            "password.toHashes": "false",
            "access.file": home / _ACCESS,
        }
        options = ports | {"host": address, "ssl": "false"} | login
        yield from (f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in options.items())
        yield f"-Djava.rmi.server.hostname={address}"

    def _program(self, home: Path) -> Sequence[str]:
        return "-cp", f"{home}:{self.jars}/*", "org.apache.cassandra.service.CassandraDaemon"


def _opened() -> Iterator[str]:
    """The packages of Java's internals that Cassandra uses."""
    yield from (f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTED)
    yield from (f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED)


def _fetching(beginning: Beginning, address: str) -> Iterator[str]:
    """The options of a node that fetches data: one with a lost disk replaces itself, until its data are complete once.

    It waits longer for the others (10 s, not 1 s): a node that has not received their schema in that time fetches
    nothing, or gives up.
    """
    if beginning is Beginning.REPLACING_ITSELF:
        yield f"-Dcassandra.replace_address_first_boot={address}"
    if beginning is not Beginning.WITH_ITS_DATA:
        yield "-Dcassandra.ring_delay_ms=10000"
