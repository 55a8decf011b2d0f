"""One node: a process, its data and its log."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Final, Protocol

from astyqueue.testing.cassandra.child_process import Keeper
from astyqueue.testing.cassandra.errors import NodeNotReady, NodetoolFailed

_STARTED: Final = "Startup complete"
_SEEN: Final = re.compile(r"InetAddress /(?P<address>[\d.]+):\d+ is now (?P<state>UP|DOWN)$", re.MULTILINE)
#: Until a node logs this of another one, that one is up but owns no range: requests would have one replica less.
_SHARES: Final = re.compile(r"Node /(?P<address>[\d.]+):\d+ state NORMAL, token")
_TOLD: Final = 30


class Beginning(Enum):
    """The state in which a node starts: it decides whether the node first fetches data, and as which node."""

    WITH_ITS_DATA = auto()
    REPLACING_ITSELF = auto()  # its disk was lost, and it still owns its ranges
    JOINING = auto()  # it was decommissioned, and owns none


class Configure(Protocol):
    """Writes the files of a node."""

    def __call__(self, *, beginning: Beginning) -> Sequence[str]:
        """Write the files; the command that starts the node."""
        ...


class Node:
    """A Cassandra process that can be killed, frozen and restarted on the same data."""

    def __init__(
        self,
        known_as: str,
        home: Path,
        *,
        configure: Configure,
        nodetool: Callable[[Sequence[str]], Sequence[str]],
        keeper: Keeper,
    ) -> None:
        """Start nothing yet.

        Other nodes find it at `known_as`; `nodetool` makes a command from the words of nodetool.
        """
        self.known_as = known_as
        self._home = home
        self._configure = configure
        self._nodetool = nodetool
        self._keeper = keeper
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = False
        self._beginning = Beginning.WITH_ITS_DATA
        self._heard: dict[str, int] = {}

    @property
    def runs(self) -> bool:
        """Whether the process lives and is not frozen."""
        return self._process is not None and self._process.poll() is None and not self._frozen

    @property
    def pid(self) -> int | None:
        """The process id, dead or alive; None before the first start."""
        return self._process.pid if self._process else None

    @property
    def log(self) -> str:
        """Everything it has logged, over all its starts."""
        log = self._log_file
        return log.read_text(errors="replace") if log.exists() else ""

    @property
    def _log_file(self) -> Path:
        return self._home / "node.log"

    def start(self, others: Collection[Node]) -> None:
        """Start it; earlier log lines about it, its own and those of the others, no longer count."""
        self._heard = {self.known_as: len(self.log)}
        for other in others:
            other.expect(self)
        beginning = self._beginning if any(other.runs for other in others) else Beginning.WITH_ITS_DATA
        self._process = self._keeper.start(self._configure(beginning=beginning), self._log_file)

    def expect(self, other: Node) -> None:
        """Ignore earlier log lines about another node."""
        self._heard[other.known_as] = len(self.log)

    def is_up(self) -> bool:
        """Whether it takes requests; NodeNotReady if its process has ended."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise self.not_ready(code)
        up = _STARTED in self.log[self._heard[self.known_as] :]
        if up:
            self._beginning = Beginning.WITH_ITS_DATA
        return up

    def sees(self, other: Node) -> bool:
        """Whether it has logged that the other owns its range and is up, so that requests through it use the other."""
        log = self.log[self._heard.get(other.known_as, self._heard[self.known_as]) :]
        heard = [seen["state"] for seen in _SEEN.finditer(log) if seen["address"] == other.known_as]
        return heard[-1:] == ["UP"] and any(shares["address"] == other.known_as for shares in _SHARES.finditer(log))

    def nodetool(self, words: Sequence[str]) -> str:
        """The output of a nodetool command on this node; NodetoolFailed if it fails."""
        done = subprocess.run(self._nodetool(words), capture_output=True, text=True, check=False)  # noqa: S603 - the command is built here, word by word
        if done.returncode:
            raise NodetoolFailed(self.known_as, words, done.stderr + done.stdout)
        return done.stdout

    def not_ready(self, exit_code: int | None = None) -> NodeNotReady:
        """The error for a node that is not ready, with the end of its log."""
        return NodeNotReady(self.known_as, exit_code=exit_code, log_tail="\n".join(self.log.splitlines()[-_TOLD:]))

    def freeze(self) -> None:
        """Stop the process; its connections and its port stay open."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            self._frozen = True

    def thaw(self) -> None:
        """Resume a frozen process."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._frozen = False

    def kill(self) -> None:
        """End the process with SIGKILL, if it runs, and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._frozen = False

    def wipe(self) -> None:
        """Kill it and delete its data; at the next start it replaces itself."""
        self._empty()
        self._beginning = Beginning.REPLACING_ITSELF

    def retire(self) -> None:
        """Decommission it, kill it and delete its data; at the next start it joins as a new node."""
        self.nodetool(("decommission",))
        self._empty()
        self._beginning = Beginning.JOINING

    def _empty(self) -> None:
        self.kill()
        shutil.rmtree(self._home / "data", ignore_errors=True)
