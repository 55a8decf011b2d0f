"""The benchmarks run, print what they promise, and print no figures of a run that failed."""

from __future__ import annotations

import json

import pytest

from astyqueue.testing import TimeMachine
from astyqueue.testing.cassandra import Contacts
from benchmarks import aio
from benchmarks.__main__ import main
from benchmarks.figures import AIMS, figure, percentile
from benchmarks.workload import NotMeasured, Tally, body

FIGURES = {
    *(
        "raw_send_per_s",
        "send_per_s",
        "send_spread_per_s",
        "bare_drain_per_s",
        "drain_per_s",
        "worker_cpu_us_per_message",
        "latency_p50_ms",
        "latency_p99_ms",
    ),
    *(
        "cross_process_latency_p50_ms",
        "cross_process_latency_p99_ms",
        "idle_hour_latency_p50_ms",
        "idle_hour_latency_p99_ms",
    ),
    *(
        "store_cpu_us_per_message",
        "messages_per_claim",
        "refused_commits_per_message",
        "fsync_ms",
        "store_write_ms",
        "raw_bytes_per_s",
    ),
}
#: What only a store in other processes has, what only a file has, and what there is only when other processes work.
ELSEWHERE = {"store_cpu_us_per_message"}
#: What only a driver that binds has.
BOUND = {"raw_bytes_per_s"}
ON_DISK = {"fsync_ms"}
NONE_HERE = {"refused_commits_per_message"}
SMALL = ["--messages", "300", "--runs", "2", "--json"]
ON = ["on_sqlite", "on_cassandra"]


@pytest.fixture
def on_sqlite() -> list[str]:
    return ["--store", "sqlite", "--synchronous", "normal"]


@pytest.fixture
def on_cassandra(cassandra: Contacts) -> list[str]:
    at = ",".join(f"{host}:{cassandra.port}" for host in cassandra.contact_points)
    return ["--store", "cassandra", "--at", at, "--warming", "0"]


@pytest.mark.full
def test_draining_sqlite_gives_each_figure_with_its_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drain", "--store", "sqlite", "--synchronous", "normal", "--latency-messages", "3", *SMALL]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {*FIGURES, "synchronous", "conditions", "aims"}
    assert report["synchronous"] == "normal"
    assert len(report["aims"]) == len(AIMS["sqlite"])
    assert {name for name in FIGURES if report[name] is None} == ELSEWHERE | BOUND
    for name in FIGURES - ELSEWHERE - BOUND - NONE_HERE:
        assert 0 < report[name]["min"] <= report[name]["median"] <= report[name]["max"]
        assert len(report[name]["runs"]) == 2


def test_draining_memory_gives_null_for_the_figures_of_a_disk_or_of_other_processes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["drain", "--store", "memory", "--latency-messages", "3", *SMALL]) == 0
    report = json.loads(capsys.readouterr().out)
    missing = {name for name in FIGURES if report[name] is None}
    across = {name for name in FIGURES if name.startswith(("cross_process", "idle_hour"))}
    assert missing == {"raw_send_per_s", "fsync_ms", "store_write_ms", *across, *ELSEWHERE, *BOUND}


@pytest.mark.full
def test_draining_cassandra_gives_the_same_figures_but_that_of_the_disk(
    capsys: pytest.CaptureFixture[str], on_cassandra: list[str]
) -> None:
    assert main(["drain", *on_cassandra, "--latency-messages", "3", *SMALL]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {*FIGURES, "synchronous", "conditions", "aims"}
    assert {name for name in FIGURES if report[name] is None} == ON_DISK | ELSEWHERE
    assert len(report["aims"]) == len(AIMS["cassandra"])


@pytest.mark.full
@pytest.mark.parametrize("on", ON)
def test_flat_compares_a_row_that_many_messages_went_through_with_a_fresh_one(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, on: str
) -> None:
    target = request.getfixturevalue(on)
    small = ["--messages", "300", "--backing-off", "20", "--samples", "3", "--runs", "1", "--minutes", "0"]
    assert main(["flat", *target, *small, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    for told in (report, report["without_cursors"]):
        for name in (
            "fresh_ms",
            "after_ms",
            "fresh_claim_ms",
            "after_claim_ms",
            "fresh_first_claim_ms",
            "after_first_claim_ms",
        ):
            assert told[name]["median"] > 0
        assert (told["tombstones_per_poll"] is None) == (on == "on_sqlite")
    assert (report["conditions"]["released"], report["conditions"]["delayed"]) == (3, 3)


@pytest.mark.full
@pytest.mark.parametrize("on", ON)
def test_steady_gives_the_rate_of_workers_window_by_window(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, on: str
) -> None:
    target = request.getfixturevalue(on)
    runs = [
        "--minutes",
        "0.1",
        "--windows",
        "2",
        "--turns",
        "1",
        "--turn-seconds",
        "1",
        "--workers",
        "1",
        "--ahead",
        "500",
        "--json",
    ]
    assert main(["steady", *target, *runs]) == 0
    report = json.loads(capsys.readouterr().out)
    first, second = report["windows"]
    for window in (first, second):
        assert window["sent_per_s"] * window["seconds"] == pytest.approx(window["per_s"] * window["seconds"], abs=1_000)
        assert window["worker_cpu_us"] > 0
    assert second["per_s"] > 0
    [turn] = report["turns"]
    assert report["old_to_new"]["median"] == pytest.approx(turn["old"]["per_s"] / turn["new"]["per_s"], rel=1e-3)


@pytest.mark.full
@pytest.mark.parametrize("on", ON)
def test_contention_compares_consumers_and_processes_that_share_rows(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, on: str
) -> None:
    target = request.getfixturevalue(on)
    assert (
        main(
            [
                "contention",
                *target,
                "--messages",
                "400",
                "--consumers",
                "8",
                "--taken",
                "200",
                "--processes",
                "2",
                "--runs",
                "1",
                "--json",
            ]
        )
        == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert 0 < report["lock_attempts_per_message"]["median"] <= report["commits_per_message"]["median"]
    for count in (1, 2):
        assert report[f"processes_{count}_per_s"]["median"] > 0
        assert (
            report[f"processes_{count}_least_share"]["median"]
            <= 1
            <= report[f"processes_{count}_greatest_share"]["median"]
        )


@pytest.mark.full
@pytest.mark.parametrize("on", ON)
def test_locks_compares_the_three_row_locks(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, on: str
) -> None:
    target = request.getfixturevalue(on)
    assert (
        main(["locks", *target, "--messages", "400", "--claims", "5", "--samples", "3", "--runs", "2", "--json"]) == 0
    )
    report = json.loads(capsys.readouterr().out)
    for lock in ("guard", "columns", "manager"):
        for name in (
            "drain_per_s",
            "processes_per_s",
            "worker_cpu_us_per_message",
            "poll_ms",
            "claim_ms",
            "poll_ratio",
            "claim_ratio",
        ):
            assert 0 < report[f"{lock}_{name}"]["min"] <= report[f"{lock}_{name}"]["max"]
        assert (report[f"{lock}_tombstones_per_poll"] is None) == (on == "on_sqlite")
    for name in ("drain_per_s", "processes_per_s", "claim_ms"):
        assert report[f"columns_to_guard_{name}"]["median"] > 0
    assert report["conditions"]["load"]["before"]


@pytest.mark.full
def test_recovery_gives_how_late_a_message_of_a_killed_process_comes_in_a_current_and_an_old_shard(
    capsys: pytest.CaptureFixture[str], on_sqlite: list[str]
) -> None:
    assert main(["recovery", *on_sqlite, "--lease", "3", "--runs", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert 0 <= report["late_s"]["median"] < 3
    assert 0 <= report["old_shard_late_s"]["median"] < 3


@pytest.mark.full
def test_sizes_gives_the_stored_bytes_of_messages(capsys: pytest.CaptureFixture[str], on_sqlite: list[str]) -> None:
    assert main(["sizes", *on_sqlite, "--messages", "2000", "--runs", "1", "--json"]) == 0
    report = {name: found["median"] for name, found in json.loads(capsys.readouterr().out).items() if "bytes" in name}
    assert 60 < report["waiting_bytes"] < report["waiting_task_bytes"] < report["waiting_unique_bytes"]
    assert report["settled_bytes"] == report["settled_singly_bytes"] == report["settled_unique_bytes"] == 0
    assert report["event_bytes"] > 100
    assert report["hint_bytes"] > 0


@pytest.mark.full
def test_profile_gives_the_processor_time_of_parts_and_functions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--store", "memory", *SMALL]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {"send_many", "decode", "claimer, one thread", "dispatcher, 8 threads"} <= set(report["cpu_us_per_message"])
    assert 0 < sum(report["functions"].values()) <= 1


def test_paths_counts_the_same_round_trips_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paths", "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)
    assert counted["send one message"]["round_trips"] == counted["ack by its holder"]["round_trips"] == 1
    assert counted["receive one message"]["round_trips"] == 2
    assert main(["paths", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    # A dispatcher has several threads, and the hour before an occurrence fires may include a rescan, at a random
    # moment.
    one_thread = [name for name in counted if not name.startswith(("a dispatcher", "fire"))]
    assert {name: again[name] for name in one_thread} == {name: counted[name] for name in one_thread}


def test_an_unknown_benchmark_is_refused_and_help_lists_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drian"]) == 2
    assert main(["--help"]) == 0
    told = capsys.readouterr()
    assert "no benchmark 'drian'" in told.err
    assert "drain " in told.out


def test_a_run_that_handles_a_message_twice_or_not_at_all_gives_no_figures(clock: TimeMachine) -> None:
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
    aim = AIMS["sqlite"][0]
    assert aim.checked(list(runs)) == {"aim": aim.text, "measured": 0.6, "bound": 0.6, "reached": True}
    assert aim.checked([{"send_per_s": 1.0, "raw_send_per_s": None}]) is None


@pytest.mark.parametrize("durability", ["none", "batch"])
def test_a_journal_is_measured_beside_a_bare_file(capsys: pytest.CaptureFixture[str], durability: str) -> None:
    small = ["--runs", "2", "--megabytes", "1", "--search-megabytes", "1", "--durability", durability]
    assert main(["journal", *small, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    rates = {f"{what}_{size}_mb_per_s" for what in ("append", "bare", "read") for size in ("1k", "200b", "40b")}
    for name in {*rates, "since_ms", "reopen_s_per_gb"}:
        assert 0 < report[name]["min"] <= report[name]["median"] <= report[name]["max"]


@pytest.mark.full
def test_the_worker_command_is_measured_beside_a_bare_dispatcher(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--runs", "1", "--messages", "300", "--spaced", "5", "--json"]
    assert main(["worker", *small, "--systems", "astyqueue_sqlite", "bare_sqlite"]) == 0
    report = json.loads(capsys.readouterr().out)
    for name in ("astyqueue_sqlite", "bare_sqlite"):
        for measured in ("per_s", "cpu_us", "p50_ms", "p99_ms"):
            assert report[f"{name}_{measured}"]["median"] > 0
    assert report["astyqueue_sqlite_log_bytes_per_message"]["median"] > 50


@pytest.mark.full
@pytest.mark.parametrize("system", ["pgqueuer", "dramatiq", "huey_redis", "huey_sqlite"])
def test_other_task_queues_run_the_same_task(capsys: pytest.CaptureFixture[str], system: str) -> None:
    code = main(["worker", "--runs", "1", "--messages", "300", "--spaced", "5", "--json", "--systems", system])
    report = json.loads(capsys.readouterr().out)
    if code:
        pytest.skip(report["not_measured"][system])
    assert report[f"{system}_per_s"]["median"] > 0


@pytest.mark.full
def test_a_send_into_a_spool_is_measured_with_the_store_there_away_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spool", "--runs", "1", "--messages", "900", "--plain", "20", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    for phase in ("plain", "there", "away", "back"):
        assert 0 < report[f"{phase}_p50_us"]["median"] <= report[f"{phase}_p99_us"]["median"]
    assert report["forwarded_per_s"]["median"] > 0


@pytest.mark.parametrize(
    ("store", "kinds"), [("sqlite", {"threads", "tasks"}), ("memory", {"threads", "tasks", "adapted"})]
)
def test_calls_from_threads_and_from_tasks_are_measured(
    store: str, kinds: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--messages", "40", "--at-once", "4", "--runs", "1"]
    assert main(["aio", "--store", store, *small, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    names = {f"{kind}_{phase}_{unit}" for kind in kinds for phase in ("send", "take") for unit in ("cpu_us", "per_s")}
    assert set(figures) == names
    assert min(figures.values()) > 0
    assert main(["aio", "--store", store, *small]) == 0
    assert f"aim: {aio.AIM}" in capsys.readouterr().out
