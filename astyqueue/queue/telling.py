"""Asking hooks about outcomes, and telling them of those that are in the store and of messages that died unsettled."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from astyqueue.model.message import MessageId
from astyqueue.queue.holding import Handed
from astyqueue.queue.hooks import Hook, told


class Telling:
    """What the hooks of one queue are still to hear of; whoever tells them is not in line for the lead, so that they may use it."""

    def __init__(self, hooks: tuple[Hook, ...] = ()) -> None:
        """These are asked and told, in this order."""
        self.anybody = bool(hooks)
        self._hooks = hooks
        self._untold: deque[Callable[[Hook], None]] = deque()
        self._busy = threading.Lock()
        self._teller: int | None = None

    def ask(self, delivery: Handed, outcome: str) -> None:
        """Let the hooks refuse an outcome."""
        for hook in self._hooks:
            hook.before_settle(delivery, outcome)

    def happened(self, delivery: Handed, outcome: str) -> None:
        """Remember what there is to tell."""
        if self._hooks:
            self._untold.append(lambda hook: told(hook.after_settle, delivery, outcome))

    def died(self, message: MessageId, kind: str, reason: str) -> None:
        """Remember that a message became a dead letter in nobody's hand."""
        if self._hooks:
            self._untold.append(lambda hook: told(hook.after_burial, message, kind, reason))

    @property
    def waits(self) -> bool:
        """Whether there is something to tell, and nobody does so at this moment."""
        return bool(self._untold) and not self._busy.locked()

    def tell(self) -> None:
        """Tell what happened, one thing after the other; what happens by a hook is told after it."""
        while self._untold and self._busy.acquire(blocking=False):
            self._teller = threading.get_ident()
            try:
                self._tell_all()
            finally:
                self._teller = None
                self._busy.release()

    def finish(self, patience: float) -> None:
        """Return when hooks have heard of all that happened so far, by this thread or another, or when `patience` seconds have passed.

        A hook that calls this does not wait for itself.
        """
        if self._teller == threading.get_ident():
            return
        self.tell()
        if self._busy.acquire(timeout=patience):
            self._busy.release()
            self.tell()

    def _tell_all(self) -> None:
        while self._untold:
            tell = self._untold.popleft()
            for hook in self._hooks:
                tell(hook)
