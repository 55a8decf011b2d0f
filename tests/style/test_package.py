"""The package: what importing it loads, its public names, and the docstrings, page and picture of its packages."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import astyqueue
from tests.style.architecture import MODULES, OPENED, PAGE, PICTURE, ROOT, all_modules, drawn, layers, listed

LOADED = "import sys, astyqueue; print(*{name.partition('.')[0] for name in sys.modules})"


def test_importing_the_package_loads_no_store_and_no_terminal_library() -> None:
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=30)
    loaded = set(ran.stdout.split())
    assert "astyqueue" in loaded
    assert loaded.isdisjoint({"cassandra", "click", "rich", "sqlite3", "_sqlite3"})


def test_a_program_for_threads_loads_no_event_loop() -> None:
    """asyncio brings 36 modules, which a worker and a command would load at each start."""
    program = (
        "import sys; from astyqueue import App, connect; import astyqueue.cli.commands.worker; app = App('memory://');"
        "app.task(print); app.worker().start().drain(); print('asyncio' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert ran.stdout.split() == ["False"]


def test_every_public_name_is_there() -> None:
    assert [name for name in astyqueue.__all__ if not hasattr(astyqueue, name)] == []


def test_the_package_says_that_it_is_typed() -> None:
    assert files(astyqueue).joinpath("py.typed").is_file()


def test_a_shell_completes_the_public_names_and_nothing_private() -> None:
    command = [sys.executable, "-c", "import astyqueue; print(*dir(astyqueue))"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in names if not name.startswith("_")] == sorted(astyqueue.__all__)


def test_the_modules_that_a_package_lists_are_there() -> None:
    listed = [
        (package.parent, name)
        for package in Path(str(files(astyqueue))).rglob("__init__.py")
        for line in re.findall(r"^- ((?:`[a-z_]+`(?:, | and )?)+)", package.read_text(), re.MULTILINE)
        for name in re.findall(r"`([a-z_]+)`", line)
    ]
    assert len(listed) > 50
    assert [(at, name) for at, name in listed if not ((at / f"{name}.py").is_file() or (at / name).is_dir())] == []


def test_the_picture_of_the_architecture_shows_the_imports_as_they_are() -> None:
    assert PICTURE.read_text(encoding="utf-8") == drawn(), "run: python -m tests.style.architecture"


def test_the_page_on_architecture_lists_every_package_with_the_first_sentence_of_its_docstring() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == listed(page), "run: python -m tests.style.architecture"


def test_the_page_of_modules_lists_every_module_with_its_first_sentence() -> None:
    page = MODULES.read_text(encoding="utf-8")
    assert page == all_modules(), "run: python -m tests.style.architecture"
    assert page.count("\n| `") == sum(not path.name.startswith("__") for path in (ROOT / "astyqueue").rglob("*.py"))
    assert "|  |" not in page


def test_every_path_that_the_page_on_architecture_names_exists() -> None:
    paths = re.findall(r"`((?:astyqueue|tests|docs)/[^`]*)`", PAGE.read_text(encoding="utf-8"))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("package", OPENED)
def test_every_package_inside_a_package_with_floors_of_its_own_is_on_a_floor(package: str) -> None:
    inside = {path.parent.name for path in (ROOT / "astyqueue" / package).glob("*/__init__.py")}
    assert inside <= {name for row in layers(f"astyqueue.{package}") for name in row}
