"""The page on JSON output has each field that a command prints with `--json`, with its type, and no other field."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from astyqueue import Delivery, MessageQueue, ids
from astyqueue.cli import main
from astyqueue.cli.commands import pipeline, spark
from astyqueue.clock import SystemClock
from astyqueue.durations import as_microseconds
from astyqueue.errors import BadInput
from astyqueue.journal import Journal
from astyqueue.model.envelope import FORMAT, MessageId
from astyqueue.model.event import FLAT, Event, Kind
from astyqueue.model.presence import KindLoad, Presence, RunningTask, WorkerState
from astyqueue.model.views import RedriveReport
from astyqueue.protocol.coordination.presence import report
from astyqueue.protocol.history import batches_of, event_name, record_events
from astyqueue.protocol.layout.columns import message_name
from astyqueue.protocol.steps import run
from astyqueue.queue.connection import Connection, connect
from astyqueue.spark import file_import, redrive
from astyqueue.spark.pipeline import batch, manifest, streaming
from astyqueue.store import HISTORY, Batch, Put
from astyqueue.units import SECOND
from tests.support.places import ONE_ROW
from tests.unit.cli.conftest import Shell
from tests.unit.cli.reference import commands
from tests.unit.spool.conftest import Gate

PAGE: Final = Path(__file__).parents[3] / "docs/reference/json.md"
SECTIONS: Final = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)+)", PAGE.read_text(), re.MULTILINE))
HEAD: Final = "| field | type | meaning |"
ROW: Final = "emails:0:0"
#: Of a message that this release cannot read.
NEWER: Final = b"\x63newer"
#: The body of messages, schedules and records.
BODY: Final = "what is confidential"
#: Stands for the value of a field that an object does not have.
ABSENT: Final = object()
_MOMENT: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"


def is_duration(value: object) -> bool:
    with contextlib.suppress(BadInput):
        return isinstance(value, str) and as_microseconds(value) >= 0
    return False


#: What the page calls the kinds of values.
KINDS: Final[Mapping[str, Callable[[object], bool]]] = {
    "text": lambda value: isinstance(value, str) and not re.match(_MOMENT, value),
    "number": lambda value: type(value) is int,
    "microseconds": lambda value: type(value) is int,
    "flag": lambda value: isinstance(value, bool),
    "moment": lambda value: isinstance(value, str) and bool(re.fullmatch(rf"{_MOMENT}\.\d{{6}}Z", value)),
    "duration": is_duration,
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "JSON": lambda _: True,
}

Printed = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Field:
    """What the page says of a field."""

    kind: str
    may_be_null: bool = False
    may_be_absent: bool = False

    @classmethod
    def read(cls, cell: str) -> Field:
        kind, *others = cell.split(" or ")
        assert {*others} <= {"null", "absent"}, cell
        return cls(kind, "null" in others, "absent" in others)

    def fits(self, value: object) -> bool:
        """Whether the field may have this value."""
        if value is ABSENT or (value is None and self.kind != "JSON"):
            return self.may_be_absent if value is ABSENT else self.may_be_null
        return KINDS[self.kind](value)


Table = dict[str, Field]


def tables(section: str) -> list[Table]:
    """The tables of fields in a section."""
    found: list[Table] = []
    for line in section.splitlines():
        if line == HEAD:
            found.append({})
        elif found and line.startswith("| `"):
            names, kind, _ = (cell.strip() for cell in line.strip("| ").split(" | ", 2))
            found[-1].update(dict.fromkeys(re.findall(r"`([^`]+)`", names), Field.read(kind)))
    return found


def other_names() -> list[tuple[str, str, str]]:
    """A command, a column of its table, and the field that it has there."""
    rows = re.findall(r"^\| (`.+`) \| (.+) \| `(.+)` \|$", SECTIONS["Other names in tables"], re.MULTILINE)
    return [(command, column, field) for names, column, field in rows for command in re.findall(r"`([^`]+)`", names)]


OTHER_NAMES: Final = other_names()


def names_at(known: Table, prefix: str) -> set[str]:
    """The names of the fields that an object at this place has."""
    return {rest for name in known if name.startswith(prefix) and re.fullmatch(r"\w+", rest := name[len(prefix) :])}


def inside(place: str, value: object, known: Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects inside a value of which the table has the fields, and how it calls their place."""
    if isinstance(value, list) and names_at(known, f"{place}[]."):
        yield from ((f"{place}[].", one) for one in value)
    named = [name for name in known if re.match(rf"{re.escape(place)}\.[A-Z]+\.", name)]
    if isinstance(value, dict) and named:
        prefix = named[0].rpartition(".")[0] + "."
        yield from ((prefix, one) for one in value.values())


def values(printed: Mapping[str, Any], known: Table, prefix: str = "") -> Iterator[tuple[str, object]]:
    """The fields of an object and of those inside it, with their values; ABSENT for one that it does not have."""
    for name in sorted(names_at(known, prefix) | printed.keys()):
        place, value = f"{prefix}{name}", printed.get(name, ABSENT)
        yield place, value
        for deeper, one in inside(place, value, known):
            yield from values(one, known, deeper)


def differences(objects: list[dict[str, Any]], known: Table) -> Iterator[str]:
    """What of a table is not true of these objects."""
    found = [one for printed in objects for one in values(printed, known)]
    for place, value in found:
        if place not in known:
            yield f"{place} is not in the table"
        elif not known[place].fits(value):
            yield f"{place} is {known[place].kind} on the page, and was {'absent' if value is ABSENT else value!r}"
    for place, field in known.items():
        seen = [value for name, value in found if name == place and value is not ABSENT]
        if not seen:
            yield f"{place} was never printed"
        elif field.may_be_null and None not in seen:
            yield f"{place} was never null"
        elif field.may_be_absent and (place, ABSENT) not in found:
            yield f"{place} was never absent"


def told_apart(objects: list[dict[str, Any]], forms: list[Table]) -> list[list[dict[str, Any]]]:
    """The objects of each table: those that have no field beyond it, of the first table that fits."""
    of_tables: list[list[dict[str, Any]]] = [[] for _ in forms]
    for printed in objects:
        fitting = [place for place, known in enumerate(forms) if printed.keys() <= known.keys()]
        of_tables[fitting[0] if fitting else 0].append(printed)
    return of_tables


class Recorder:
    """Runs commands with `--json`, and keeps what each has printed."""

    def __init__(self) -> None:
        self.printed: Printed = {}
        self.tables: dict[str, str] = {}
        self._shell = Shell()

    def __call__(self, command: str, *words: str, stdin: str | None = None, code: int = 0) -> list[dict[str, Any]]:
        if command in {command for command, _, _ in OTHER_NAMES}:  # none of which changes anything
            self.tables[command] = self._shell(*command.split(), *words).stdout
        result = self._shell(*command.split(), "--json", *words, stdin=stdin, code=code)
        objects = [json.loads(line) for line in result.stdout.splitlines()]
        self.printed.setdefault(command, []).extend(objects)
        return objects


def send_messages(queue: MessageQueue) -> list[Delivery]:
    """Dead letters, one of them unreadable, messages in several states, and one that cannot be read; those leased."""
    queue.send(BODY, key="welcome", group="ada", headers={"task": "welcome"}, expires="1h")
    queue.receive()[0].reject("no such address")
    put_unreadable(queue)
    assert not queue.receive()
    queue.send(BODY)
    queue.receive()[0].fail("it was busy", delay="1h")
    queue.send(BODY, key="leased", group="bob", expires="1h")
    leased = [*queue.receive()]
    queue.send(BODY, key="welcome")
    queue.send(BODY, delay="1h")
    put_unreadable(queue)
    return leased


def put_unreadable(queue: MessageQueue) -> None:
    """Have a later release send a message."""
    queue.store.commit(Batch(ROW, (Put(message_name(0, ids.at(SystemClock().now())), NEWER),)), ())


def record_all_of_an_event(queue: MessageQueue) -> None:
    """Events with every field that one can have, one of them of a later release."""
    now = SystemClock().now()
    full = Event(
        now, Kind.DONE, "emails", MessageId.parse(f"{ROW}/0/9d3d3ddc-e59b-11f1-8fbf-bd1965e21e21"), key="k", attempt=1,
        worker="web-1:7:9f2c01", task="welcome", schedule="digest", tenant="acme", sent=now - 4, due=now - 3,
        claimed=now - 2, began=now - 1, until=now, slot=now, why="rejected", reason="no user 7", trace="Traceback",
        lost=True,
    )  # fmt: skip
    queue.run(record_events(queue.core.ring, [full], 600 * SECOND))
    later = Event(now, Kind.SENT, "emails", key="later")
    [batch] = batches_of(queue.core.ring, [later], 600 * SECOND)
    put = Put(event_name(later), FORMAT + b'{"colour": "red"}', ttl=600)
    queue.store.send(Batch(batch.row, (put,), table=HISTORY))


def report_workers(connection: Connection) -> None:
    """Two workers, of which one reports all that it can."""
    now = SystemClock().now()
    running = [RunningTask("emails", "welcome", f"{ROW}/0/x", now)]
    ann = Presence("web-1:7:9f2c01", "web-1", 7, "1.0", now, WorkerState.RUNNING, ["emails"], 1, 8, 1, running,
                   standby=["emails"], limits={"emails": 2}, kinds={"thread": KindLoad(1, 8)})  # fmt: skip
    bob = Presence("web-2:8:aaaaaa", "web-2", 8, "1.0", now, WorkerState.QUIET, ["emails"], 1, 8, 0, [])
    for one in (ann, bob):
        run(report(one), connection.store)


def show_messages(record: Recorder, leased: Delivery) -> None:
    record("peek", "emails", "--include", "all")
    record("browse", "emails")
    record("find", "emails", "welcome")
    for letter in record("dead list", "emails"):
        record("dead show", letter["id"])
        record("get", letter["id"])
    for one in record.printed["browse"]:
        record("get", one["id"])
        record("explain", one["id"])
    record("explain", str(leased.message_id._replace(id=ids.at(SystemClock().now()))))
    record("history", "emails")
    record("counts")


def show_the_store(record: Recorder) -> None:
    record("queues list")
    record("queues show", "emails")
    record("queues set", "emails", "max_attempts=6")
    record("queues permits", "emails")
    record("workers list")
    for command in ("drain", "quiet", "resume", "stacks"):
        record(f"workers {command}", "web-1")
    record("doctor", code=10)
    record("verify")
    record("migrate")


def use_schedules(record: Recorder, folder: Path) -> None:
    record("schedules add", "emails", "digest", "--every", "1h", "--body", f'"{BODY}"', "--key", "digest")
    for command in ("pause", "resume", "run"):
        record(f"schedules {command}", "emails", "digest")
    record("schedules add", "emails", "other", "--every", "1h")
    record("schedules pause", "emails", "other")
    record("schedules list", "emails")
    record("schedules show", "emails", "digest")
    record("schedules next", "emails", "digest", "--count", "2")
    record("schedules backfill", "emails", "digest", "--since", "1h", "--until", "0s")
    record("schedules delete", "emails", "other")
    module = f"shop_{secrets.token_hex(4)}"
    (folder / f"{module}.py").write_text(
        'from astyqueue import App\n\napp = App(name="shop")\napp.every("1h", name="report", queue="emails")(print)\n'
    )
    record("schedules reconcile", module)


def use_journals(record: Recorder, connection: Connection, folder: Path) -> None:
    with Journal.open(folder / "journal") as journal:
        journal.append(BODY)
        journal.cursor("shipping")
    record("journal tail", "journal")
    record("journal stat", "journal")
    record("journal verify", "journal")
    record("journal replay", "journal", "emails")
    record("journal reclaim", "journal", "--retain", "0s", "--yes")
    store = Gate(connection.store)
    with MessageQueue.builder().store(store).name("orders").spool(folder / "spool").build() as queue:
        queue.send(BODY)
        assert queue.spool.drain("10s")
    with MessageQueue.builder().store(store).name("emails").spool(folder / "spool").build() as queue:
        store.is_away = True
        queue.send(BODY)
        assert not queue.spool.drain("1s")
    record("spool status", "spool")
    record("spool drain", "spool")


def change_messages(record: Recorder) -> None:
    [sent] = record("send", "emails", f'"{BODY}"', "--key", "mine", "--unique", "keep")
    record("send", "emails", f'"{BODY}"', "--key", "mine", "--unique", "keep")
    record("send", "emails", "--lines", "-", stdin=f'"{BODY}"\n')
    record("delete", sent["id"])
    record("rescan", "emails")
    record("dead redrive", "emails", "--dry-run")
    record("dead purge", "emails", "--yes")
    record("clear", "emails", "--yes")
    record("drop", "emails", "--yes")


def use_spark(record: Recorder, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The commands that need Spark, without it: with the results that it would have."""
    for module in (spark, pipeline):
        patch.setattr(module, "spark_session", lambda *_, **__: contextlib.nullcontext())
    patch.setattr(file_import, "Bulk", lambda *_: SimpleNamespace(send=lambda *_: file_import.Enqueued(1, 1, 0)))
    folder.joinpath("rows.csv").write_text("id\n1\n")
    record("spark enqueue", "rows.csv", "--queue", "orders", "--id-column", "id")
    query = SimpleNamespace(
        look=lambda: redrive.Chosen({"failed": 1}, []), carry_out=lambda *_, **__: RedriveReport(1, 0)
    )
    patch.setattr(redrive, "RedriveByQuery", lambda *_, **__: query)
    record("spark redrive", "orders", "--where", "true")
    record("spark redrive", "orders", "--where", "true", "--apply")
    patch.setattr(batch, "Job", lambda *_, **__: SimpleNamespace(run=lambda *_: batch.Built()))
    patch.setattr(streaming, "Stream", lambda *_, **__: SimpleNamespace(start=lambda *_, **__: []))
    record("pipeline run", "--out", "lake", "-Q", "orders")
    record("pipeline stream", "--out", "lake", "-Q", "orders", "--once")
    manifest.store(folder / "lake", manifest.Manifest(queues={"orders": manifest.ReadSoFar(until_us=0)}))
    record("pipeline report", "--out", "lake")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    """What every command prints with `--json` on a store that has something of everything."""
    folder = tmp_path_factory.mktemp("reference")
    url = f"sqlite:///{folder}/work.db?synchronous=normal"
    with pytest.MonkeyPatch.context() as patch, connect(url) as connection:
        patch.setenv("ASTYQUEUE_URL", url)
        patch.chdir(folder)
        queue = connection.queue("emails", **ONE_ROW, history="all", max_active_processes=1)
        record = Recorder()
        [leased] = send_messages(queue)
        record_all_of_an_event(queue)
        report_workers(connection)
        show_messages(record, leased)
        show_the_store(record)
        use_schedules(record, folder)
        use_journals(record, connection, folder)
        change_messages(record)
        use_spark(record, folder, patch)
        yield record


def test_every_command_that_prints_json_is_on_the_page_once() -> None:
    all_of_them = {typed.removeprefix("astyqueue "): command for typed, command in commands(main)}
    has_json = [
        name for name, command in all_of_them.items() if any(option.name == "as_json" for option in command.params)
    ]
    assert all_of_them.keys() - {*has_json} == {"worker"}
    on_the_page = [command for heading in SECTIONS if tables(SECTIONS[heading]) for command in heading.split(", ")]
    assert sorted(on_the_page) == sorted(has_json)


@pytest.mark.parametrize("heading", [heading for heading, section in SECTIONS.items() if tables(section)])
def test_commands_print_the_fields_in_their_table(recorded: Recorder, heading: str) -> None:
    printed = recorded.printed
    names, forms = heading.split(", "), tables(SECTIONS[heading])
    assert [name for name in names if not printed[name]] == []
    of_tables = told_apart([one for name in names for one in printed[name]], forms)
    for objects, known in zip(of_tables, forms, strict=True):
        assert sorted({*differences(objects, known)}) == []


def test_bodies_are_printed_only_where_the_page_has_a_field_for_them(recorded: Recorder) -> None:
    with_bodies = {
        command
        for heading, section in SECTIONS.items()
        if any({"body", "value"} & known.keys() for known in tables(section))
        for command in heading.split(", ")
    }
    assert {command for command, printed in recorded.printed.items() if BODY in json.dumps(printed)} == with_bodies


def test_the_fields_of_an_event_are_those_of_the_history() -> None:
    [known] = tables(SECTIONS["history"])
    assert known.keys() == FLAT.keys()
    kinds = {"instant": "moment", "length": "microseconds"}
    assert {name: field.kind for name, field in known.items()} == {
        name: kinds.get(kind, kind) for name, kind in FLAT.items()
    }


@pytest.mark.parametrize(("command", "column", "field"), OTHER_NAMES)
def test_a_column_of_a_table_has_another_name_than_its_field(
    recorded: Recorder, command: str, column: str, field: str
) -> None:
    assert re.search(rf"(?:^|  ){column}(?:  |$)", recorded.tables[command], re.MULTILINE)
    assert all(field in printed for printed in recorded.printed[command] if command != "history")
    assert any(field in printed for printed in recorded.printed[command])
