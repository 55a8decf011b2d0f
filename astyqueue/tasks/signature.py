"""A call of a task: checked by the sender, carried as JSON, made by a worker.

A message of a task has the task's name in the header "task" and the arguments as its body:
`{"args": ["ada@example.org"], "kwargs": {"lang": "fr"}}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Generic, NamedTuple, ParamSpec

from pydantic import JsonValue

from astyqueue.errors import BadInput, Reject
from astyqueue.model.body import BODY_BYTES_AT_MOST, encode_body

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Call(Generic[P]):
    """A call of a task with its arguments, to be sent: `task.call(...)` makes it, `send_many` sends many."""

    task: str
    args: tuple[object, ...]
    kwargs: dict[str, object]

    @property
    def body(self) -> dict[str, object]:
        """The body of its message."""
        return {"args": self.args, "kwargs": self.kwargs}

    def check(self, signature: Signature) -> None:
        """TypeError for arguments that the task does not take, BadInput for one that has no JSON form."""
        try:
            bound = signature.bind(*self.args, **self.kwargs)
        except TypeError as error:
            message = f"task {self.task} was not sent: {error}; it takes {_parameters(signature)}"
            raise TypeError(message) from error
        try:
            encode_body(self.body, BODY_BYTES_AT_MOST, limited_by="a queue")
        except BadInput:
            self._blame(bound.arguments)
            raise

    def _blame(self, arguments: dict[str, object]) -> None:
        """Raise BadInput that names the argument without a JSON form."""
        for name, value in arguments.items():
            try:
                encode_body(value, BODY_BYTES_AT_MOST, limited_by="a queue")
            except BadInput as error:
                problem = str(error).removeprefix("body")
                message = f"task {self.task} was not sent: argument {name}{problem}"
                raise BadInput(message) from error


class Arguments(NamedTuple):
    """The arguments in a message of a task."""

    args: list[JsonValue]
    kwargs: dict[str, JsonValue]


def arguments_of(body: JsonValue) -> Arguments:
    """The arguments in a message's body. `Reject` for another body: a retry would find the same."""
    if isinstance(body, dict) and len(body) == len(Arguments._fields):
        args, kwargs = body.get("args"), body.get("kwargs")
        if isinstance(args, list) and isinstance(kwargs, dict):
            return Arguments(args, kwargs)
    reason = f'the body is not a call of a task, {{"args": [...], "kwargs": {{...}}}}, but {_shape(body)}'
    raise Reject(reason)


def _shape(body: JsonValue) -> str:
    """The type and size of a value, without its content: reasons are logged and stored, bodies may be confidential."""
    match body:
        case dict():
            arguments = [f", its {name} {_shape(body[name])}" for name in Arguments._fields if name in body]
            return f"an object of {len(body)} keys{''.join(arguments)}"
        case list():
            return f"a list of {len(body)}"
        case str():
            return f"text of {len(body)} characters"
        case bool():
            return "true or false"
        case None:
            return "null"
    return "a number"


def _parameters(signature: Signature) -> str:
    """The parameters as in source code, without their types."""
    plain = [parameter.replace(annotation=Parameter.empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=Signature.empty))
