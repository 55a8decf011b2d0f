"""Hundreds of messages that fare at random: Spark's tables say what plain Python says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from astyqueue.clock import instant
from astyqueue.model.event import Event, Kind
from astyqueue.spark.pipeline.enrich import marked
from astyqueue.spark.pipeline.messages import messages, with_messages
from astyqueue.spark.pipeline.slo import Objectives
from astyqueue.spark.pipeline.transforms import facts
from astyqueue.units import SECOND
from tests.spark.pipeline.histories import Life, frame, told

QUEUES = ("emails", "reports")
LIMIT = 2 * SECOND


def fared(chance: random.Random, number: int) -> Life:
    """A message to which anything may happen."""
    at = chance.uniform(0, 200)
    queue, task, row = chance.choice(QUEUES), chance.choice("abc"), chance.randrange(3)
    life = Life(
        str(number), at, queue=queue, task=task, row=f"{queue}:0:{row}", tenant=chance.choice(["acme", "globex"])
    )
    for attempt in range(1, 5):
        at += chance.expovariate(0.5)
        began = at + chance.uniform(0, 0.2)
        life.claimed(at, f"host{chance.randrange(3)}:1:aa", began=began)
        at = began + chance.expovariate(0.3)
        fates = {
            "done": 50,
            "failed": 15,
            "rejected": 5,
            "lapsed": 5,
            "nothing": 5,
            "again": 5,
            "given back": 10,
            "deleted": 5,
        }
        match chance.choices(list(fates), list(fates.values()))[0]:
            case "done":
                return life.done(at)
            case "failed":
                life.failed(at, f"no user {number}", dies=attempt == 4)
            case "rejected":
                return life.rejected(at, "no such thing")
            case "lapsed":
                life.lapsed(at)
            case "nothing":
                return life
            case "again":
                life.done(at)
            case "given back":
                life.released(at)
            case "deleted":
                return life.cancelled(at)
    return life


class Plain:
    """The same figures, counted event by event."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.counts: Counter[tuple[str, str, str, str]] = Counter()
        self.values: dict[tuple[str, str, str, str], list[int]] = {}
        last_done = {
            event.message: event.at for event in sorted(events, key=lambda event: event.at) if event.kind is Kind.DONE
        }
        self.first_began: dict[object, int] = {}
        for event in events:
            if event.began is not None:
                self.first_began[event.message] = min(event.began, self.first_began.get(event.message, event.began))
        after_failure: set[object] = set()
        sent = {event.message: event for event in events if event.kind is Kind.SENT}
        for event in events:
            counts = event.kind is not Kind.DONE or last_done[event.message] == event.at
            explained = event.kind is Kind.DEAD and event.message in after_failure
            after_failure = (
                (after_failure | {event.message}) if event.kind is Kind.FAILED else (after_failure - {event.message})
            )
            about = sent[event.message]
            for place in places(replace(event, task=about.task, tenant=about.tenant)):
                self.add(place, event, counts=counts, explained=explained)

    def add(self, place: tuple[str, str, str], event: Event, *, counts: bool, explained: bool) -> None:
        name = "expired" if event.why == "lapsed" else str(event.kind)
        self.counts[(*place, name)] += counts
        ends = name in {"done", "failed", "released"} or (name == "dead" and not explained)
        if (
            ends
            and event.due is not None
            and event.began is not None
            and event.began == self.first_began[event.message]
        ):
            self.values.setdefault((*place, "wait"), []).append(event.began - event.due)
        if ends and event.began is not None:
            self.values.setdefault((*place, "run"), []).append(event.at - event.began)
        if counts and event.took is not None:
            self.values.setdefault((*place, "end"), []).append(event.took)


def places(event: Event) -> Iterable[tuple[str, str, str]]:
    assert event.message is not None
    minute = f"{instant(event.at):%Y-%m-%dT%H:%MZ}"
    members = {
        "minute": minute,
        "queue": event.queue,
        "task": event.task,
        "host": event.host,
        "tenant": event.tenant,
        "row": event.message.row,
    }
    yield from ((event.queue, grain, member) for grain, member in members.items() if member)


def quantile(values: list[int], share: float) -> float:
    """Between the two nearest values, in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])
def test_facts_of_random_histories_are_those_that_plain_python_counts(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    events = told(*(fared(chance, number) for number in range(300)))
    plain = Plain(events)
    chance.shuffle(events)
    known = marked(frame(spark, events)).persist()
    once = with_messages(known, messages(known))
    found = {
        (row["queue"], row["grain"], row["member"]): row for row in facts(once, Objectives.read(["wait<=2s"])).collect()
    }
    assert {place[:3] for place in plain.counts} - found.keys() == set()
    for place, row in found.items():
        if row["grain"] == "hour":
            continue
        names = ("sent", "done", "dead", "retried", "failed", "released", "cancelled", "expired")
        assert {name: row[name] for name in names} == {name: plain.counts[(*place, name)] for name in names}
        for name in ("wait", "run", "end"):
            values = plain.values.get((*place, name), [])
            expected = [quantile(values, share) for share in (0.5, 0.95, 0.99)] if values else [None] * 3
            assert [row[f"{name}_{part}"] for part in ("p50", "p95", "p99")] == pytest.approx(expected)
        waits = plain.values.get((*place, "wait"), [])
        assert (row["objective_of"], row["objective_met"]) == (len(waits), sum(wait <= LIMIT for wait in waits))
    assert messages(known).count() == 300
    known.unpersist()
