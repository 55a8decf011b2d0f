"""The commands that use Spark, as a person types them: in a folder of their own, in the session that is there."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import Row, SparkSession

from astyqueue import MessageQueue, connect
from astyqueue.cli import main
from astyqueue.clock import SystemClock, instant
from astyqueue.errors import StoreUnavailable
from astyqueue.queue.admin.dead_letters import redrive_page
from astyqueue.spark import redrive
from astyqueue.spark.pipeline.schemas import ATTEMPTS, COUNTS, FACTS, LIVE, TABLES, Table
from astyqueue.testing import TimeMachine
from astyqueue.text import iso
from astyqueue.units import SECOND
from tests.spark.conftest import SETTINGS
from tests.spark.frames import QUEUE, Frames, drained

pytestmark = pytest.mark.stores("sqlite", "cassandra")
_DAY: Final = 86_400 * SECOND
#: The stream stays so far behind the clock, and what was before that when it ended it does not look at again.
_LAG: Final = 60 * SECOND
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_ENQUEUE: Final = ("spark", "enqueue")
_TO: Final = ("--queue", QUEUE, "--id-column", "id")


class Shell:
    """Runs commands on the store of this test."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._runner = CliRunner(env={"ASTYQUEUE_URL": url})
        self._spark = spark

    def __call__(self, *words: str | Path, code: int = 0) -> Result:
        """What a command prints; its exit code must be this one, and the session is not its to end."""
        result = self._runner.invoke(main, list(map(str, words)), prog_name="astyqueue")
        assert result.exit_code == code, (words, result.output, result.exception)
        assert self._spark.range(1).count() == 1
        return result

    def json(self, *words: str | Path) -> dict[str, Any]:
        """The one object that a command prints with `--json`, and it prints nothing else."""
        result = self(*words, "--json")
        assert result.stderr == ""
        [line] = result.stdout.splitlines()
        told: dict[str, Any] = json.loads(line)
        return told

    def error(self, *words: str | Path, code: int) -> str:
        """The one line that a command fails with."""
        result = self(*words, code=code)
        assert result.stdout == ""
        [line] = result.stderr.splitlines()
        return line.removeprefix("Error: ")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shell(frames: Frames) -> Iterator[Shell]:
    """Commands on the store of `frames`; what they set in the session is set back."""
    yield Shell(frames.spark, frames.url)
    frames.spark.sparkContext.setLogLevel("ERROR")
    frames.spark.conf.set(_PARTITIONS, SETTINGS[_PARTITIONS])


def written(name: str, text: str | bytes) -> str:
    """A file of the current directory; its name."""
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


def users(*numbers: int) -> str:
    return "id,name\n" + "".join(f"{number},user-{number}\n" for number in numbers)


def test_rows_of_files_arrive_as_messages_and_a_second_run_skips_them(shell: Shell, frames: Frames) -> None:
    queue = frames.queue()
    files = [written("users.csv", users(1, 2)), written("more.jsonl", '{"id": 3, "name": "user-3"}\n')]
    told = shell.json(*_ENQUEUE, *files, *_TO)
    assert told == {"queue": QUEUE, "rows": 3, "files": 2, "skipped": 0, "manifest": "emails.enqueued.json"}
    assert sorted(drained(queue), key=str) == [
        {"id": "1", "name": "user-1"},
        {"id": "2", "name": "user-2"},
        {"id": 3, "name": "user-3"},
    ]
    again = shell(*_ENQUEUE, *files, written("last.csv", users(4)), *_TO)
    assert again.stdout == "sent 1 row of 1 file to queue emails; skipped 2 files sent before\n"
    assert drained(queue) == [{"id": "4", "name": "user-4"}]


def test_a_file_that_grew_since_it_was_sent_is_sent_with_a_warning(shell: Shell, frames: Frames) -> None:
    queue = frames.queue()
    file = written("users.csv", users(1))
    assert shell(*_ENQUEUE, file, *_TO).stderr == ""
    drained(queue)
    written("users.csv", users(1, 2))
    told = shell(*_ENQUEUE, file, *_TO)
    assert told.stderr.startswith("users.csv was sent before with another content: rows whose messages were done or")
    assert "more than a day ago (the queue's setting deduplication) are sent again" in told.stderr
    assert drained(queue) == [{"id": "2", "name": "user-2"}]
    assert shell(*_ENQUEUE, file, *_TO).stderr == ""


def test_a_manifest_counts_for_one_store(shell: Shell, frames: Frames, tmp_path: Path) -> None:
    frames.queue()
    file = written("users.csv", users(1))
    shell(*_ENQUEUE, file, *_TO)
    other = f"sqlite:///{tmp_path}/other.db"
    told = shell.error(*_ENQUEUE, file, *_TO, "--create", "--url", other, code=2)
    assert "emails.enqueued.json is the manifest of another run" in told
    shell(*_ENQUEUE, file, *_TO, "--create", "--url", other, "--manifest", "there/other.json")
    with connect(other) as connection:
        assert connection.queue(QUEUE).counts().waiting == 1


#: What is asked, the exit code, and what the one line says.
REFUSED: Final = (
    (
        ["users.csv", "--queue", QUEUE, "--id-column", "user"],
        2,
        "users.csv, read as CSV .*, has no column 'user'; it has 'id', 'name'",
    ),
    (
        ["users.csv", *_TO, "--due-column", "name"],
        2,
        "users.csv, .* all of it text: --due-column='name': the column is string and must",
    ),
    (["users.csv", *_TO, "--priority-column", "name"], 2, "--priority-column='name': .* must be a whole number$"),
    (
        ["users.csv", "--queue", "nowhere", "--id-column", "id"],
        1,
        r"no queue 'nowhere' \(--create creates it\); there are: emails$",
    ),
    (["users.csv", "--queue", "a/b", "--id-column", "id", "--create"], 2, "'a/b' is not a valid queue name"),
    (["bytes.csv", *_TO], 2, r"bytes.csv, read as CSV .*, has no column 'id'; it has '\\u0000\\u0001"),
    (["empty.csv", *_TO], 2, "empty.csv, .*, has no column 'id'; it has none$"),
    (["broken.csv", *_TO], 1, "broken.csv, .*: Malformed CSV record: 2,two,many$"),
    (["broken.jsonl", *_TO], 1, "broken.jsonl, read as JSON with one object a line: Unrecognized token 'nope'"),
    (["nobody.csv", *_TO], 2, "nobody.csv, .*: a row has no id: without"),
    (["users.xls", *_TO], 2, "^users.xls: the kind of this file does not follow from its name"),
    (["users.csv", *_TO, "--url", "nosql://host"], 2, "^unknown kind of store 'nosql'"),
    (["users.csv", *_TO, "--manifest", "users.csv/m.json"], 2, "^users.csv.*: "),
)


@pytest.mark.full
def test_what_cannot_be_sent_is_reported_in_a_sentence_and_nothing_is(shell: Shell, frames: Frames) -> None:
    queue = frames.queue()
    written("users.csv", users(1))
    written("users.xls", "")
    written("bytes.csv", bytes(range(256)))
    written("empty.csv", "")
    written("broken.csv", "id,name\n2,two,many\n")
    written("broken.jsonl", '{"id": 1}\nnope\n')
    written("nobody.csv", "id,name\n,nobody\n")
    for words, code, told in REFUSED:
        assert re.search(told, shell.error(*_ENQUEUE, *words, code=code)), words
    assert queue.counts().total == 0


def test_rows_with_one_id_are_refused_unless_they_are_said_to_be_the_same(shell: Shell, frames: Frames) -> None:
    queue = frames.queue()
    written("users.csv", users(1, 1, 2, 2, 2, 3))
    told = shell.error(*_ENQUEUE, "users.csv", *_TO, code=2)
    assert "5 rows share 2 ids in column 'id'" in told
    assert "--merge" in told
    assert queue.counts().total == 0
    shell(*_ENQUEUE, "users.csv", *_TO, "--merge")
    assert len(drained(queue)) == 3


@pytest.mark.parametrize("command", [(*_ENQUEUE, "users.csv", *_TO), ("spark", "redrive", QUEUE, "--where", "true")])
def test_a_rate_of_nothing_is_refused(shell: Shell, command: tuple[str, ...]) -> None:
    written("users.csv", users(1))
    assert "0.0 is not in the range x>0" in shell(*command, "--rate", "0", code=2).stderr


def bury(queue: MessageQueue, *reasons: str) -> None:
    queue.send_many([{"reason": reason} for reason in reasons])
    for delivery in [one for _ in range(4) for one in queue.receive(len(reasons))]:
        assert isinstance(delivery.body, dict)
        delivery.reject(str(delivery.body["reason"]))
    assert queue.counts().dead == len(reasons)


@pytest.mark.full
def test_dead_letters_that_a_query_chooses_are_shown_then_put_back_and_recorded(shell: Shell, frames: Frames) -> None:
    queue = frames.queue()
    bury(queue, "timeout 1", "timeout 2", "no such address")
    redrive = (
        "spark",
        "redrive",
        QUEUE,
        "--where",
        "reason LIKE 'timeout%' AND died > current_timestamp() - INTERVAL 1 HOUR",
    )
    titles, *rows, last = shell(*redrive).stdout.splitlines()
    assert titles.split() == ["id", "died", "kind", "attempts", "reason"]
    died = {row.split()[1] for row in rows}
    assert died == {iso(instant(letter.died)) for letter in queue.dead_letters() if letter.reason.startswith("timeout")}
    assert last == "2 dead letters of queue emails would be put back: add --apply to put them back"
    assert shell.json(*redrive) == {"queue": QUEUE, "dry_run": True, "chosen": 2, "kinds": {"rejected": 2}}
    assert (queue.counts().dead, list(Path().glob("*.jsonl"))) == (3, [])
    told = shell.json(*redrive, "--apply", "--audit", "audits/today.jsonl")
    assert (told["redriven"], told["audit"], queue.counts().dead, queue.counts().waiting) == (
        2,
        "audits/today.jsonl",
        1,
        2,
    )
    lines = [json.loads(line) for line in Path("audits/today.jsonl").read_text().splitlines()]
    assert [line["what"] for line in lines] == ["redriving", "redriven"]
    assert set(lines[0]["ids"]) == {str(found.id) for found in queue.peek(10)}
    assert shell(*redrive, "--apply").stdout == "put back 0 dead letters of queue emails\n"
    assert shell(*redrive).stdout == "queue emails has no such dead letters\n"


def test_a_redrive_that_fails_says_how_far_it_came_and_where_that_is_recorded(
    shell: Shell, frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = frames.queue()
    bury(queue, *["timeout"] * 30)
    pages = itertools.count(1)

    def failing(core: Any, page: Any, **options: Any) -> Any:  # noqa: ANN401 - as the one that it stands for
        if next(pages) == 3:
            message = "no node is reachable"
            raise StoreUnavailable(message)
        return redrive_page(core, page, **options)

    monkeypatch.setattr(redrive, "redrive_page", failing)
    told = shell.error("spark", "redrive", QUEUE, "--where", "true", "--apply", "--rate", "100", code=3)
    assert told == (
        "no node is reachable. 20 dead letters of queue emails had been put back before; "
        "their ids are recorded in emails.redriven.jsonl"
    )
    assert queue.counts().dead == 10


def test_a_condition_that_is_none_is_reported_in_a_sentence(
    shell: Shell, frames: Frames, capfd: pytest.CaptureFixture[str]
) -> None:
    bury(frames.queue(), "timeout")
    for where, code, told in (
        (
            "colour = 'red'",
            2,
            r"^\"colour = 'red'\" is not a condition .*: A column.* with name `colour` .*; their columns are id, queue",
        ),
        (
            "reason LIKE (",
            2,
            r"^'reason LIKE \(' is not a condition over dead letters: Syntax error at or near end of input; their",
        ),
        ("1 / 0 = 1", 1, "^Division by zero"),
    ):
        assert re.search(told, shell.error("spark", "redrive", QUEUE, "--where", where, "--apply", code=code)), where
    assert "SQLQueryContextLogger" not in capfd.readouterr().err
    assert "there are: emails" in shell.error("spark", "redrive", "nowhere", "--where", "true", code=1)


class Yesterday:
    """A queue with all of its history, to which things happened yesterday: the day is over, whenever this runs."""

    def __init__(self, url: str) -> None:
        self.begins = SystemClock().now() // _DAY * _DAY - _DAY
        self._url = url

    @property
    def day(self) -> tuple[str, str, str, str]:
        """The options that name it."""
        return "--since", instant(self.begins).isoformat(), "--until", instant(self.begins + _DAY).isoformat()

    def live(self, *outcomes: str, since: int | None = None) -> None:
        """Have messages end so, one a minute, from noon on or from some other moment."""
        clock = TimeMachine(instant(self.begins + _DAY // 2 if since is None else since))
        with connect(self._url, clock=clock) as connection:
            queue = connection.queue(QUEUE, time_shards=1, concurrency_shards=1, history="all")
            for outcome in outcomes:
                queue.send({"to": outcome}, headers={"task": "welcome"})
                clock.advance("5s")
                [delivery] = queue.receive()
                clock.advance("1s")
                delivery.ack() if outcome == "done" else delivery.reject(outcome)
                clock.advance("54s")


@pytest.fixture
def yesterday(frames: Frames) -> Yesterday:
    return Yesterday(frames.url)


def rows(spark: SparkSession, table: Table) -> list[Row]:
    """What a table in the folder `lake` holds."""
    found = spark.read.schema(table.schema).parquet(str(Path("lake", table.name).absolute()))
    return sorted(found.collect(), key=str)


def minutes(spark: SparkSession, table: Table) -> dict[str, dict[str, int]]:
    """The counts of each minute, each told once."""
    found = [row for row in rows(spark, table) if row["grain"] == "minute"]
    counts = [field.name for field in COUNTS]
    told = {row["member"]: {name: row[name] for name in counts} for row in found}
    assert len(told) == len(found)
    return told


def test_a_history_becomes_tables_and_a_page_and_a_day_that_is_built_again_is_the_same(
    shell: Shell, spark: SparkSession, yesterday: Yesterday
) -> None:
    yesterday.live("done", "done", "no such address")
    told = shell("pipeline", "run", "--out", "lake", "--report", "pages/report.html").stdout.splitlines()
    day = instant(yesterday.begins).date()
    assert told[0].startswith(f"built {day} from 9 events, read up to ")
    assert told[2].split()[:4] == [QUEUE, "3", "2", "1"]
    assert told[3] == "the report is in pages/report.html"
    assert "no such address" in Path("pages/report.html").read_text()
    attempts = rows(spark, ATTEMPTS)
    assert sorted((row["outcome"], row["ran"]) for row in attempts) == [
        ("dead", SECOND),
        ("done", SECOND),
        ("done", SECOND),
    ]
    before = {table: rows(spark, table) for table in TABLES if table is not LIVE}
    again = shell.json("pipeline", "run", "--out", "lake", *yesterday.day)
    assert again == {"days": 1, "events": 9, "out": "lake"}
    assert {table: rows(spark, table) for table in before} == before


@pytest.mark.full
def test_a_stream_tells_of_minutes_what_the_batch_job_does_and_goes_on_where_it_was(
    shell: Shell, spark: SparkSession, yesterday: Yesterday
) -> None:
    stream = ("pipeline", "stream", "--out", "lake", "--once", "--since", instant(yesterday.begins).isoformat())
    yesterday.live("done", "no such address", "done", "done", "done")
    assert shell.json(*stream) == {"queues": [QUEUE], "out": "lake"}
    shell("pipeline", "run", "--out", "lake", *yesterday.day)
    first, facts = minutes(spark, LIVE), minutes(spark, FACTS)
    # The last event is of 12:04:06, so that only what was before 12:02:06 is settled.
    assert first == {minute: facts[minute] for minute in sorted(facts)[:2]}
    yesterday.live("done", since=SystemClock().now() - _LAG)
    shell(*stream)
    assert minutes(spark, LIVE) == facts
    assert len(facts) == 5


def test_a_stream_may_begin_with_the_first_moment_there_is(
    shell: Shell, frames: Frames, starts_asked_for: list[int]
) -> None:
    frames.queue()
    shell("pipeline", "stream", "--out", "lake", "--once", "--since", "1970-01-01T00:00:00Z")
    assert starts_asked_for == [0]


def test_a_pipeline_without_anything_to_read_says_so(shell: Shell, frames: Frames) -> None:
    nothing = "this store has no queues, so there is no history to read"
    assert shell.error("pipeline", "run", "--out", "lake", code=1) == nothing
    frames.queue()
    refused = "s3://lake: tables are kept in a folder that this machine and Spark workers share: give its path"
    assert refused in shell("pipeline", "run", "--out", "s3://lake", code=2).stderr
    assert "no queue 'nowhere'; there are: emails" in shell.error(
        "pipeline", "stream", "--out", "lake", "-Q", "nowhere", code=1
    )
    told = shell("pipeline", "run", "--out", "lake")
    assert told.stdout == "nothing new was read\n"
    remedy = "to keep all from now on: astyqueue queues set emails history=all"
    assert told.stderr == f"queue emails keeps only failures in its history; {remedy}\n"


def test_a_folder_without_tables_has_no_report(shell: Shell) -> None:
    told = shell.error("pipeline", "report", "--out", "lake", code=1)
    assert told == "no tables in lake: create them with astyqueue pipeline run --out lake"
    assert not Path("report.html").exists()
