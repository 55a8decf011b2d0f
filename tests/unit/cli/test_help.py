"""Help is quick, and there is some for every command."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import click

from astyqueue.cli import main
from astyqueue.cli.errors import ExitCode
from tests.unit.cli.conftest import Shell
from tests.unit.cli.reference import MARK, PAGE, listed

#: Seconds of processor time, at most, until help is there.
QUICK = 0.3


def commands(group: click.Group, *path: str) -> list[tuple[str, ...]]:
    """Every command, as it is typed."""
    context = click.Context(group)
    found: list[tuple[str, ...]] = [path]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found += commands(command, *path, name) if isinstance(command, click.Group) else [(*path, name)]
    return found


def test_ctrl_c_while_the_command_line_is_imported_prints_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    command = [sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import astyqueue.cli", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (ExitCode.INTERRUPTED, "", "")


def processor_seconds() -> float:
    """What the processes that were started and have ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_is_quick() -> None:
    taken = []
    for _ in range(3):
        before = processor_seconds()
        subprocess.run([sys.executable, "-m", "astyqueue", "--help"], check=True, capture_output=True)
        taken.append(processor_seconds() - before)
    assert min(taken) < QUICK


def test_help_loads_nothing_that_only_commands_need() -> None:
    asked = (
        "import sys; from astyqueue.cli import main; "
        "main(['--help'], standalone_mode=False); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)
    assert not {"pydantic", "rich", "sqlite3", "astyqueue.queue.queue"} & set(done.stderr.split())


def test_every_command_has_help_without_leftovers(shell: Shell) -> None:
    for path in commands(main):
        text = shell(*path, "--help").stdout
        assert text.startswith(f"Usage: astyqueue {' '.join(path)}".rstrip())
        assert "\\b" not in text


def test_every_option_says_what_it_is() -> None:
    for path in commands(main):
        command: click.Command = main
        for name in path:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), name) or command
        unsaid = [option.name for option in command.params if isinstance(option, click.Option) and not option.help]
        assert not unsaid, (path, unsaid)


def test_the_page_lists_every_command_and_option_as_it_is() -> None:
    head, mark, _ = PAGE.read_text().partition(MARK)
    assert PAGE.read_text() == head + listed(), "write it anew: python -m tests.unit.cli.reference"
    assert mark


def test_the_page_lists_every_exit_code() -> None:
    told = [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)]
    assert told == sorted(ExitCode)
