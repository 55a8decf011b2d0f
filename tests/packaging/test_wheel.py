"""What is built and installed has all that the checkout has: the sdist, and the wheel made from it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path
from typing import Final

import pytest

from astyqueue.clock import SystemClock
from astyqueue.stores.admin import administer

ROOT: Final = Path(__file__).parents[2]
URL: Final = "cassandra://h/k"
#: pip uses what is installed here, and asks no package index.
OFFLINE: Final = ("--no-deps", "--no-index", "--disable-pip-version-check", "--quiet")

Run = Callable[..., str]


def ran(*command: object, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("built")


@pytest.fixture(scope="module")
def sdist(folder: Path) -> Path:
    ran(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, folder=ROOT)
    (built,) = folder.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(folder: Path, sdist: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "wheel", *OFFLINE, "--no-build-isolation", "--no-cache-dir")
    ran(*pip, "--wheel-dir", folder, sdist, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(folder: Path, wheel: Path) -> Run:
    """Runs a command with the installed wheel before anything else on the path, away from the checkout."""
    target = folder / "target"
    ran(sys.executable, "-m", "pip", "install", *OFFLINE, "--target", target, wheel, folder=folder)
    away = folder / "away"
    away.mkdir()

    def run(*command: object) -> str:
        first, *others = command
        words = [target / "bin" / "astyqueue", *others] if first == "astyqueue" else [sys.executable, *command]
        return ran(*words, folder=away, PYTHONPATH=str(target), PYTHONSAFEPATH="1")

    assert run("-c", "import astyqueue; print(astyqueue.__file__)").strip() == str(target / "astyqueue" / "__init__.py")
    return run


def checkout(*folders: str) -> set[str]:
    """The files of these folders, but for what Python and the tests leave there."""
    files = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}


def test_a_wheel_has_each_file_of_the_package_and_the_tables_inside_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed_files = {name for name in packed.namelist() if ".dist-info/" not in name}
    tables = {f"astyqueue/{name}" for name in checkout("schema")}
    assert packed_files == {*checkout("astyqueue"), *tables, "pyspark_astyqueue.py"}
    for needed in (
        "py.typed",
        "schema/sqlite/0001_entries.sql",
        "spark/pipeline/report/style.css",
        "testing/cassandra/pom.xml",
    ):
        assert f"astyqueue/{needed}" in packed_files


def test_a_wheel_says_what_it_is_and_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        about = message_from_bytes(packed.read(name))
    assert about["Description-Content-Type"] == "text/markdown"
    assert about.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    assert {"spark", "spark-connect", "sqs", "test", "java", "dev"} == set(about.get_all("Provides-Extra") or [])


def test_a_source_distribution_has_what_make_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as packed:
        packed_files = {name.partition("/")[2] for name in packed.getnames()}
    assert checkout("astyqueue", "schema", "tests", "docs", "examples", "benchmarks", "tools", ".ci") <= packed_files
    assert {"Makefile", "README.md", "LICENSE", "pyproject.toml", "docker-compose.yml", ".dockerignore"} <= packed_files


def test_an_installed_wheel_prints_the_cql_of_the_checkout(installed: Run) -> None:
    with administer(URL, clock=SystemClock()) as administration:
        statements = administration.statements()
    printed = installed("astyqueue", "migrate", "--print-cql", "--url", URL)
    assert [statement for statement in statements if f"{statement};" not in printed] == []
    assert len(statements) > 3


def test_an_installed_wheel_makes_and_opens_a_sqlite_store(installed: Run) -> None:
    url = "sqlite:///mail.db"
    installed("astyqueue", "send", "emails", '"hello"', "--create", "--url", url)
    assert "all well" in installed("astyqueue", "verify", "--url", url)
    opened = (
        "from astyqueue import connect\nfrom astyqueue.stores.schema_files import folder\n"
        f"with connect({url!r}) as store:\n    [found] = store.queue('emails').receive()\n    print(found.body)\n"
        "print(folder('sqlite'))"
    )
    body, found = installed("-c", opened).splitlines()
    assert body == "hello"
    assert found.endswith("/target/astyqueue/schema/sqlite")
