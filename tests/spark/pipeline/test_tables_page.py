"""docs/reference/pipeline.md lists the tables as they are.

`python -m tests.spark.pipeline.test_tables_page` writes them into the page.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Final

from astyqueue.spark.pipeline.schemas import FACTS, LIVE, TABLES, Table

PAGE: Final = Path(__file__).parents[3] / "docs/reference/pipeline.md"
#: Characters in a line of text; a row of a table is one line, however long.
_WIDTH: Final = 120
HEAD: Final = """# The tables of the pipeline

What `astyqueue pipeline run` writes, and how to use it: [Tables and a report](../how-to/pipeline.md).
Each table is a folder of Parquet files below `queue=…/day=…`; those two are columns as well. Every table is checked
for exactly these columns when it is written, and again when it is read.

A *length* is whole microseconds (a 64-bit number), a *percentile* microseconds that may lie between two values (a
double). An *instant* is a timestamp, UTC, to the microsecond; a *number* has 64 bits. What is not known is null.
"""


def test_the_page_lists_every_column_as_it_is() -> None:
    assert PAGE.read_text() == listed(), "write it anew: python -m tests.spark.pipeline.test_tables_page"


def test_no_line_of_the_page_is_longer_than_those_of_programs() -> None:
    assert [line for line in listed().splitlines() if len(line) > 120] == []


def listed() -> str:
    """The whole page."""
    return HEAD + "".join(map(_section, TABLES))


def _section(table: Table) -> str:
    about = fill(table.meaning, _WIDTH, break_long_words=False, break_on_hyphens=False)
    title = f"\n## {table.name}\n\n{about}\n"
    if table is LIVE:
        return f"{title}\nThe columns are those of [facts](#{FACTS.name}).\n"
    rows = [f"| `{field.name}` | {field.kind} | {field.meaning} |" for field in table.fields]
    return "\n".join([title, "| column | kind | meaning |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(listed())
