"""A store that drops a guard of the protocol, to show that a test notices."""

from __future__ import annotations

from collections.abc import Iterable

from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.steps import Commit, Request
from astyqueue.store import Store
from astyqueue.testing import Faulty


class Unguarded(Faulty):
    """Drops a commit's expectations on columns of some types: a test that still passes does not cover that guard."""

    def __init__(self, store: Store, *, types: Iterable[int] = (Type.LOCK,)) -> None:
        """`types`: the types of columns whose expectations are dropped. Default: the headers."""
        super().__init__(store)
        self._types = frozenset(types)

    def perform(self, request: Request) -> object:
        """Apply a commit if the remaining expectations hold."""
        if isinstance(request, Commit):
            left = tuple(expected for expected in request.expects if expected.name.type not in self._types)
            request = Commit(request.batch, left)
        return super().perform(request)
