from __future__ import annotations

import json
import os
import stat
from concurrent.futures import Future, ThreadPoolExecutor, wait
from csv import writer
from pathlib import Path
from threading import Event

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from astyqueue.errors import BadInput
from astyqueue.files import replace_file
from astyqueue.spark import file_import
from astyqueue.spark.file_import import Bulk, Manifest, Progress, SourceFile, place_of
from tests.spark.frames import Frames, drained

pytestmark = pytest.mark.stores("sqlite", "cassandra")
TARGET = {"queue": "emails", "id_column": "id"}


def bulk(frames: Frames, folder: Path) -> Bulk:
    return Bulk(frames.spark, {"url": frames.url, **TARGET}, Manifest.load(folder / "manifest.json", TARGET))


def csv(folder: Path, name: str, numbers: range) -> SourceFile:
    path = folder / name
    path.write_text("id,name\n" + "".join(f"{number},00{number}\n" for number in numbers))
    return SourceFile.of(path)


def test_rows_of_files_become_messages_and_text_stays_text(frames: Frames, tmp_path: Path) -> None:
    queue = frames.queue()
    lines = tmp_path / "more.jsonl"
    lines.write_text("".join(json.dumps({"id": number, "to": [number]}) + "\n" for number in (7, 8)))
    table = tmp_path / "table.parquet"
    frames.rows(3, tasks=1).selectExpr("id + 100 AS id").write.parquet(table.as_uri())
    [part] = table.glob("*.parquet")
    told: list[Progress] = []
    done = bulk(frames, tmp_path).send(
        [csv(tmp_path, "some.csv", range(2)), SourceFile.of(lines), SourceFile.of(part)], told.append
    )
    bodies = drained(queue)
    assert (done.rows, done.files, done.skipped) == (len(bodies), 3, 0)
    texts = [{"id": "0", "name": "000"}, {"id": "1", "name": "001"}]
    nested, plain = (
        [{"id": number, "to": [number]} for number in (7, 8)],
        [{"id": number} for number in (100, 101, 102)],
    )
    assert sorted(map(str, bodies)) == sorted(map(str, [*texts, *nested, *plain]))
    assert told[-1].sent == told[-1].total
    assert [one.sent for one in told] == sorted(one.sent for one in told)


def test_a_file_may_have_any_name(frames: Frames, tmp_path: Path) -> None:
    queue = frames.queue()
    names = ("my users.csv", "übung 100%.csv", "users[1]*.csv", "a{b,c}?.csv", "back\\slash.csv")
    done = bulk(frames, tmp_path).send(
        [csv(tmp_path, name, range(place, place + 1)) for place, name in enumerate(names)]
    )
    assert (done.rows, len(drained(queue))) == (len(names), len(names))


def test_a_run_that_broke_off_goes_on_where_it_was(frames: Frames, tmp_path: Path) -> None:
    queue = frames.queue()
    first, broken = csv(tmp_path, "first.csv", range(10)), csv(tmp_path, "second.csv", range(10, 20))
    whole = broken.path.read_text()
    broken.path.write_text(whole + "30,1,too,many\n")
    with pytest.raises((PySparkException, Py4JError)):
        bulk(frames, tmp_path).send([first, broken])
    assert len(drained(queue)) >= 10
    broken.path.write_text(whole + "20,0020\n")
    done = bulk(frames, tmp_path).send([first, broken])
    assert (done.rows, done.files, done.skipped) == (11, 1, 1)
    rest = {body["id"] for body in drained(queue) if isinstance(body, dict)}
    assert rest <= {str(number) for number in range(10, 21)}
    assert "20" in rest
    assert bulk(frames, tmp_path).send([first, broken]).skipped == 2
    assert drained(queue) == []


def test_a_file_that_changes_before_all_of_it_was_sent_is_not_recorded_as_sent(frames: Frames, tmp_path: Path) -> None:
    queue = frames.queue()
    first, second = csv(tmp_path, "first.csv", range(3)), csv(tmp_path, "second.csv", range(3, 6))
    before = second.path.read_text()

    def grown(now: Progress) -> None:
        if (now.file, now.sent) == ("first.csv", first.size):
            csv(tmp_path, "second.csv", range(6, 9))

    with pytest.raises(BadInput, match=r"changed while .*again"):
        bulk(frames, tmp_path).send([first, second], grown)
    second.path.write_text(before)
    assert bulk(frames, tmp_path).send([first, second]).skipped == 1
    ids = {str(body["id"]) for body in drained(queue) if isinstance(body, dict)}
    assert ids >= {str(number) for number in range(6)}


def test_a_file_is_not_sent_without_a_column_of_ids(frames: Frames, tmp_path: Path) -> None:
    queue, users, manifest = frames.queue(), csv(tmp_path, "users.csv", range(2)), tmp_path / "manifest.json"

    def send(**target: str) -> None:
        Bulk(frames.spark, {"url": frames.url, **target}, Manifest.load(manifest, target)).send([users])

    with pytest.raises(BadInput, match=r"^users\.csv, .* text, has no column 'user'; it has 'id', 'name'"):
        send(queue="emails", id_column="user")
    assert not manifest.exists()
    with pytest.raises(AnalysisException, match="needs the option 'id_column': the column with an id of your own"):
        send(queue="emails")
    assert queue.counts().total == 0


def test_quotes_in_a_csv_file_are_doubled_as_spreadsheets_write_them(frames: Frames, tmp_path: Path) -> None:
    queue = frames.queue()
    path = tmp_path / "quoted.csv"
    names = ['he said "hi"', 'a "b", c', '"', "back\\slash", "ends \\"]
    with path.open("w", newline="") as file:
        writer(file).writerows([("id", "name"), *enumerate(names)])
    bulk(frames, tmp_path).send([SourceFile.of(path)])
    found = {body["id"]: body["name"] for body in drained(queue) if isinstance(body, dict)}
    assert found == {str(number): name for number, name in enumerate(names)}


class Committing(Bulk):
    """A run whose only stage has ended when it is looked at again, while the sink still commits."""

    looks = 0

    def _part_done(self) -> float:
        self.looks += 1
        return 1.0 if self.looks == 1 else 0.0


def test_progress_never_goes_back_while_the_sink_commits(tmp_path: Path) -> None:
    told: list[float] = []
    looked_again = Event()

    def progress(part: float) -> None:
        told.append(part)
        if len(told) > 1:
            looked_again.set()

    committing = Committing(None, TARGET, Manifest(tmp_path / "manifest.json"))  # type: ignore[arg-type]  # nothing is asked of Spark
    with committing._watched(progress):  # noqa: SLF001 - what a user sees of it depends on when Spark is looked at
        looked_again.wait()
    assert told == sorted(told)


def test_a_manifest_is_of_one_run(tmp_path: Path) -> None:
    Manifest.load(tmp_path / "manifest.json", TARGET).save()
    with pytest.raises(BadInput, match="the manifest of another run"):
        Manifest.load(tmp_path / "manifest.json", TARGET | {"queue": "letters"})
    (tmp_path / "edited.json").write_text('{"run": "r", "target": "x"}')
    with pytest.raises(BadInput, match="is not a manifest"):
        Manifest.load(tmp_path / "edited.json", TARGET)
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(BadInput, match="is not a manifest"):
        Manifest.load(tmp_path / "other.json", TARGET)


def target(url: str) -> dict[str, str]:
    return {"store": place_of(url), **TARGET}


def test_a_manifest_of_a_cassandra_counts_for_each_url_that_has_one_of_its_nodes(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    begun = Manifest.load(path, target("cassandra://ada:p%40w@h1,h2,h3/jobs?tls=1"))
    begun.save()
    assert "ada" not in path.read_text()
    for same in ("cassandra://h3,h1,h2/jobs", "cassandra://bob:pw@h2:9042/jobs?dc=west", "Cassandra://h9,h3/jobs"):
        found = Manifest.load(path, target(same))
        found.save()
        assert found.run == begun.run
    for other in ("cassandra://h1/mail", "cassandra://h4,h5/jobs", "cassandra://h1:9043/jobs", "sqlite:////h1/jobs"):
        with pytest.raises(
            BadInput, match=r"the manifest of another run .* if that is the same store, correct \"store\""
        ):
            Manifest.load(path, target(other))


def test_a_file_of_sqlite_is_named_by_its_whole_path(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    Manifest.load(path, target("sqlite:////home/ada@x/work.db")).save()
    with pytest.raises(BadInput, match="the manifest of another run"):
        Manifest.load(path, target("sqlite:////home/bob@x/work.db"))


def test_of_two_runs_that_begin_at_once_with_one_manifest_one_sends_nothing(tmp_path: Path) -> None:
    path = csv(tmp_path, "users.csv", range(3)).path
    one, other = (Manifest.load(tmp_path / "manifest.json", TARGET) for _ in range(2))
    one.note(one.known([path])[path])
    with pytest.raises(BadInput, match="was begun by another run meanwhile"):
        other.note(other.known([path])[path])
    assert Manifest.load(tmp_path / "manifest.json", TARGET).run == one.run


def test_of_two_runs_that_note_their_first_file_at_the_same_moment_one_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = csv(tmp_path, "users.csv", range(3)).path
    one, other = (Manifest.load(tmp_path / "manifest.json", TARGET) for _ in range(2))
    notes: list[Future[None]] = []

    def write(manifest: Path, content: bytes) -> None:
        """The other run notes its file between the look and the write of the first one."""
        if not notes:
            notes.append(threads.submit(other.note, other.known([path])[path]))
            wait(notes, timeout=0.5)
        replace_file(manifest, content)

    monkeypatch.setattr(file_import, "replace_file", write)
    with ThreadPoolExecutor(1) as threads:
        one.note(one.known([path])[path])
        with pytest.raises(BadInput, match=r"was begun by another run meanwhile.*nothing of this file was sent"):
            notes[0].result(60)
    assert Manifest.load(tmp_path / "manifest.json", TARGET).run == one.run


def test_a_run_whose_manifest_became_that_of_another_says_that_it_sent_the_file(tmp_path: Path) -> None:
    path = csv(tmp_path, "users.csv", range(3)).path
    one = Manifest.load(tmp_path / "manifest.json", TARGET)
    known = one.known([path])[path]
    one.note(known)
    (tmp_path / "manifest.json").unlink()
    Manifest.load(tmp_path / "manifest.json", TARGET).save()
    with pytest.raises(BadInput, match=r"was begun by another run meanwhile.*all 3 rows of this file were sent"):
        one.note(known, 3)


def test_processes_of_one_run_keep_what_each_has_noted(tmp_path: Path) -> None:
    paths = [csv(tmp_path, f"{number}.csv", range(number, 9)).path for number in range(2)]
    Manifest.load(tmp_path / "manifest.json", TARGET).save()
    processes = [Manifest.load(tmp_path / "manifest.json", TARGET) for _ in paths]
    for process, path in zip(processes, paths, strict=True):
        process.note(process.known([path])[path], rows=9)
    assert [one.done for one in Manifest.load(tmp_path / "manifest.json", TARGET).known(paths).values()] == [True, True]


def test_a_manifest_is_its_owners_alone_and_is_not_written_through_a_link(tmp_path: Path) -> None:
    path, theirs = tmp_path / "manifest.json", tmp_path / "theirs"
    theirs.write_text("precious")
    path.with_name("manifest.json.new").symlink_to(theirs)
    Manifest.load(path, TARGET).save()
    assert (stat.S_IMODE(path.stat().st_mode), theirs.read_text()) == (0o600, "precious")


def sent(folder: Path, *names: str) -> list[str]:
    """Send these files as `enqueue` does, but to nowhere; under which names those were that are not passed over."""
    manifest = Manifest.load(folder / "manifest.json", TARGET)
    known = manifest.known([(folder / name).resolve() for name in names])
    left = [one for one in known.values() if not one.done]
    for one in left:
        manifest.note(one)
        manifest.note(one, 10)
    return [one.source for one in left]


def test_a_file_that_was_moved_or_touched_is_not_sent_again(tmp_path: Path) -> None:
    users = csv(tmp_path, "users.csv", range(3)).path
    assert (sent(tmp_path, "users.csv"), sent(tmp_path, "users.csv")) == (["users.csv"], [])
    os.utime(users, (1, 1))
    assert sent(tmp_path, "users.csv") == []
    (tmp_path / "sent").mkdir()
    users.rename(tmp_path / "sent" / "november.csv")
    assert sent(tmp_path, "sent/november.csv") == []
    csv(tmp_path, "users.csv", range(5))
    assert sent(tmp_path, "sent/november.csv", "users.csv") == ["users.csv"]
    assert sent(tmp_path, "sent/november.csv", "users.csv") == []


def test_files_may_be_moved_together_with_their_manifest(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    csv(before, "users.csv", range(3))
    manifest = Manifest.load(before / "manifest.json", TARGET)
    [begun] = manifest.known([before / "users.csv"]).values()
    manifest.note(begun)
    before.rename(after)
    csv(after, "users.csv", range(4))  # what it was broken off for is mended
    assert sent(after, "users.csv") == ["users.csv"]


def test_a_file_that_was_begun_and_moved_goes_on_under_its_first_name(tmp_path: Path) -> None:
    users = csv(tmp_path, "users.csv", range(3)).path
    manifest = Manifest.load(tmp_path / "manifest.json", TARGET)
    [begun] = manifest.known([users]).values()
    manifest.note(begun)
    users.rename(tmp_path / "people.csv")
    assert sent(tmp_path, "people.csv") == ["users.csv"]


def test_a_copy_is_sent_beside_its_original_and_each_once(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        csv(tmp_path, name, range(3))
    assert sent(tmp_path, "a.csv") == ["a.csv"]
    assert sent(tmp_path, "a.csv", "b.csv") == ["b.csv"]
    (tmp_path / "a.csv").rename(tmp_path / "c.csv")
    assert sent(tmp_path, "b.csv", "c.csv") == []


def test_a_manifest_that_knows_files_by_their_paths_is_refused(tmp_path: Path) -> None:
    earlier = {"run": "aa", "target": TARGET, "done": {"/data/users.csv": {"bytes": 10, "changed": 20, "rows": 3}}}
    (tmp_path / "manifest.json").write_text(json.dumps(earlier))
    with pytest.raises(BadInput, match="was written by an earlier version"):
        Manifest.load(tmp_path / "manifest.json", TARGET)


def test_what_the_session_of_its_caller_was_set_to_it_still_is(frames: Frames, tmp_path: Path) -> None:
    frames.queue()
    name = "spark.sql.files.maxPartitionBytes"
    before = frames.spark.conf.get(name)
    bulk(frames, tmp_path).send([csv(tmp_path, "users.csv", range(3))])
    assert frames.spark.conf.get(name) == before


def test_a_file_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not follow from its name"):
        SourceFile.of(tmp_path / "users.xls")


@pytest.mark.parametrize("name", ["_users.csv", ".users.csv"])
def test_a_file_whose_name_spark_passes_over_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="Spark reads no file whose name begins"):
        SourceFile.of(tmp_path / name)
