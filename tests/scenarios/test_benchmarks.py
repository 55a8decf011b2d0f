"""The benchmarks run, print what they promise, and refuse to tell numbers of a run that went wrong."""

from __future__ import annotations

import json

import pytest

from astyqueue.testing import TimeMachine
from benchmarks import aims
from benchmarks.__main__ import main
from benchmarks.figures import figure, percentile
from benchmarks.work import NotMeasured, Tally, body

FIGURES = {
    *("raw_send_per_s", "send_per_s", "bare_drain_per_s", "drain_per_s", "worker_cpu_us_per_message", "latency_p50_ms", "latency_p99_ms"),
    *("cross_process_latency_p50_ms", "cross_process_latency_p99_ms", "fsync_ms", "store_write_ms"),
}
SMALL = ["--messages", "300", "--runs", "2", "--json"]


def test_draining_sqlite_gives_each_figure_with_its_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drain", "--store", "sqlite", "--synchronous", "normal", "--latency-messages", "3", *SMALL]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {*FIGURES, "synchronous", "conditions", "aims"}
    assert report["synchronous"] == "normal"
    assert len(report["aims"]) == len(aims.AIMS)
    for name in FIGURES:
        assert 0 < report[name]["min"] <= report[name]["median"] <= report[name]["max"]
        assert len(report[name]["runs"]) == 2


def test_what_memory_does_not_have_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drain", "--store", "memory", "--latency-messages", "3", *SMALL]) == 0
    report = json.loads(capsys.readouterr().out)
    missing = {name for name in FIGURES if report[name] is None}
    assert missing == {"raw_send_per_s", "cross_process_latency_p50_ms", "cross_process_latency_p99_ms", "fsync_ms", "store_write_ms"}


def test_the_profile_tells_parts_and_functions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--store", "memory", *SMALL]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {"send_many", "decode", "claimer, one thread", "dispatcher, 8 threads"} <= set(report["cpu_us_per_message"])
    assert 0 < sum(report["functions"].values()) <= 1


def test_a_name_that_is_no_benchmark_is_told_from_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drian"]) == 2
    assert main(["--help"]) == 0
    told = capsys.readouterr()
    assert "no benchmark 'drian'" in told.err
    assert "drain " in told.out


def test_a_message_handled_twice_or_not_at_all_is_no_measurement(clock: TimeMachine) -> None:
    tally = Tally(2, clock)
    tally.mark(0)
    with pytest.raises(NotMeasured, match="1 of 2 messages were not handled"):
        tally.check()
    tally.mark(1)
    tally.mark(1)
    with pytest.raises(NotMeasured, match="2 messages were handled 3 times"):
        tally.check()


def test_a_body_has_the_size_that_was_asked_for() -> None:
    assert {len(json.dumps(body(number, 200), separators=(",", ":"))) for number in (0, 9, 99_999)} == {200}


def test_figures_and_percentiles_are_those_of_the_samples() -> None:
    assert figure([3.0, None, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0, "runs": [3.0, 1.0, 2.0]}
    assert figure([None]) is None
    assert [percentile([float(one) for one in range(1, 101)], percent) for percent in (1, 50, 99)] == [1, 50, 99]


def test_an_aim_is_judged_by_the_median_of_what_each_run_says() -> None:
    runs = [{"send_per_s": sent, "raw_send_per_s": raw} for sent, raw in ((60.0, 100.0), (80.0, 100.0), (10.0, 100.0))]
    assert aims.AIMS[0].judged(list(runs)) == {"aim": aims.AIMS[0].text, "measured": 0.6, "bound": 0.6, "reached": True}
    assert aims.AIMS[0].judged([{"send_per_s": 1.0, "raw_send_per_s": None}]) is None
