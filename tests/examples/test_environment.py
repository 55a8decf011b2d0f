"""What make does before anything runs: it makes environments, and leaves alone those that it did not make."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

SCRIPT: Final = Path(__file__).parents[2] / ".ci/environment"
#: A Python that says which version it is, makes environments of itself, and installs by saying what it fetches.
PYTHON: Final = """#!/bin/sh
case "$*" in
    *version_info*) echo VERSION ;;
    *"-m venv"*) for folder; do :; done; mkdir -p "$folder/bin"; cp "$0" "$folder/bin/python" ;;
    *install*) echo "Collecting left-pad>=1 (from astyqueue)"; echo "Installing collected packages: left-pad" ;;
esac
"""


def python(file: Path, version: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(PYTHON.replace("VERSION", version))
    file.chmod(0o755)
    return file


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    return python(tmp_path / "python3.11", "3.11")


def environment(folder: Path, asked: Path) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPT), str(folder), str(asked), ".[dev]"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


def test_an_environment_is_made_and_what_is_installed_is_reported(tmp_path: Path, asked: Path) -> None:
    made = environment(tmp_path / "venv", asked)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.splitlines() == [
        f"making an environment in {tmp_path}/venv with {asked}",
        f"installing astyqueue from '.[dev]' into {tmp_path}/venv:",
        "  left-pad>=1",
        "  unpacking left-pad",
    ]


def test_an_environment_of_somebody_else_is_added_to_and_not_emptied(tmp_path: Path, asked: Path) -> None:
    python(tmp_path / "venv/bin/python", "3.11")
    mine = tmp_path / "venv/mine"
    mine.touch()
    assert environment(tmp_path / "venv", asked).stdout.startswith("installing")
    assert mine.exists()


def test_an_environment_of_somebody_else_and_of_another_python_is_left_as_it_is(tmp_path: Path, asked: Path) -> None:
    python(tmp_path / "venv/bin/python", "3.12")
    mine = tmp_path / "venv/mine"
    mine.touch()
    refused = environment(tmp_path / "venv", asked)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "make did not make it, so it is left as it is" in refused.stderr
    assert mine.exists()


def test_an_environment_that_make_made_is_made_anew_for_another_python(tmp_path: Path, asked: Path) -> None:
    environment(tmp_path / "venv", python(tmp_path / "python3.12", "3.12"))
    old = tmp_path / "venv/old"
    old.touch()
    assert environment(tmp_path / "venv", asked).stdout.startswith(
        f"making {tmp_path}/venv anew: it was of another Python\n"
    )
    assert not old.exists()
