"""What goes along with messages that somebody removes who does not hold them: told by the messages themselves."""

from __future__ import annotations

from collections.abc import Mapping

from astyqueue.model.message import MessageId
from astyqueue.model.views import Content
from astyqueue.protocol.along import goes_along, owned
from astyqueue.protocol.raising import Plan
from astyqueue.protocol.steps import Steps


def let_go_along(plan: Plan, row: str, found: Mapping[MessageId, Content]) -> Steps[Plan]:
    """The same plan, which frees the keys of these messages if they still have them, and leaves their marks."""
    going = {id_.id: goes_along(id_.priority, id_.id, content.envelope) for id_, content in found.items() if content.envelope}
    plan.freed += yield from owned(row, going)
    plan.puts += [along.mark for along in going.values() if along.mark]
    return plan
