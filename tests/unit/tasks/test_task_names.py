"""What a task is called when its module is the one that was started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from astyqueue.tasks.task import name_of

SOURCE = """
from astyqueue.tasks.task import name_of


def welcome(): ...


print(name_of(welcome))
"""


def started(folder: Path, *arguments: str) -> str:
    """What a process that was started so, in this folder, prints."""
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the package `shop`, which has the module `mail`."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "mail.py").write_text(SOURCE)
    return tmp_path


def test_a_function_is_named_by_its_module_and_its_place_in_it() -> None:
    assert name_of(started) == f"{__name__}.started"


def test_a_module_that_was_started_goes_by_the_name_it_is_imported_by(folder: Path) -> None:
    assert started(folder, "-m", "shop.mail") == "shop.mail.welcome"


def test_a_script_goes_by_its_path_from_here(folder: Path) -> None:
    assert started(folder, "shop/mail.py") == "shop.mail.welcome"


def test_a_script_that_lies_elsewhere_goes_by_its_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert started(elsewhere, str(folder / "shop" / "mail.py")) == "mail.welcome"


def test_what_was_typed_in_goes_by_main(folder: Path) -> None:
    assert started(folder, "-c", SOURCE) == "__main__.welcome"
