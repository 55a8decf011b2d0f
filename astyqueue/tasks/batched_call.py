"""A call of a task that handles batches: what its function gets a list of."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter, Signature
from typing import Final, Generic, TypeVar, cast

from pydantic import JsonValue

from astyqueue.errors import BadSetting, NotFound, Reject
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.tasks.signature import arguments_of

T = TypeVar("T")
D = TypeVar("D")
B = TypeVar("B", bound=BaseDelivery)
_ARGUMENT: Final = "argument"
#: What each call of a task that handles batches takes.
ONE_ARGUMENT: Final = Signature([Parameter(_ARGUMENT, Parameter.POSITIONAL_OR_KEYWORD)])


class CallInBatch(Generic[T, D]):
    """One call of a batch: the `argument` that it was sent with, and the `delivery` of its message."""

    __slots__ = ("_delivery", "argument")

    def __init__(self, argument: T, delivery: D | None = None) -> None:
        """Without a delivery it is a call that was made directly, as in a test."""
        self.argument = argument
        self._delivery = delivery

    def __repr__(self) -> str:
        """Its delivery; not the argument, which may be confidential."""
        return f"<call of {self._delivery}>"

    @property
    def delivery(self) -> D:
        """Its delivery, to settle it apart from the others of the batch; NotFound if the task was called directly."""
        if self._delivery is None:
            message = (
                "this call came with no message, because the task was called directly: in a test, call the function "
                "that it decorates (__wrapped__) with [BatchedCall(argument, delivery)]"
            )
            raise NotFound(message)
        return self._delivery


#: What a plain function gets a list of; `BatchedCall[str]` is a call with a text.
BatchedCall = CallInBatch[T, Delivery]


def check_batch_function(name: str, signature: Signature) -> None:
    """BadSetting if a function cannot be called with one argument, the list of calls."""
    try:
        signature.bind([])
    except TypeError:
        message = (
            f"task {name} handles batches, so its function takes one argument, the list of calls: "
            "def insert(calls: list[BatchedCall[str]]), and each call.argument is what one send had"
        )
        raise BadSetting(message) from None


def readable_calls(deliveries: Sequence[B]) -> tuple[list[CallInBatch[JsonValue, B]], list[tuple[B, str]]]:
    """The calls in these deliveries, and the deliveries with other bodies, with the reasons to reject them."""
    calls: list[CallInBatch[JsonValue, B]] = []
    wrong: list[tuple[B, str]] = []
    for delivery in deliveries:
        try:
            calls.append(CallInBatch(_argument_of(delivery.body), delivery))
        except Reject as error:
            wrong.append((delivery, error.reason))
    return calls, wrong


def _argument_of(body: JsonValue) -> JsonValue:
    args, kwargs = arguments_of(body)
    try:
        return cast("JsonValue", ONE_ARGUMENT.bind(*args, **kwargs).arguments[_ARGUMENT])
    except TypeError as error:
        reason = f"a task that handles batches takes one argument for each call: {error}"
        raise Reject(reason) from None
