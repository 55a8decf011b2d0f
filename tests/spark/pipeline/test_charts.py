"""Charts of a report: each mark is where its value belongs, and each label says the value of its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

import pytest

from astyqueue.spark.pipeline.report.charts import Counts, Lengths
from astyqueue.spark.pipeline.report.data import Figures, load
from astyqueue.spark.pipeline.report.html import share
from astyqueue.spark.pipeline.report.sections import skew, warm_hours
from astyqueue.spark.pipeline.schemas import FACTS
from astyqueue.units import SECOND
from tests.spark.pipeline.histories import DAY
from tests.spark.pipeline.test_report_size import NOON, store

HOUR: Final = 3_600 * SECOND


def figures(folder: Path, grain: str, **columns: Sequence[object]) -> Figures:
    """What a report has of a table of facts of this grain."""
    [rows] = {len(column) for column in columns.values()}
    store(folder, FACTS, grain=[grain] * rows, **columns)
    [found] = load(folder)
    return found


def marks(section: Element | None, tag: str, style: str) -> list[Element]:
    assert section is not None
    return [mark for mark in section.iter(tag) if mark.get("class") == style]


def measure(mark: Element, *names: str) -> list[float]:
    return [float(mark.get(name, "nan")) for name in names]


def test_each_hour_has_its_square_in_the_map_of_waits_and_a_longer_wait_is_darker(tmp_path: Path) -> None:
    began = [NOON - 12 * HOUR, NOON + 11 * HOUR, NOON + 24 * HOUR]
    waits = [1.0 * SECOND, 100.0 * SECOND, 10.0 * SECOND]
    section = warm_hours(figures(tmp_path, "hour", began=began, wait_p95=waits))
    squares = [measure(square, "x", "y") for square in marks(section, "rect", "empty")]
    assert len(squares) == 2 * 24
    warm = {squares.index(measure(mark, "x", "y")): mark for mark in marks(section, "rect", "warm")}
    assert {place: mark.findtext("title") for place, mark in warm.items()} == {
        0: "14 Mar 00:00: 1.00 s",
        23: "14 Mar 23:00: 100 s",
        24 + 12: "15 Mar 12:00: 10.0 s",
    }
    short, long, middle = (measure(warm[place], "fill-opacity") for place in (0, 23, 36))
    assert [0.0] < short < middle < long <= [1.0]
    labels = [label.text for label in marks(section, "text", "label")]
    assert labels == ["14 Mar", "15 Mar", *(f"{hour:02}" for hour in range(24))]
    [picture] = [] if section is None else section.iter("svg")
    assert "The longest was 100 s, in the hour from 14 Mar 23:00 on." in picture.get("aria-label", "")


def test_the_map_of_waits_its_sentence_and_its_table_are_about_the_same_days(tmp_path: Path) -> None:
    days = range(32)  # one more than the map has
    section = warm_hours(
        figures(
            tmp_path,
            "hour",
            began=[NOON + day * 24 * HOUR for day in days],
            wait_p95=[1_000.0 * SECOND, *(float(day * SECOND) for day in days[1:])],
        )
    )
    assert section is not None
    assert len(marks(section, "rect", "warm")) == 31
    [note] = marks(section, "p", "note")[:1]
    assert "The longest was 31.0 s, in the hour from 14 Apr 12:00 on." in (note.text or "")
    cells = [cell.text for cell in section.iter("td")]
    assert cells[:4] == ["2026-04-14 12:00", "31.0 s", "2026-04-13 12:00", "30.0 s"]


def test_the_line_of_the_mean_crosses_the_bars_of_rows_where_the_mean_is(tmp_path: Path) -> None:
    rows = ["emails:0:1", "emails:0:0", "emails:1:0"]
    section = skew(figures(tmp_path, "row", member=rows, sent=[2, 6, 0]))
    fullest, other = (measure(bar, "x", "width", "y", "height") for bar in marks(section, "rect", "bar"))
    left, width, top, _ = fullest
    assert other[:2] == pytest.approx([left, width / 3], abs=0.01)
    [mean] = marks(section, "line", "mean")
    assert measure(mean, "x1", "x2") == pytest.approx([left + width * 4 / 6] * 2, abs=0.01)
    assert measure(mean, "y1") < [top]
    assert measure(mean, "y2") > [other[2] + other[3]]
    [note] = marks(section, "p", "note")
    told = "2 rows had 4 messages on average (dashed line), the fullest 1.50 times as many."
    assert note.text == told


@pytest.mark.parametrize("most", [0, 1, 7, 9, 10, 11, 90, 2_345, 10**6])
def test_a_label_of_a_scale_of_counts_is_the_number_at_its_place(most: int) -> None:
    scale = Counts(most)
    labels = [int(tick.text.replace("\N{NARROW NO-BREAK SPACE}", "")) for tick in scale.ticks]
    assert [scale.place(label) for label in labels] == pytest.approx([tick.at for tick in scale.ticks])
    assert labels[0] == 0
    assert labels[-1] >= most
    assert 2 <= len(labels) <= 6


@pytest.mark.parametrize("least", [0, 1, 999, HOUR, 40 * DAY, 400 * DAY])
def test_lengths_that_are_all_the_same_have_a_place(least: int) -> None:
    assert 0 <= Lengths(least, least).place(least) <= 1


def test_a_share_is_nothing_or_all_only_if_it_is_exactly_that() -> None:
    shares = [share(part, 100_000) for part in (0, 1, 10, 99_990, 99_999, 100_000)]
    assert shares == ["0 %", "< 0.01 %", "0.01 %", "99.99 %", "> 99.99 %", "100 %"]
    assert share(0, 0) == "\N{EN DASH}"
