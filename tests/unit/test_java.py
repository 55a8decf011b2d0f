"""Where the Javas of this machine are looked for, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from astyqueue import java


def test_of_several_versions_the_newest_is_tried_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("java-21", "java-8", "java-11.0.9", "java-11.0.24", "java-1.8.0"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "java").touch()
    monkeypatch.setattr(java, "INSTALLED", (f"{tmp_path}/*",))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    found = [home.name for home in java.homes()]
    assert found == ["java-1.8.0", "java-8", "java-11.0.9", "java-11.0.24", "java-21"]
