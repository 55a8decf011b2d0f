from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.style.architecture import OPENED, PICTURE, ROOT, drawn, floors

PAGE = ROOT / "docs" / "architecture.md"


def test_the_picture_shows_the_imports_as_they_are() -> None:
    assert PICTURE.read_text(encoding="utf-8") == drawn(), "run: python -m tests.style.architecture"


def test_the_page_lists_every_package_with_the_first_sentence_of_its_docstring() -> None:
    page = PAGE.read_text(encoding="utf-8")
    packages = [path.parent for path in sorted((ROOT / "astyqueue").rglob("__init__.py"))][1:]
    assert re.findall(r"^\| `(astyqueue/[^`]*)` \| (.*) \|$", page.partition("## The packages")[2], re.MULTILINE) == [
        (package.relative_to(ROOT).as_posix(), _summary(package)) for package in packages
    ]


def _summary(package: Path) -> str:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ")


def test_every_path_that_the_page_names_exists() -> None:
    paths = re.findall(r"`((?:astyqueue|tests|docs)/[^`]*)`", PAGE.read_text(encoding="utf-8"))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("room", OPENED)
def test_every_package_inside_an_opened_room_is_on_a_floor(room: str) -> None:
    inside = {path.parent.name for path in (ROOT / "astyqueue" / room).glob("*/__init__.py")}
    assert inside <= {name for row in floors(f"astyqueue.{room}") for name in row}
