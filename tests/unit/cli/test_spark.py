"""What commands of Spark show beside Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from astyqueue import errors
from astyqueue.cli.failures import ExitCode, code_of
from astyqueue.cli.spark import _bar
from astyqueue.spark.failing import reason_of


def test_a_file_s_name_is_no_markup_of_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
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
def test_only_our_own_errors_are_recognised_in_a_trace(name: str, kind: type, code: ExitCode) -> None:
    found, told = reason_of(ValueError(f"[SOME.CONDITION] astyqueue.errors.{name}: what a row says"))
    assert (found, told) == (kind, "what a row says")
    assert code_of(found) == code
