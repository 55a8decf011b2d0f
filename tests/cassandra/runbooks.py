"""The commands of docs/how-to/production.md, typed on local nodes as they stand there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from astyqueue.cli import main
from astyqueue.testing import LocalCassandra
from tests.cassandra.test_store_ring import told

PAGE: Final = Path(__file__).parents[2] / "docs/how-to/production.md"
#: Where an operator with the URL of the store types a command that is not for a node.
ANYWHERE: Final = "anywhere"
#: Where the page has the data of a node.
STORAGE: Final = "/var/lib/cassandra"
#: What is done, on which node, in the place of a command.
ByHand = Mapping[str, Callable[[int], object]]
_BLOCK: Final = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: A keyspace of the page, and those that are made of its name.
_KEYSPACE: Final = re.compile(r"\bjobs(?![a-z])")


@dataclass(frozen=True)
class Step:
    """A command of the page, and the machine on which it is to be typed, in the page's words."""

    where: str
    command: str


def section(heading: str) -> str:
    """What stands below a heading of the page, up to the next heading of any rank."""
    _, found, rest = PAGE.read_text().partition(f"\n{heading}\n")
    assert found, f"the page has no heading {heading!r}"
    return re.split(r"^#{2,} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def steps(text: str) -> list[Step]:
    """The commands of a section; each block begins by saying where it is typed."""
    found: list[Step] = []
    for block in _BLOCK.findall(text):
        first, *commands = block.splitlines()
        assert first.startswith("# "), f"a block does not say where it is typed: {first}"
        found += [Step(first.removeprefix("# ").partition(",")[0], command) for command in commands]
    return found


@dataclass
class Operator:
    """An operator who does what the page says, on these nodes, in this keyspace.

    `stands_for` maps what the page writes for a machine's own things (addresses, `dc1`) to those of these nodes.
    Commands that start and stop a service, or change a disk, are done by the function that `by_hand` has for them; a
    command that this class cannot carry out either fails.
    """

    ring: LocalCassandra
    keyspace: str
    folder: Path
    stands_for: Mapping[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment = {"ASTYQUEUE_URL": self.ring.url(self.keyspace)}

    def follow(self, heading: str, places: Mapping[str, Sequence[int]], by_hand: ByHand | None = None) -> None:
        """Do all that stands below a heading: each block on the nodes that its place is said to be."""
        for step in steps(section(heading)):
            if step.where == ANYWHERE:
                self._type_anywhere(step.command)
                continue
            for node in places[step.where]:
                self._type(step.command, node, by_hand or {})

    def _type(self, command: str, node: int, by_hand: ByHand) -> None:
        if command in by_hand:
            by_hand[command](node)
            return
        program, *words = self._words(command, node)
        assert program == "nodetool", f"nobody said how to do this here: {command}"
        self.said[command] = self.ring.nodetool(node, *words)

    def _type_anywhere(self, command: str) -> None:
        program, *words = self._words(command, 1)
        if program == "export":
            self.environment |= dict([words[0].split("=", 1)])
        elif program == "cqlsh":
            with told(
                self.ring, min(set(range(1, len(self.ring.contact_points) + 1)) - set(self.ring.down))
            ) as session:
                session.execute(words[-1], timeout=60)
        else:
            assert program == "astyqueue", f"nobody said how to do this here: {command}"
            result = CliRunner().invoke(main, words, env=self.environment)
            # A doctor that finds a warning (10) has done what was asked; if it finds a problem, the page did not help.
            assert result.exit_code == 0 or (words[0], result.exit_code) == ("doctor", 10), (
                f"{command}: {result.output}"
            )
            self.said[command] = result.output

    def _words(self, command: str, node: int) -> list[str]:
        """A command's words as a shell of that machine reads them, with this keyspace in the place of the page's."""
        here = {STORAGE: str(self.folder / f"node{node}" / "data"), **self.stands_for}
        names = re.compile("|".join(re.escape(name) for name in sorted(here, key=len, reverse=True)))
        text = names.sub(lambda found: here[found[0]], _KEYSPACE.sub(self.keyspace, command))
        return [word for written in shlex.split(text) for word in _expanded(written)]


def _expanded(word: str) -> Iterator[str]:
    if "*" not in word:
        yield word
        return
    found = sorted(map(str, Path("/").glob(word.lstrip("/"))))
    assert found, f"there is nothing like {word}"
    yield from found
