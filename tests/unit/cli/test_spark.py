"""What the commands of Spark do before Spark starts: the progress and errors that they show, the URL they hand on."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from astyqueue import errors
from astyqueue.cli import main
from astyqueue.cli.commands.spark import _bar
from astyqueue.cli.errors import ExitCode, code_of
from astyqueue.spark.errors import reason_of
from astyqueue.spark.options import everywhere
from astyqueue.stores.url import locate


def test_the_progress_bar_shows_the_name_of_a_file_without_its_markup_or_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with _bar(shown=True) as progress:
        progress(SimpleNamespace(file="a[/b]\x1b[2J.csv", sent=1, total=2))  # type: ignore[arg-type]  # all that is asked of it
    told = capsys.readouterr().err
    assert "a[/b]\\u001b[2J.csv" in told
    assert "\x1b[2J" not in told


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("BadInput", errors.BadInput, ExitCode.BAD_INPUT),
        ("StoreUnavailable", errors.StoreUnavailable, ExitCode.STORE_UNAVAILABLE),
        ("reprlib", errors.AstyqueueError, ExitCode.FAILED),
        ("Iterable", errors.AstyqueueError, ExitCode.FAILED),
        ("Retry", errors.AstyqueueError, ExitCode.FAILED),
        ("__name__", errors.AstyqueueError, ExitCode.FAILED),
    ],
)
def test_only_errors_of_astyqueue_are_recognised_in_an_error_of_spark(name: str, kind: type, code: ExitCode) -> None:
    found, told = reason_of(ValueError(f"[SOME.CONDITION] astyqueue.errors.{name}: what a row says"))
    assert (found, told) == (kind, "what a row says")
    assert code_of(found) == code


@pytest.mark.parametrize("module", ["astyqueue.spark.errors", "astyqueue.spark.pipeline.schemas"])
def test_an_error_of_the_pipeline_in_a_stream_is_shown_with_what_to_do(module: str) -> None:
    lines = (
        "[STREAM_FAILED] Query [id = 6efd, runId = c56c] terminated with exception: Traceback (most recent call last):",
        '  File "astyqueue/spark/errors.py", line 60, in check_kept',
        f"{module}.HistoryGone: the history is gone. To continue without it, --accept-gap",
        " SQLSTATE: 38000",
    )
    found = reason_of(ValueError("\n".join(lines)))
    assert found == (errors.AstyqueueError, "the history is gone. To continue without it, --accept-gap")


@pytest.mark.parametrize(
    "command",
    [
        ("spark", "enqueue", "rows.csv", "--queue", "emails", "--id-column", "id"),
        ("spark", "redrive", "emails", "--where", "kind = 'failed'"),
        ("pipeline", "run", "--out", "tables"),
    ],
    ids=" ".join,
)
def test_a_store_whose_file_is_missing_is_named_and_not_created(command: tuple[str, ...], tmp_path: Path) -> None:
    Path("rows.csv").write_text("id\n1\n")
    store = tmp_path / "misspelt.db"
    ended = CliRunner().invoke(main, [*command, "--url", f"sqlite:///{store}"], prog_name="astyqueue")
    assert ended.exit_code != 0
    assert "misspelt.db" in ended.output
    assert not store.exists()


@pytest.mark.parametrize("folder", ["plain", "a%20b", "a b", "what?", "über"])
@pytest.mark.parametrize(
    ("written", "meant"), [("work.db", "work.db"), ("my%20work.db", "my work.db"), ("what%3F.db", "what?.db")]
)
def test_a_relative_url_names_the_same_file_in_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, written: str, meant: str
) -> None:
    here = tmp_path / folder
    here.mkdir()
    monkeypatch.chdir(here)
    found = everywhere(f"sqlite:///{written}?synchronous=normal")
    monkeypatch.chdir("/")
    assert locate(found).place == f"/{here}/{meant}"
    assert locate(found).options == {"synchronous": "normal"}


@pytest.mark.parametrize(
    "url", ["sqlite:////var/work.db", "sqlite:////var/my%20work.db", "cassandra://user:p%2Fw@host/work"]
)
def test_an_absolute_url_stays_as_it_is(url: str) -> None:
    assert everywhere(url) == url


@pytest.mark.parametrize(
    "command", [["spark", "redrive", "emails", "--where", "true"], ["pipeline", "run", "--out", "tables"]], ids=" ".join
)
def test_where_spark_is_not_installed_a_command_says_how_to_install_it(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] in {"py4j", "pyspark"}]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "py4j", None)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    ended = CliRunner().invoke(main, [*command, "--url", "memory://"], prog_name="astyqueue")
    assert (ended.exit_code, ended.stderr) == (
        ExitCode.BAD_INPUT,
        "Error: this needs Spark: pip install '.[spark]' in a clone of astyqueue\n",
    )
