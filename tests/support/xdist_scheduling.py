"""Which tests the processes of pytest-xdist run together: those of a file, and all that need Spark.

One process runs all tests on Spark, so that one Java is started and gets warm, while the others run the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

_ON_SPARK: Final = "tests/spark/"


@pytest.hookimpl(optionalhook=True)  # a run without pytest-xdist does not know it
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """With `--dist loadfile`, all tests on Spark count as one file."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - only a run in several processes needs it

    class OneProcessForSpark(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return run_with(nodeid)

    return OneProcessForSpark(config, log)


def run_with(test: str) -> str:
    """The name of those that one process runs together with this test."""
    return _ON_SPARK if test.startswith(_ON_SPARK) else test.partition("::")[0]
