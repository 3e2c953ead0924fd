"""Names for the calls of a conversation: a result names its call, so no two calls may share a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

from ..messages import ChatMessage, LeapFunctionCall
from ..responses import Complete, FunctionCalls


class CallIds:
    """Names the calls of one reply: ``call_N``, the first N that the messages before it leave free. A call that has a
    name of its own keeps it."""

    def __init__(self, messages: Iterable[ChatMessage]) -> None:
        self._used = {
            call.id or f"call_{n}" for message in messages for n, call in enumerate(message.function_calls or ())
        }
        self._numbers = count(len(self._used))
        self._names: list[str] = []
        self._delivered = 0

    def of_calls(self, response: FunctionCalls) -> FunctionCalls:
        """The calls, named."""
        calls = self._with_names(response.function_calls, self._delivered)
        self._delivered += len(calls)
        return FunctionCalls(calls)

    def of_message(self, complete: Complete) -> Complete:
        """The end with its calls named, which are those that came before."""
        message = complete.full_message
        if not message.function_calls:
            return complete
        calls = self._with_names(message.function_calls, 0)
        return replace(complete, full_message=replace(message, function_calls=calls))

    def _with_names(self, calls: Sequence[LeapFunctionCall], first: int) -> tuple[LeapFunctionCall, ...]:
        named = []
        for n, call in enumerate(calls, first):
            if n == len(self._names):
                self._names.append(self._name(call))
            named.append(replace(call, id=self._names[n]))
        return tuple(named)

    def _name(self, call: LeapFunctionCall) -> str:
        name = call.id or f"call_{len(self._used)}"
        while name in self._used:
            name = f"call_{next(self._numbers)}"
        self._used.add(name)
        return name
