"""What the supervisor of `--reload` sees of source files while they are changed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from astyqueue.cli.worker.supervisor import SourceWatch


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where modules are searched for, to which a watch adds the current directory."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_a_folder_that_is_removed_while_sources_are_looked_for_is_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shop/__init__.py", "shop/old/mail.py", "shop/tasks.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    watch = SourceWatch("shop.tasks:app")
    list_folder = os.scandir

    def remove_first(path: Any = ".") -> AbstractContextManager[Iterator[os.DirEntry[Any]]]:  # noqa: ANN401 - as os has it
        if Path(path).name == "old":
            (Path(path) / "mail.py").unlink()
            Path(path).rmdir()
        return list_folder(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", remove_first)
        assert watch.changed() == str(folder / "shop/old/mail.py")
    assert watch.changed() is None


@pytest.mark.parametrize(("app", "seen"), [("shop.tasks:app", True), ("alone:app", False)])
def test_files_of_a_package_count_at_any_depth_and_those_beside_a_module_alone(
    folder: Path, app: str, *, seen: bool
) -> None:
    (folder / "shop" / "mail").mkdir(parents=True)
    (folder / "shop" / "__init__.py").touch()
    (folder / "alone.py").touch()
    watch = SourceWatch(app)
    (folder / "shop" / "mail" / "notes.txt").touch()
    assert watch.changed() is None
    (folder / "shop" / "mail" / "letters.py").touch()
    assert (watch.changed() is not None) == seen
    (folder / "more.py").touch()
    assert (watch.changed() is not None) != seen
