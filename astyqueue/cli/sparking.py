"""What commands that use Spark have in common: what goes wrong there is told in a sentence, not in pages of trace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from astyqueue.cli.failures import ExitCode, Failure, trace_if_verbose

#: What Spark's errors quote of ours, among much else.
_OURS: Final = re.compile(r"astyqueue\.errors\.(\w+): (.+)")
#: The deepest reason in a trace of Java.
_CAUSE: Final = re.compile(r"Caused by: [\w.$]+: (.+)")


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turn what Spark raises into the sentence that matters; without Spark, say how to install it."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
    except ImportError as error:
        message = "this needs Spark: pip install 'astyqueue[spark]'"
        raise Failure(message, ExitCode.BAD_INPUT) from error
    try:
        yield
    except (PySparkException, Py4JError) as error:
        trace_if_verbose()
        ours = _OURS.search(str(error))
        cause = _CAUSE.findall(str(error))
        told = ours[2] if ours else cause[-1] if cause else str(error).splitlines()[0]
        raise Failure(told, ExitCode.FAILED) from error
