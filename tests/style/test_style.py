from __future__ import annotations

from pathlib import Path

from tests.style.__main__ import ROOT, findings


def test_nothing_in_the_project_breaks_a_rule_of_the_house() -> None:
    assert [str(finding) for finding in findings(ROOT)] == []


def test_every_python_file_of_the_project_is_looked_at_and_nothing_that_tools_made(tmp_path: Path) -> None:
    unfinished = "# TODO\n"
    for path in (
        "top.py",
        "examples/deep/planted.py",
        "tests/planted.py",
        ".venv/made.py",
        "build/made.py",
        "dist/made.py",
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(unfinished, encoding="utf-8")
    assert {finding.path for finding in findings(tmp_path)} == {
        "top.py",
        "examples/deep/planted.py",
        "tests/planted.py",
    }


def test_a_finding_says_where_what_and_the_budget(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text("def call(a, b, c, d, e, f): ...\n", encoding="utf-8")
    assert [str(finding) for finding in findings(tmp_path)] == [
        "planted.py:1: call takes 6 positional parameters (budget 5, self excluded)"
    ]
