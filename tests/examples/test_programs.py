"""Every example runs, twice in the same folder, and says what it is to say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.places import Place

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
SAYS: Final = {
    "first_queue": [
        "delivered 'Welcome' to ada@example.org",
        "failed: 'nobody' is not an address",
        "failed: 'nobody' is not an address",
        "waiting for tomorrow: 1",
        "dead letter welcome:nobody after 2 attempts: ValueError: 'nobody' is not an address",
    ],
    "worker_threads": ["1000 digests, the first 822beb0d1729"],
    "tasks_app": [
        "welcomed ada@example.org in 'fr' at attempt 2",
        "dead letter: the address of grace is unknown",
        "redriven: 1",
        "welcomed grace@example.org in 'en' at attempt 2",
        "left in the queue: 0",
    ],
    "dead_letters": [
        "shipped novel at attempt 2",
        "shipped seeds at attempt 1",
        "order:7 died at attempt 1: no lamp in stock",
        "redriven: 1",
        "shipped lamp at attempt 1",
        "left: 0",
    ],
    "hooks": [
        "refused: an email needs an address",
        "released at attempt 1: {'to': 'ada@example.org'}",
        "acked at attempt 2: {'to': 'ada@example.org'}",
        "cleared: a message of emails",
    ],
    "kinds": ["mailed 20, called back 20, inserted 20, left 0"],
    "task_batches": [
        "9 rows in 2 inserts",
        "dead letters: ['the row is empty']",
    ],
    "many_queues": [
        "charged order 1",
        "10 x mail of ada",
        "10 x mail of barbara",
        "10 x mail of edsger",
        "10 x mail of grace",
        "40 x report",
        "6 queues by 4 threads",
    ],
    "one_at_a_time": [
        "first: entry 1",
        "first: entry 2",
        "second: 0 deliveries, as if the queue were empty",
        "while the first is open: 1 active, 1 on stand-by",
        "second: entry 3",
        "after the first was closed: 1 active, 0 on stand-by",
    ],
    "last_values": [
        "prices: [104]",
        "job 0 is in jobs",
        "job 1 is in jobs",
        "job 2 is in later",
        "job 3 is in later",
        "jobs: ['0', '1'] later: ['2', '3']",
        "orders: ['enterprise', 'team', 'free']",
    ],
    "hermetic": ["failed to ship a book", "nothing to ship", "shipped a book at attempt 2"] * 2,
    "awaited": ["sent 5", "sent 5", "sent 5", "sent 5", "20 squares, 2470 together, 0 left"],
    "web_service_async": ["answered 202", "welcomed ada@example.org", "asked ada@example.org what is missing"],
    "follow_ups": [
        "charged for a novel at attempt 2",
        "mailed: thank you for a novel",
        "shipped a novel",
        "left: 0",
    ],
    "outbox": [
        "packed a novel",
        "a novel was packed before",
    ],
    "journal_tail": [
        "shipped order 1",
        "shipped order 2",
        "shipped order 3",
        "opened again",
        "shipped order 4",
        "shipped order 5",
        "shipped order 6",
        "orders of the last hour: [1, 2, 3, 4, 5, 6]",
    ],
    "spool": [
        "sent orders",
        "forwarded: True",
        "waiting on the disk: 3",
        "forwarded: True",
        "in the queue: ['order 1', 'order 2', 'order 3', 'order 4']",
    ],
    "spool_tasks": [
        "waiting on the disk: [1, 1]",
        "shipped order 1",
        "shipped order 2",
        "billed order 1",
        "billed order 2",
    ],
}
#: Examples that choose the store themselves, or use none.
_OWN_STORE: Final = {"hermetic", "journal_tail", "spool", "spool_tasks"}
#: On another store `make test` runs a queue alone, an app, and all kinds of handlers; `make test-full` runs the others.
_ELSEWHERE: Final = {"first_queue", "kinds", "tasks_app"}
_URL: Final = re.compile(r'"(?:sqlite|memory)://[^"]*"')


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} - {"__init__"} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_says_what_it_is_to_say_and_so_when_it_is_run_again(name: str, tmp_path: Path) -> None:
    for _ in range(2):
        command = [sys.executable, "-X", "dev", "-W", "error", str(EXAMPLES / f"{name}.py")]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        assert (ran.stdout.splitlines(), ran.returncode) == (SAYS[name], 0), ran.stderr
        assert not re.search("Traceback|Warning", ran.stderr)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in _ELSEWHERE else pytest.mark.full)
        for name in sorted(SAYS.keys() - _OWN_STORE)
    ],
)
def test_an_example_says_the_same_on_another_store_by_a_change_of_url(name: str, place: Place, tmp_path: Path) -> None:
    program = tmp_path / f"{name}.py"
    text, urls = _URL.subn(f'"{place.url}"', (EXAMPLES / program.name).read_text())
    assert urls == 1
    program.write_text(text)
    ran = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.stdout.splitlines(), ran.returncode) == (SAYS[name], 0), ran.stderr


@pytest.mark.parametrize("name", SAYS)
def test_an_example_is_short_enough_to_be_read_at_once(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 60
