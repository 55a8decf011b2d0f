from __future__ import annotations

import re

import pytest

from tests.style.architecture import OPENED, PAGE, PICTURE, ROOT, drawn, floors, listed


def test_the_picture_shows_the_imports_as_they_are() -> None:
    assert PICTURE.read_text(encoding="utf-8") == drawn(), "run: python -m tests.style.architecture"


def test_the_page_lists_every_package_with_the_first_sentence_of_its_docstring() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == listed(page), "run: python -m tests.style.architecture"


def test_every_path_that_the_page_names_exists() -> None:
    paths = re.findall(r"`((?:astyqueue|tests|docs)/[^`]*)`", PAGE.read_text(encoding="utf-8"))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("room", OPENED)
def test_every_package_inside_an_opened_room_is_on_a_floor(room: str) -> None:
    inside = {path.parent.name for path in (ROOT / "astyqueue" / room).glob("*/__init__.py")}
    assert inside <= {name for row in floors(f"astyqueue.{room}") for name in row}
