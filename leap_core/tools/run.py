"""The loop of calling and answering: the model calls, functions run, results go back, until it answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ..conversation.calls.declaration import LeapFunction
from ..conversation.calls.pythonic import write_calls
from ..conversation.messages import ChatMessage, ChatMessageRole, LeapFunctionCall
from ..conversation.options import GenerationOptions
from ..conversation.responses import Complete, FunctionResult, GenerationFinishReason, MessageResponse
from ..errors import LeapOptionsError, LeapToolError
from .execution import check_isolation, run_call
from .policy import ALLOW, DECIDE, DENY, FunctionPolicy, doubt_of

if TYPE_CHECKING:
    from ..conversation.conversation import Conversation

MOST_AT_ONCE = 8
REPEATED = "the model repeated a call that had its result; it was not run again, and the model had to answer: {calls}"
ENDED_BY_ITSELF = (GenerationFinishReason.STOP, GenerationFinishReason.CONSTRAINT)


class _Stream(Protocol):
    def stop(self) -> None: ...
    def close(self) -> None: ...


def run_functions(
    conversation: Conversation,
    policy: FunctionPolicy,
    message: ChatMessage | str | None = None,
    options: GenerationOptions | None = None,
) -> FunctionRun:
    """Generate, run the functions that the model calls, and continue with their results until it calls none.

    The run is iterated like a response stream and delivers the responses of every generation, with a FunctionResult
    for every call in between. Calls of one round run at the same time; results are recorded in the order of the calls.
    The model gets the errors of a function. A call that the policy denies ends the run with LeapToolError, and so does
    a model that still calls after ``policy.rounds`` rounds. A call that repeats one of the round before is not run
    again: it has the same result, and where the model made no other call it is to answer without tools, with a warning
    in Complete. After an error it may repeat the call. Functions that are only declared end the run quietly: their
    calls are for the caller. ``message`` None continues from the history and runs calls that it has not answered.
    """
    if not isinstance(policy, FunctionPolicy):
        raise LeapOptionsError("policy", f"a FunctionPolicy is needed, not {type(policy).__name__}")
    for function in conversation.functions:
        check_isolation(function, policy.of(function.name))
    return FunctionRun(conversation, policy, message, options or GenerationOptions())


class FunctionRun:
    """The responses of a whole run; iterated once."""

    def __init__(
        self,
        conversation: Conversation,
        policy: FunctionPolicy,
        message: ChatMessage | str | None,
        options: GenerationOptions,
    ) -> None:
        self._conversation = conversation
        self._policy = policy
        self._responses = self._run(message, options)
        self._guard = threading.Lock()
        self._stream: _Stream | None = None
        self._cancelled = threading.Event()

    def __iter__(self) -> Iterator[MessageResponse]:
        return self

    def __next__(self) -> MessageResponse:
        return next(self._responses)

    @property
    def stopped(self) -> bool:
        """Whether ``stop()`` was called."""
        return self._cancelled.is_set()

    def stop(self) -> None:
        """End the reply that is being generated within one token, and the functions that run; from any thread."""
        with self._guard:
            self._cancelled.set()
            if self._stream is not None:
                self._stream.stop()

    def close(self) -> None:
        """Give the run up; the reply that is being generated is not kept."""
        with self._guard:
            self._cancelled.set()
            stream = self._stream
        if stream is not None:
            stream.close()
        with suppress(ValueError):  # it is being iterated by another thread, which ends it
            self._responses.close()

    def __enter__(self) -> FunctionRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(
        self, message: ChatMessage | str | None, options: GenerationOptions
    ) -> Generator[MessageResponse, None, None]:
        rounds = 0
        known: dict[str, FunctionResult] = {}
        warnings: tuple[str, ...] = ()
        calls = self._unanswered() if message is None else ()
        while True:
            if calls:
                if rounds == self._policy.rounds:
                    raise self._too_many_rounds(calls)
                rounds += 1
                results = yield from self._answer(calls, known)
                message, options = None, _after_first_call(options)
                if all(_identity(call) in known for call in calls):
                    options = replace(options, tool_choice="none")
                    warnings = (REPEATED.format(calls=write_calls(calls)[1:-1]),)
                known = {_identity(result.call): result for result in results if result.error is None}
            if self.stopped:
                yield Complete(ChatMessage(ChatMessageRole.ASSISTANT), GenerationFinishReason.INTERRUPTED)
                return
            complete = yield from self._generate(message, options, warnings)
            calls = complete.full_message.function_calls or () if complete else ()
            if not calls or warnings or self.stopped or not self._can_run(calls):
                return
            if complete is not None and complete.finish_reason not in ENDED_BY_ITSELF:
                return

    def _too_many_rounds(self, calls: Sequence[LeapFunctionCall]) -> LeapToolError:
        rounds = f"{self._policy.rounds} rounds" if self._policy.rounds > 1 else "1 round"
        return LeapToolError(
            f"the model still calls functions after {rounds}; not run: {write_calls(calls)[1:-1]}",
            hint="--max-tool-iterations allows more rounds in one command, tools.rounds in config.toml always",
        )

    def _generate(
        self, message: ChatMessage | str | None, options: GenerationOptions, warnings: tuple[str, ...]
    ) -> Generator[MessageResponse, None, Complete | None]:
        stream = self._conversation.generate_response(message, options)
        with self._guard:
            self._stream = stream
        complete = None
        with stream:
            for response in stream:
                if isinstance(response, Complete):
                    response = complete = replace(response, warnings=(*response.warnings, *warnings))
                yield response
        return complete

    def _unanswered(self) -> Sequence[LeapFunctionCall]:
        """The calls at the end of the history that have no result there. A result that names none of them is the
        first one's that is left."""
        history = list(self._conversation.history)
        answered = []
        while history and history[-1].role is ChatMessageRole.TOOL:
            answered.append(history.pop().tool_call_id)
        last = history[-1] if history else None
        calls = last.function_calls if last is not None and last.role is ChatMessageRole.ASSISTANT else None
        named = [replace(call, id=call.id or f"call_{n}") for n, call in enumerate(calls or ())]
        unnamed = sum(id not in [call.id for call in named] for id in answered)
        left = [call for call in named if call.id not in answered][unnamed:]
        return left if self._can_run(left) else ()

    def _can_run(self, calls: Sequence[LeapFunctionCall]) -> bool:
        """Whether leap is to run these: none of them is of a function that is only declared."""
        functions = self._functions()
        return all(call.name not in functions or functions[call.name].call is not None for call in calls)

    def _functions(self) -> dict[str, LeapFunction]:
        return {function.name: function for function in self._conversation.functions}

    def _answer(
        self, calls: Sequence[LeapFunctionCall], known: Mapping[str, FunctionResult]
    ) -> Generator[MessageResponse, None, Sequence[FunctionResult]]:
        """Run the calls of one round but those whose results are ``known``, and record what came of them."""
        functions = self._functions()
        results: list[FunctionResult | None] = [
            replace(known[_identity(call)], call=call, seconds=0.0) if _identity(call) in known else self._decide(call)
            for call in calls
        ]
        denied = next((r for r in results if r is not None and r.denied and not r.refused), None)
        if denied is None:
            waiting = [n for n, result in enumerate(results) if result is None]
            with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
                run = [
                    pool.submit(
                        run_call, functions[calls[n].name], calls[n], self._policy.of(calls[n].name), self._cancelled
                    )
                    for n in waiting
                ]
                for n, future in zip(waiting, run, strict=True):
                    results[n] = future.result()
        answers = [
            result or FunctionResult(call, "", "it was not run, because another call was denied", denied=True)
            for call, result in zip(calls, results, strict=True)
        ]
        for n, result in enumerate(answers):  # all of them, before a reader can leave
            self._conversation.append_to_history(result.message(result.call.id or f"call_{n}"))
        yield from answers
        if denied is not None:
            raise LeapToolError(
                f"the call {write_calls([denied.call])[1:-1]} was denied: {denied.error}",
                hint=f"--allow-tool {denied.call.name} runs it without asking; [tools] in config.toml says so for good",
            )
        return answers

    def _decide(self, call: LeapFunctionCall) -> FunctionResult | None:
        function, policy = self._functions().get(call.name), self._policy.of(call.name)
        doubt: Callable[[], str | None] | None = None
        if function is not None and policy.decision == DECIDE:
            doubt = partial(doubt_of, self._conversation, function, call, policy, self._cancelled.is_set)
        return refusal(function, call, self._policy, doubt, tuple(self._functions()))


def _identity(call: LeapFunctionCall) -> str:
    """What two calls have in common that are the same."""
    return json.dumps([call.name, dict(call.arguments)], sort_keys=True, default=str)


def refusal(
    function: LeapFunction | None,
    call: LeapFunctionCall,
    policies: FunctionPolicy,
    doubt: Callable[[], str | None] | None = None,
    known: Sequence[str] = (),
) -> FunctionResult | None:
    """A result for a call that does not run, as ``function`` is None or the policy is against it; None for one that
    does. ``doubt``: why the user is asked, None where it need not be. ``known``: names that the model may call."""
    if function is None:
        listed = f"; call one of {', '.join(known)}, or answer without" if known else ""
        return FunctionResult(call, "", f"there is no function {call.name}{listed}")
    decision = policies.of(call.name).decision
    if decision == ALLOW:
        return None
    if decision == DENY:
        return FunctionResult(call, "", "the policy denies it", denied=True)
    reason = "the policy is to ask" if doubt is None else doubt()
    if reason is None:
        return None
    if policies.ask is None:
        return FunctionResult(call, "", f"{reason}, and there is no one to ask", denied=True)
    if policies.ask(function, call):
        return None
    return FunctionResult(call, "", "the user refused this call", denied=True, refused=True)


def _after_first_call(options: GenerationOptions) -> GenerationOptions:
    """A call that was required has been made; from now on the model may answer."""
    return options if options.tool_choice in (None, "auto", "none") else replace(options, tool_choice="auto")
