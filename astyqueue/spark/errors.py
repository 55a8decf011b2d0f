"""One sentence out of an error of Spark, whose text is pages of Python and Java traceback; one line of it matters."""

from __future__ import annotations

import re
from typing import Final

from astyqueue import errors
from astyqueue.errors import AstyqueueError

#: Our own errors quoted in the text; the one that was raised last comes last.
_OURS: Final = re.compile(r"astyqueue\.errors\.(\w+): (.+)")
#: The reasons in a Java stack trace, the root cause last; the first follows the name of the call.
_CAUSE: Final = re.compile(r"^(?:Caused by)?: [\w.$]+: (.+)", re.MULTILINE)
#: What Spark puts around its sentences: the name of the error condition, and the SQLSTATE with all that follows it.
_AROUND: Final = re.compile(r"^\[[A-Z_.]+\] |,? *\(?SQLSTATE: .*| \(start marker at .*")


def reason_of(error: Exception) -> tuple[type[AstyqueueError] | None, str]:
    """The class of our own error that caused an error of Spark, or None, and the sentence that matters."""
    text = str(error)
    if ours := _OURS.findall(text):
        name, sentence = ours[-1]
        return _error_named(name), sentence
    causes = _CAUSE.findall(text)
    sentence = causes[-1] if causes else next((line for line in text.splitlines() if line), type(error).__name__)
    return None, _AROUND.sub("", sentence)


def _error_named(name: str) -> type[AstyqueueError]:
    """Our error class of this name, else AstyqueueError: data may look like one, and the module has other names."""
    kind = getattr(errors, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, AstyqueueError) else AstyqueueError
