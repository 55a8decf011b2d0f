"""Where options come from: flag, then environment, then file, then default."""

from __future__ import annotations

from pathlib import Path

import pytest

from astyqueue.queue.connection import connect
from tests.places import ONE_ROW
from tests.unit.cli.conftest import Shell


@pytest.fixture
def three(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A queue with three messages, and no environment."""
    monkeypatch.delenv("ASTYQUEUE_URL")
    with connect(url) as connection:
        connection.queue("emails", **ONE_ROW).send_many([1, 2, 3])
    return folder


def shown(shell: Shell, *options: str) -> int:
    return len(shell.json("peek", "emails", *options))


def test_a_flag_beats_the_environment_which_beats_the_file(shell: Shell, three: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = three / "astyqueue.toml"
    file.write_text(f'url = "{url}"\n')
    assert shown(shell) == 3
    file.write_text(f'url = "{url}"\n[peek]\nlimit = 1\n')
    assert shown(shell) == 1
    monkeypatch.setenv("ASTYQUEUE_PEEK_LIMIT", "2")
    assert shown(shell) == 2
    assert shown(shell, "--limit", "3") == 3


def test_pyproject_has_a_table_for_us(shell: Shell, three: Path, url: str) -> None:
    (three / "pyproject.toml").write_text(f'[tool.astyqueue]\nurl = "{url}"\n[tool.astyqueue.queues.list]\njson = true\n')
    assert shell("queues", "list").stdout.startswith('{"name": "emails"')


def test_other_projects_say_nothing_of_us(shell: Shell, three: Path) -> None:
    (three / "pyproject.toml").write_text("[tool.other]\nurl = 1\n")
    assert "no store was named" in shell.error("counts", code=2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("url =", "astyqueue.toml cannot be read"),
        ('ulr = "sqlite:///work.db"', "astyqueue.toml: ulr is no option of any command"),
        ("[peek]\nlimits = 1", "astyqueue.toml: limits is no option of peek"),
        ("[peak]\nlimit = 1", "astyqueue.toml: peak is no option of astyqueue"),
    ],
)
def test_a_slip_in_the_file_is_named(shell: Shell, three: Path, text: str, told: str) -> None:
    (three / "astyqueue.toml").write_text(text)
    assert told in shell.error("counts", code=2)
