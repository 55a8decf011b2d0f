"""What Spark raises, as a sentence: its own errors are pages of trace in two languages, in which one line matters."""

from __future__ import annotations

import re
from typing import Final

from astyqueue import errors
from astyqueue.errors import AstyqueueError

#: What is quoted of ours, among much else; what was raised last comes last.
_OURS: Final = re.compile(r"astyqueue\.errors\.(\w+): (.+)")
#: The reasons in a trace of Java, the deepest last; the first is told after the name of what was called.
_CAUSE: Final = re.compile(r"^(?:Caused by)?: [\w.$]+: (.+)", re.MULTILINE)
#: What Spark puts around its sentences: the name of the condition, and its number and whatever comes after that.
_AROUND: Final = re.compile(r"^\[[A-Z_.]+\] |,? *\(?SQLSTATE: .*| \(start marker at .*")


def reason_of(error: Exception) -> tuple[type[AstyqueueError] | None, str]:
    """The sentence that matters in an error of Spark; first which of our own errors it is, if it is one."""
    text = str(error)
    if ours := _OURS.findall(text):
        name, told = ours[-1]
        return _error_named(name), told
    causes = _CAUSE.findall(text)
    told = causes[-1] if causes else next((line for line in text.splitlines() if line), type(error).__name__)
    return None, _AROUND.sub("", told)


def _error_named(name: str) -> type[AstyqueueError]:
    """Our error of this name. What a row or a body says may look like one, and the module has other names as well."""
    kind = getattr(errors, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, AstyqueueError) else AstyqueueError
